// SPDX-License-Identifier: Apache-2.0
//
// Making a communicator: the ranks meet, agree, open their endpoints, describe themselves to each other, and settle
// which transport serves each pair.
#include <fmt/format.h>
#include <tutti/registry.h>

#include <optional>

#include "base/failure.hpp"
#include "base/fork_generation.hpp"
#include "base/hash.hpp"
#include "base/settings.hpp"
#include "comm/communicator.hpp"
#include "comm/host_reach.hpp"
#include "registry/host.hpp"
#include "registry/registry.hpp"
#include "topology/rank_description.hpp"

namespace tutti::core {

Communicator::Communicator(Configuration configuration, const Succession& succession)
    : configuration_(std::move(configuration)), fork_generation_(fork_generation()) {
  Means means;
  means.meanwhile.emplace();
  std::optional<Failure> unfit;
  try {
    find(means);
  } catch (const std::exception& problem) {
    unfit = failure_of(problem);
  }
  reports_ = std::make_unique<Reports>(std::make_shared<FlightRecorder>(expected_meeting(configuration_)));
  Deadline deadline = configuration_.connect_deadline();
  // A rank that is unfit still meets the others, so they hear of it at once.
  try {
    bootstrap_ = meet(configuration_, succession, deadline);
  } catch (const Failure& failure) {
    reports_->recorder().failed(unfit ? unfit->text : failure.text);
    if (unfit && failure.status != TUTTI_INVALID_ARGUMENT) throw *unfit;
    throw;
  }
  take_place(std::move(bootstrap_));
  try {
    if (unfit) throw *unfit;
    introduce(means, deadline);
    prepare();
  } catch (const std::exception& problem) {
    give_up(problem);
  }
  log(TUTTI_LOG_INFO, name(),
      fmt::format("rank {} of {}\n{}", rank_, nranks_, rank_ == 0 ? topology_.text() : std::string()));
}

Communicator::Communicator(const Communicator& parent, Part part)
    : configuration_(std::move(part.configuration)), fork_generation_(parent.fork_generation_) {
  Means means;
  reports_ = std::make_unique<Reports>(std::make_shared<FlightRecorder>(expected_meeting(configuration_)));
  take_place(std::move(part.bootstrap));
  family_ = std::move(part.family);
  common_ = parent.common_;
  common_.communicator = part.id;
  try {
    find(means);
    begin_trace(means);
    open_fabric(means);
    std::vector<RankDescription> ranks;
    for (const uint32_t member : part.members) ranks.push_back(parent.topology_.rank(member));
    describe_ranks(std::move(ranks), means);
    prepare();
  } catch (const std::exception& problem) {
    give_up(problem);
  }
  log(TUTTI_LOG_INFO, name(), fmt::format("rank {} of {}, split from {}", rank_, nranks_, parent.name()));
}

void Communicator::take_place(std::unique_ptr<Bootstrap> bootstrap) {
  bootstrap_ = std::move(bootstrap);
  rank_ = bootstrap_->rank();
  nranks_ = bootstrap_->nranks();
  breakdown_.place(rank_, configuration_, bootstrap_->control(), *reports_);
  reports_->recorder().met(rank_, nranks_);
}

void Communicator::give_up(const std::exception& problem) {
  const Failure failure = failure_of(problem);
  reports_->recorder().failed(failure.text);
  bootstrap_->announce_failure(failure.status, "could not make its communicator: " + failure.text);
  natives_.clear();
  fabric_.close();
  throw failure;
}

void Communicator::find(Means& means) {
  if (const std::string error = required_plugin_error(); !error.empty()) throw Failure(TUTTI_NOT_FOUND, error);
  means.trace_folder = trace_folder();
  means.filter = AlgorithmFilter(configuration_.algorithms);
  device_ = bind_device(configuration_.device, configuration_.device_source.c_str());
  means.transports = choose_transports(configuration_.transports);
  if (const std::string& name = configuration_.selector; !name.empty()) {
    std::string error;
    means.chooser = find_selector(name, &error);
    if (!means.chooser) throw Failure(TUTTI_NOT_FOUND, fmt::format("TUTTI_SELECTOR=\"{}\": {}", name, error));
  }
  if (!configuration_.tuning) configuration_.tuning = Tuning::read(configuration_.tuning_file);
}

// Collective.
void Communicator::introduce(Means& means, const Deadline& deadline) {
  const Gather gather = [&](const std::string& mine) { return bootstrap_->all_gather(mine, deadline); };
  FlightRecorder& recorder = reports_->recorder();
  recorder.enter(TUTTI_FLIGHT_COMPARING);
  common_ = agree(rank_, configuration_, device_, means.trace_folder.has_value(), gather);
  configuration_.tuning = common_.tuning;
  begin_trace(means);
  if (common_.traces) Trace::exchange_clocks(recorder.trace(), rank_, gather);
  open_fabric(means);
  recorder.enter(TUTTI_FLIGHT_DESCRIBING);
  RankDescription mine = describe_process(device_);
  const HostReach reach;  // it listens until all ranks have described themselves
  const HostReach::Found found = reach.find(rank_, mine.host, gather);
  mine.place = found.place;
  mine.apart = printable(found.apart);
  mine.transports = fabric_.offers();
  for (const auto& [name, why] : fabric_.left_out()) mine.left_out.push_back({name, printable(why)});
  describe_ranks(decode_all<RankDescription>(gather(encode(mine)), "description"), means);
  make_natives(deadline);
}

void Communicator::begin_trace(const Means& means) {
  reports_->recorder().agreed(common_.communicator);
  if (means.trace_folder) reports_->recorder().trace_into(*means.trace_folder);
}

void Communicator::open_fabric(Means& means) {
  reports_->recorder().enter(TUTTI_FLIGHT_OPENING);
  if (!family_.key) family_.key = hash_text(std::to_string(rank_), common_.communicator) | 1;  // the first of a family
  Fabric::Config config = fabric_config(common_.devices);
  config.family = family_.key;
  config.opens_on_use = family_.trunk != nullptr;
  fabric_.open(nranks_ > 1 ? means.transports : TransportChoice{}, config, bootstrap_->control());
}

// By rank.
void Communicator::describe_ranks(std::vector<RankDescription> ranks, Means& means) {
  topology_ = Topology(std::move(ranks));
  fabric_.choose_links(topology_, configuration_.transports);
  selector_ = std::make_unique<Selector>(topology_, std::move(means.filter), common_.algorithms, configuration_.lanes,
                                         configuration_.scratch_limit);
  selector_->use(means.chooser);
  selector_->use(configuration_.tuning);
  selector_->require_canonical(configuration_.canonical);
}

// Collective.
void Communicator::make_natives(const Deadline& deadline) {
  const tutti_native_config native{sizeof native,
                                   rank_,
                                   nranks_,
                                   0,
                                   configuration_.name.c_str(),
                                   common_.communicator,
                                   topology_.host_of_rank().data(),
                                   nullptr,
                                   nullptr};
  natives_ = make_native_groups(common_.collectives, native, [&](const std::string& mine) {
    return bootstrap_->all_gather(mine, deadline);
  });
  selector_->add(natives_);
}

// `devices`: some rank is bound to one.
Fabric::Config Communicator::fabric_config(bool devices) const {
  Fabric::Config config;
  config.rank = rank_;
  config.nranks = nranks_;
  config.lanes = host_lanes() + (devices ? device_lanes() : 0);
  config.name = name();
  config.communicator = common_.communicator;
  config.device = device_;
  if (bootstrap_->secret().empty()) config.address = bootstrap_->address();
  config.timeout_ns = configuration_.connect_timeout_ns;
  config.patience = configuration_.connect_deadline().text();
  config.traffic_class = configuration_.traffic_class;
  config.wrappers = choose_wrappers(configuration_.wrappers);
  return config;
}

void Communicator::make_streams() {
  StreamRunner::Setup setup;
  setup.rank = rank_;
  setup.device = device_;
  setup.topology = &topology_;
  setup.planner = &planner_;
  setup.links = &fabric_.links();
  setup.first_lane = host_lanes();
  setup.lanes = configuration_.lanes;
  setup.communicator = common_.communicator;
  setup.name = name();
  setup.timeout = configuration_.timeout;
  setup.advance_others = [] { ActiveEngines::process().progress_others(nullptr); };
  setup.mapped_links = &fabric_.mapped_links();
  setup.named = !configuration_.transports.empty();
  setup.in_host = flag_setting("TUTTI_HOST_STAGING");
  setup.scratch_limit = configuration_.scratch_limit;
  setup.windows = &windows_.list();
  setup.progress = [this] { fabric_.progress(true, *this); };
  streams_ = std::make_unique<StreamRunner>(std::move(setup));
  stream_calls_.emplace(StreamCalls::Parts{*streams_, topology_, device_, waiter_, breakdown_, meetings_, operations_,
                                           point_to_point_, *call_check_, *reports_, configuration_, rank_});
}

// Everything that calls need.
void Communicator::prepare() {
  const uint32_t windows = configuration_.windows, lanes = configuration_.lanes;
  call_check_.emplace(rank_, nranks_, configuration_.checks_calls, fabric_.links(), reports_->recorder(), name());
  planner_ = {rank_, nranks_, configuration_.verifies, selector_.get(), &fabric_.links(), &operators_};
  plans_.place(planner_, *reports_);
  if (device_) make_streams();
  departures_.place(bootstrap_->control());
  meetings_.place(*bootstrap_, configuration_, [this] { return streams_ && streams_->held_up(); });
  windows_.place(rank_, streams_.get(), why_no_device());
  if (topology_.processors_of(rank_) < 1) waiter_.use({16, crowded_yields});
  operations_.place(rank_, name(), windows, lanes, *reports_, *call_check_);
  point_to_point_.place(rank_, &fabric_.links(), windows * lanes,
                        [this](Transfer& transfer, tutti_status status, const std::string& error) {
                          operations_.ended(transfer, status, error);
                        });
  reports_->recorder().enter(TUTTI_FLIGHT_READY);
  bootstrap_->control().answer_roll_calls(
      [recorder = reports_->shared_recorder()] { return encode(recorder->report()); });
  const std::lock_guard lock(mutex_);
  if (configuration_.progress_thread) begin_progress_thread();
}

const char* Communicator::why_no_device() const {
  return configuration_.device == "none"
             ? "the communicator is bound to no device (tutti_comm_config.device, TUTTI_DEVICE)"
             : "no device is found on this rank (tutti-info lists plugins)";
}

}  // namespace tutti::core
