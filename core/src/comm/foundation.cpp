// SPDX-License-Identifier: Apache-2.0
#include "comm/foundation.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include "base/failure.hpp"
#include "base/hash.hpp"
#include "base/settings.hpp"
#include "comm/host_reach.hpp"
#include "comm/progress.hpp"
#include "registry/registry.hpp"
#include "stream/streams.hpp"
#include "topology/rank_description.hpp"

namespace tutti::core {

// This rank's choices, made before the ranks meet.
struct Foundation::Means {
  AlgorithmFilter filter{""};
  TransportChoice transports;
  const tutti_selector* chooser = nullptr;
  std::optional<TracePlace> trace;
};

Foundation::Foundation(Configuration given, const Succession& succession)
    : configuration(std::move(given)), reports(std::make_shared<FlightRecorder>(expected_meeting(configuration))) {
  const BackgroundProgress meanwhile;
  Means means;
  std::optional<Failure> unfit;
  try {
    means = find();
  } catch (const std::exception& problem) {
    unfit = failure_of(problem);
  }
  Deadline deadline = configuration.connect_deadline();
  // A rank that is unfit still meets the others, so they learn of it at once.
  try {
    take_place(meet(configuration, succession, deadline));
  } catch (const Failure& failure) {
    reports.recorder().failed(unfit ? unfit->text : failure.text);
    if (unfit && failure.status != TUTTI_INVALID_ARGUMENT) throw *unfit;
    throw;
  }
  try {
    if (unfit) throw *unfit;
    introduce(means, deadline);
  } catch (const std::exception& problem) {
    give_up(problem);
  }
}

Foundation::Foundation(const Foundation& parent, SplitPart part)
    : configuration(std::move(part.configuration)),
      reports(std::make_shared<FlightRecorder>(expected_meeting(configuration))),
      family(std::move(part.family)),
      common(parent.common) {
  common.communicator = part.id;
  take_place(std::move(part.bootstrap));
  try {
    Means means = find();
    begin_trace(means);
    open_fabric(means);
    std::vector<RankDescription> ranks;
    for (const uint32_t member : part.members) ranks.push_back(parent.topology.rank(member));
    describe(std::move(ranks), means);
  } catch (const std::exception& problem) {
    give_up(problem);
  }
}

void Foundation::take_place(std::unique_ptr<Bootstrap> met) {
  bootstrap = std::move(met);
  configuration.rank = bootstrap->rank();
  configuration.nranks = bootstrap->nranks();
  reports.recorder().met(rank(), nranks());
}

void Foundation::give_up(const std::exception& problem) {
  const Failure failure = failure_of(problem);
  reports.recorder().failed(failure.text);
  bootstrap->announce_failure(failure.status, "could not make its communicator: " + failure.text);
  natives.clear();
  fabric.close();
  throw failure;
}

Foundation::Means Foundation::find() {
  if (const std::string error = required_plugin_error(); !error.empty()) throw Failure(TUTTI_NOT_FOUND, error);
  Means means;
  means.trace = trace_place();
  means.filter = AlgorithmFilter(configuration.algorithms);
  if (Streams::exist())
    device = bind_device(configuration.device, configuration.device_source.c_str());
  else if (!configuration.device.empty() && configuration.device != "none")
    throw Failure(TUTTI_NOT_SUPPORTED, fmt::format("{}=\"{}\": this libtutti was built without streams "
                                                   "(TUTTI_STREAM=OFF): name no device, or use a library that has them",
                                                   configuration.device_source, configuration.device));
  means.transports = choose_transports(configuration.transports);
  if (const std::string& name = configuration.selector; !name.empty()) {
    std::string error;
    means.chooser = find_selector(name, &error);
    if (!means.chooser) throw Failure(TUTTI_NOT_FOUND, fmt::format("TUTTI_SELECTOR=\"{}\": {}", name, error));
  }
  if (!configuration.tuning) configuration.tuning = Tuning::read(configuration.tuning_file);
  return means;
}

// Collective.
void Foundation::introduce(Means& means, const Deadline& deadline) {
  const Gather gather = [&](const std::string& mine) { return bootstrap->all_gather(mine, deadline); };
  FlightRecorder& recorder = reports.recorder();
  recorder.enter(TUTTI_FLIGHT_COMPARING);
  common = agree(rank(), configuration, device, means.trace.has_value(), gather);
  configuration.tuning = common.tuning;
  begin_trace(means);
  if (common.traces) Trace::exchange_clocks(recorder.trace(), rank(), gather);
  open_fabric(means);
  recorder.enter(TUTTI_FLIGHT_DESCRIBING);
  RankDescription mine = describe_process(device);
  const HostReach reach;  // it listens until all ranks have described themselves
  const HostReach::Found found = reach.find(rank(), mine.host, gather);
  mine.place = found.place;
  mine.apart = printable(found.apart);
  mine.transports = fabric.offers();
  for (const auto& [name, why] : fabric.left_out()) mine.left_out.push_back({name, printable(why)});
  describe(decode_all<RankDescription>(gather(encode(mine)), "description"), means);
  make_natives(deadline);
}

void Foundation::begin_trace(const Means& means) {
  reports.recorder().agreed(common.communicator);
  if (means.trace) reports.recorder().trace_into(*means.trace);
}

void Foundation::open_fabric(const Means& means) {
  reports.recorder().enter(TUTTI_FLIGHT_OPENING);
  if (!family.key) family.key = hash_text(std::to_string(rank()), common.communicator) | 1;  // the first of a family
  Fabric::Config config;
  config.rank = rank();
  config.nranks = nranks();
  config.lanes = host_lanes() + (common.devices ? device_lanes() : 0);
  config.name = name();
  config.communicator = common.communicator;
  config.family = family.key;
  config.device = device;
  if (bootstrap->secret().empty()) config.address = bootstrap->address();
  config.timeout_ns = configuration.connect_timeout_ns;
  config.patience = configuration.connect_deadline().text();
  config.traffic_class = configuration.traffic_class;
  config.wrappers = choose_wrappers(configuration.wrappers);
  config.opens_on_use = family.trunk != nullptr;
  fabric.open(nranks() > 1 ? means.transports : TransportChoice{}, config, control());
}

// By rank.
void Foundation::describe(std::vector<RankDescription> ranks, Means& means) {
  topology = Topology(std::move(ranks));
  fabric.choose_links(topology, configuration.transports);
  selector.emplace(topology, std::move(means.filter), common.algorithms, configuration.lanes,
                   configuration.scratch_limit,
                   SelectorSettings{means.chooser, configuration.tuning, common.communicator});
}

void Foundation::make_natives(const Deadline& deadline) {
  const tutti_native_config native{
      sizeof native, rank(), nranks(), 0, name().c_str(), common.communicator, topology.host_of_rank().data(),
      nullptr,       nullptr};
  natives = make_native_groups(common.collectives, native,
                               [&](const std::string& mine) { return bootstrap->all_gather(mine, deadline); });
  selector->add(natives);
}

const char* Foundation::why_no_device() const {
  if (!Streams::exist()) return "this libtutti was built without streams (TUTTI_STREAM=OFF)";
  return configuration.device == "none"
             ? "the communicator is bound to no device (tutti_comm_config.device, TUTTI_DEVICE)"
             : "no device is found on this rank (tutti-info lists plugins)";
}

}  // namespace tutti::core
