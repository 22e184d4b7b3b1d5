// SPDX-License-Identifier: Apache-2.0
//
// Making and ending a communicator: the ranks meet, compare what must agree, open their endpoints, describe themselves
// to each other, and settle which transport serves each pair.
#include <fmt/format.h>
#include <sched.h>
#include <tutti/registry.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "bootstrap/environment.hpp"
#include "bootstrap/failure.hpp"
#include "engine/cbor.hpp"
#include "engine/communicator.hpp"
#include "engine/fork_generation.hpp"
#include "engine/hash.hpp"
#include "engine/host.hpp"
#include "engine/plugin_check.hpp"
#include "engine/registry.hpp"
#include "engine/sealed_transport.hpp"
#include "engine/settings.hpp"
#include "engine/transport_choice.hpp"

namespace tutti::core {
namespace {

using Json = nlohmann::json;

constexpr uint32_t default_windows = 4, default_lanes = 4, most_windows = 64, most_lanes = 64;
constexpr uint64_t default_scratch_limit = uint64_t{1} << 30;
constexpr uint64_t smallest_fragment = 4096;

uint32_t usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<uint32_t>(std::max(1, CPU_COUNT(&set)));
  return std::max(1u, std::thread::hardware_concurrency());
}

std::string version_of_transport(const std::string& name) {
  for (const PluginRecord& record : list_plugins())
    if (record.loaded && std::find(record.transports.begin(), record.transports.end(), name) != record.transports.end())
      return record.id + " " + record.version;
  return "?";
}

std::map<std::string, std::string> algorithm_versions() {
  std::map<std::string, std::string> versions;
  for (const PluginRecord& record : list_plugins())
    if (record.loaded)
      for (const std::string& name : record.algorithms) versions[name] = record.id + " " + record.version;
  return versions;
}

uint64_t random_id() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

uint32_t bounded(uint32_t value, uint32_t fallback, uint32_t most, const char* what) {
  if (value > most)
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  fmt::format("tutti_comm_config.{} is {}, expected at most {}", what, value, most));
  return value ? value : fallback;
}

}  // namespace

Communicator::Communicator(const tutti_comm_config& config, const Succession& succession) {
  if (config.flags & ~uint32_t{TUTTI_COMM_PROGRESS_THREAD | TUTTI_COMM_JOIN | TUTTI_COMM_CHECK_CALLS})
    throw Failure(TUTTI_NOT_SUPPORTED,
                  fmt::format("tutti_comm_config.flags is {:#x}: unknown flags are set", config.flags));
  if (config.name) name_ = config.name;
  windows_count_ = bounded(config.windows, default_windows, most_windows, "windows");
  lanes_ = bounded(config.lanes, default_lanes, most_lanes, "lanes");
  scratch_limit_ = config.scratch_limit ? config.scratch_limit : default_scratch_limit;
  connect_timeout_ns_ =
      config.connect_timeout_ns ? config.connect_timeout_ns : seconds_setting("TUTTI_CONNECT_TIMEOUT", 30);
  timeout_ns_ = config.timeout_ns ? config.timeout_ns : seconds_setting("TUTTI_TIMEOUT", 600);
  transport_setting_ = config.transports ? config.transports : setting("TUTTI_TRANSPORT").value_or("");
  algorithm_setting_ = config.algorithms ? config.algorithms : setting("TUTTI_ALGO").value_or("");
  verifies_ = flag_setting("TUTTI_VERIFY");
  checksums_ = flag_setting("TUTTI_CHECKSUM");
  checks_calls_ = (config.flags & TUTTI_COMM_CHECK_CALLS) || flag_setting("TUTTI_CHECK");
  fork_generation_ = fork_generation();
  // Who cannot take part still meets the others, so that they hear of it at once.
  std::optional<Failure> unfit;
  AlgorithmFilter filter("");
  TransportChoice transports;
  try {
    if (const std::string error = required_plugin_error(); !error.empty()) throw Failure(TUTTI_NOT_FOUND, error);
    filter = AlgorithmFilter(algorithm_setting_);
    transports = choose_transports(transport_setting_);
  } catch (const Failure& failure) {
    unfit = failure;
  }

  recorder_ = std::make_shared<FlightRecorder>(meeting_of(config));
  try {
    meet(config, succession);
  } catch (const Failure& failure) {
    recorder_->failed(unfit ? unfit->text : failure.text);
    if (unfit && failure.status != TUTTI_INVALID_ARGUMENT) throw *unfit;
    throw;
  }
  try {
    if (unfit) throw *unfit;
    const auto algorithms = agree();
    recorder_->enter(TUTTI_FLIGHT_OPENING);
    if (nranks_ > 1) open_ports(transports);
    // Before the ranks describe themselves: afterwards each knows whom it reaches. Transports that were named carry
    // everything.
    if (nranks_ > 1 && have_devices() && transport_setting_.empty())
      exchange_ = std::make_unique<MemoryExchange>(id_, rank_, bootstrap_->secret());
    recorder_->enter(TUTTI_FLIGHT_DESCRIBING);
    describe_ranks();
    choose_links();
    share_board();
    selector_ = std::make_unique<Selector>(topology_, std::move(filter), algorithms, lanes_, scratch_limit_);
    prepare(config);
  } catch (const std::exception& problem) {
    const Failure failure = failure_of(problem);
    recorder_->failed(failure.text);
    bootstrap_->announce_failure(failure.status, "could not make its communicator: " + failure.text);
    close();
    throw failure;
  }
  log(TUTTI_LOG_INFO, name_,
      fmt::format("rank {} of {}\n{}", rank_, nranks_, rank_ == 0 ? topology_.text() : std::string()));
}

// What operations stand on.
void Communicator::prepare(const tutti_comm_config& config) {
  set_wait_policy();
  windows_ = std::vector<Window>(windows_count_);
  for (uint32_t w = 0; w < windows_count_; ++w) windows_[w].execution.place(w * lanes_);
  point_to_point_.place(rank_, &links_, windows_count_ * lanes_, TUTTI_CONTROL_BYTES - (checksums_ ? seal_bytes : 0));
  call_check_.place(rank_, nranks_, checks_calls_, &links_);
  recorder_->enter(TUTTI_FLIGHT_READY);
  bootstrap_->control().answer_roll_calls([recorder = recorder_] { return recorder->report().encode(); });
  threaded_ = (config.flags & TUTTI_COMM_PROGRESS_THREAD) != 0;
  if (threaded_) thread_ = std::thread([this] { progress_thread(); });
}

// What can be said before the ranks have met, for the flight recorder; what is wrong with it is for meet() to tell.
FlightRecorder::Meeting Communicator::meeting_of(const tutti_comm_config& config) const {
  FlightRecorder::Meeting meeting;
  meeting.name = name_;
  std::string where = config.rendezvous ? config.rendezvous : setting("TUTTI_RENDEZVOUS").value_or("");
  if (config.all_gather) where = "the application's all-gather";
  if (config.nranks) {
    meeting.rank = config.rank;
    meeting.nranks = config.nranks;
  }
  Environment environment;
  try {
    const auto lookup = [](const char* name) -> const char* { return std::getenv(name); };
    environment = read_environment(lookup, config.nranks == 0);
    if (config.nranks == 0) {
      meeting.rank = environment.rank;
      meeting.nranks = environment.nranks;
    }
    if (where.empty() || where == "env") where = environment.rendezvous;
    if (where.empty() && !environment.host.empty())
      where = fmt::format("{} port {}", environment.host, environment.port);
  } catch (const Failure&) {
  }
  meeting.place = where.starts_with("id:") ? "a unique id" : where;
  meeting.key =
      hash_text(fmt::format("{}\n{}\n{}\n{}\n{}", where, environment.secret, environment.job, name_, meeting.nranks));
  return meeting;
}

void Communicator::meet(const tutti_comm_config& config, const Succession& succession) {
  Rendezvous rendezvous;
  rendezvous.where = config.rendezvous ? config.rendezvous : setting("TUTTI_RENDEZVOUS").value_or("");
  if (config.nranks) {
    if (config.rank >= config.nranks)
      throw Failure(TUTTI_INVALID_ARGUMENT,
                    fmt::format("tutti_comm_config.rank is {}, expected less than nranks, which is {}", config.rank,
                                config.nranks));
    rendezvous.rank = config.rank;
    rendezvous.nranks = config.nranks;
  }
  rendezvous.newcomers = succession.newcomers;
  rendezvous.hopeless = succession.hopeless;
  rendezvous.joins = (config.flags & TUTTI_COMM_JOIN) != 0;
  rendezvous.all_gather = config.all_gather;
  rendezvous.context = config.all_gather_context;
  rendezvous.log = [this](uint32_t level, const std::string& text) { log(level, name_, text); };
  bootstrap_ = make_bootstrap(rendezvous, std::chrono::nanoseconds(connect_timeout_ns_));
  rank_ = bootstrap_->rank();
  nranks_ = bootstrap_->nranks();
  recorder_->met(rank_, nranks_);
  recorder_->enter(TUTTI_FLIGHT_COMPARING);
}

// Compares with rank 0 what must be equal; returns the algorithms that all ranks have.
std::vector<const tutti_algorithm*> Communicator::agree() {
  Json mine{{"version", tutti_version()},
            {"plugin ABI", TUTTI_ABI_MAJOR},
            {"byte order", std::endian::native == std::endian::little ? "little" : "big"},
            {"name", name_},
            {"windows", windows_count_},
            {"lanes", lanes_},
            {"scratch limit", scratch_limit_},
            {"checksums (TUTTI_CHECKSUM)", checksums_},
            {"checked mode (TUTTI_CHECK)", checks_calls_},
            {"transports (TUTTI_TRANSPORT)", transport_setting_},
            {"algorithms (TUTTI_ALGO)", algorithm_setting_}};
  const std::vector<std::string> compared = [&] {
    std::vector<std::string> keys;
    for (const auto& [key, value] : mine.items()) keys.push_back(key);
    return keys;
  }();
  mine["id"] = random_id();
  mine["algorithms"] = algorithm_versions();
  mine["devices"] = have_devices();
  const std::vector<uint8_t> bytes = Json::to_cbor(mine);
  const auto all = bootstrap_->all_gather({bytes.begin(), bytes.end()}, std::chrono::nanoseconds(connect_timeout_ns_));
  std::vector<Json> ranks;
  try {
    for (const std::string& one : all) ranks.push_back(read_cbor(one));
    for (uint32_t r = 1; r < nranks_; ++r)
      for (const std::string& key : compared)
        if (ranks[r].at(key) != ranks[0].at(key))
          throw Failure(TUTTI_MISMATCH, fmt::format("the ranks disagree about {}: rank 0 has {}, rank {} has {}", key,
                                                    ranks[0].at(key).dump(), r, ranks[r].at(key).dump()));
    id_ = ranks[0].at("id").get<uint64_t>();
    for (const Json& rank : ranks) device_lanes_ |= rank.at("devices").get<bool>();
    recorder_->agreed(id_);
    std::vector<const tutti_algorithm*> common;
    for (const tutti_algorithm* algorithm : list_algorithms()) {
      bool everywhere = true;
      for (uint32_t r = 0; r < nranks_ && everywhere; ++r) {
        const Json& offered = ranks[r].at("algorithms");
        everywhere = offered.contains(algorithm->name);
        if (everywhere && ranks[0].at("algorithms").contains(algorithm->name) &&
            offered.at(algorithm->name) != ranks[0].at("algorithms").at(algorithm->name))
          throw Failure(
              TUTTI_MISMATCH,
              fmt::format("algorithm {} comes from plugin {} on rank 0 and from {} on rank {}", algorithm->name,
                          ranks[0]["algorithms"][algorithm->name].dump(), offered.at(algorithm->name).dump(), r));
      }
      if (everywhere) common.push_back(algorithm);
    }
    return common;
  } catch (const Json::exception& e) {
    throw Failure(TUTTI_MISMATCH,
                  fmt::format("a rank introduced itself in a form that is not understood ({}): do all ranks run "
                              "the same version of Tutti, {}?",
                              e.what(), tutti_version()));
  }
}

void Communicator::open_ports(const TransportChoice& choice) {
  const OpenJob open_job(bootstrap_->secret().empty() ? bootstrap_->address() : "");
  for (const tutti_transport* api : choice.transports) {
    tutti_transport_caps caps{};
    caps.struct_size = sizeof caps;
    const tutti_status able = api->query(api->self, &caps);
    if (able < 0) {
      const std::string why = take_plugin_error();
      if (choice.named || able != TUTTI_NOT_SUPPORTED)
        throw Failure(able, fmt::format("transport {} cannot serve here: {}", api->name, why));
      log(TUTTI_LOG_INFO, name_, fmt::format("transport {} is left out: {}", api->name, why));
      continue;
    }
    if (caps.fragment_bytes < smallest_fragment || caps.receive_depth < 2)
      throw Failure(
          TUTTI_INTERNAL,
          fmt::format(
              "transport {} claims fragment_bytes {} (at least {} is required) and receive_depth {} (at least 2)",
              api->name, caps.fragment_bytes, smallest_fragment, caps.receive_depth));
    if (checksums_) {
      api = sealed(api);
      api->query(api->self, &caps);
    }
    Port& port = ports_.emplace_back();
    port.api = api;
    port.caps = caps;
    port.index = static_cast<uint32_t>(ports_.size() - 1);
    port.domain = Domain::of(api);
    const std::string& secret = bootstrap_->secret();
    const tutti_endpoint_config config{
        sizeof config, rank_, nranks_, lanes_of_link(), name_.c_str(), reinterpret_cast<const uint8_t*>(secret.data()),
        secret.size(), id_};
    if (const tutti_status status = api->open_endpoint(port.domain->handle(), &config, &port.endpoint); status < 0)
      throw Failure(status, fmt::format("{}: cannot open an endpoint: {}", api->name, take_plugin_error()));
    const auto* view = static_cast<const tutti_view*>(api->get_interface(api->self, TUTTI_VIEW_ID));
    const auto* wait = static_cast<const tutti_wait_fd*>(api->get_interface(api->self, TUTTI_WAIT_FD_ID));
    const auto* rails = static_cast<const tutti_rails*>(api->get_interface(api->self, TUTTI_RAILS_ID));
    if (const std::string reason = check_optional(*api, view, wait, rails); !reason.empty())
      throw Failure(TUTTI_NOT_SUPPORTED, reason);
    port.rails = rails;
    port.view = view;
    port.by_region = view && TUTTI_HAS(tutti_view, view, send_region) && TUTTI_HAS(tutti_view, view, released);
    if (wait && wait->get_fd(port.endpoint, &port.fd) == TUTTI_OK) port.wait_fd = wait;
  }
}

void Communicator::describe_ranks() {
  RankDescription mine;
  mine.host = host_key();
  static const uint64_t instance = random_id();
  mine.process = static_cast<uint64_t>(getpid());
  mine.instance = instance;
  mine.cores = usable_cores();
  for (const Port& port : ports_) {
    TransportOffer offer;
    offer.name = port.api->name;
    offer.version = version_of_transport(offer.name);
    offer.reach = port.caps.reach;
    offer.fragment_bytes = port.caps.fragment_bytes;
    offer.latency_ns = port.caps.latency_ns;
    offer.bandwidth = port.caps.bandwidth;
    char address[4096];
    uint64_t bytes = sizeof address;
    if (const tutti_status status = port.api->get_address(port.endpoint, address, &bytes); status < 0)
      throw Failure(status, fmt::format("{}: get_address: {}", port.api->name, take_plugin_error()));
    if (bytes > sizeof address)
      throw Failure(TUTTI_INTERNAL, fmt::format("{}: get_address claims {} bytes, where {} were offered",
                                                port.api->name, bytes, sizeof address));
    offer.address.assign(address, bytes);
    mine.transports.push_back(std::move(offer));
  }
  const auto all = bootstrap_->all_gather(encode(mine), std::chrono::nanoseconds(connect_timeout_ns_));
  std::vector<RankDescription> ranks;
  for (uint32_t r = 0; r < nranks_; ++r) ranks.push_back(decode_rank(all[r], r));
  topology_ = Topology(std::move(ranks));
}

void Communicator::choose_links() {
  // Every rank looks at every pair, so that all come to the same end.
  for (uint32_t a = 0; a < nranks_; ++a)
    for (uint32_t b = a + 1; b < nranks_; ++b) {
      std::string why;
      const TransportOffer* offer = topology_.transport_of(a, b);
      if (!offer) {
        topology_.transport_of(a, b, &why);
        throw Failure(
            TUTTI_NOT_SUPPORTED,
            why + (transport_setting_.empty() ? "" : fmt::format(" (TUTTI_TRANSPORT=\"{}\")", transport_setting_)));
      }
      if (topology_.rank(a).offer(offer->name)->version != topology_.rank(b).offer(offer->name)->version)
        throw Failure(TUTTI_MISMATCH, fmt::format("transport {} is {} on rank {} and {} on rank {}", offer->name,
                                                  topology_.rank(a).offer(offer->name)->version, a,
                                                  topology_.rank(b).offer(offer->name)->version, b));
    }
  links_.resize(nranks_);
  for (uint32_t peer = 0; peer < nranks_; ++peer) {
    if (peer == rank_) continue;
    const std::string name = topology_.transport_of(rank_, peer)->name;
    const auto port = std::find_if(ports_.begin(), ports_.end(), [&](const Port& p) { return name == p.api->name; });
    Link& link = links_[peer];
    link.port = &*port;
    link.view = port->view;
    link.peer = peer;
    link.fragment = topology_.fragment_of(rank_, peer);
    link.address = topology_.rank(peer).offer(name)->address;
  }
}

void Communicator::set_wait_policy() {
  if (topology_.ranks_on_host_of(rank_) > topology_.rank(rank_).cores) policy_ = {16, 400};
}

// The board by which ranks of one host settle that they read each other's buffers (direct_board.hpp). All come to the
// same answer: there is one, or there is none.
void Communicator::share_board() {
  if (nranks_ == 1 || !device_lanes_) return;
  if (!transport_setting_.empty()) {
    no_board_ = fmt::format("TUTTI_TRANSPORT=\"{}\" carries everything", transport_setting_);
    return;
  }
  if (topology_.hosts() > 1) {
    no_board_ = "the communicator's ranks are on several hosts";
    return;
  }
  if (nranks_ > DirectBoard::most_ranks) {
    no_board_ = fmt::format("the communicator has {} ranks, at most {} are served", nranks_, DirectBoard::most_ranks);
    return;
  }
  bool apart = false;
  for (uint32_t r = 1; r < nranks_; ++r) apart |= !topology_.same_process(0, r);
  if (!apart) return;
  try {
    receive_board();
  } catch (const Failure& failure) {
    no_board_ = failure.text;
  }
  const auto answers =
      bootstrap_->all_gather(board_ ? "" : "not " + no_board_, std::chrono::nanoseconds(connect_timeout_ns_));
  for (uint32_t r = 0; r < nranks_; ++r) {
    if (answers[r].empty()) continue;
    board_.reset();
    no_board_ = fmt::format("rank {} has no board: {}", r, answers[r].substr(4));
    return;
  }
}

// Rank 0 makes it and hands it to the others. Throws Failure.
void Communicator::receive_board() {
  const uint64_t limit = clock_ns() + connect_timeout_ns_;
  const auto reach = [&](uint32_t peer) {
    if (!exchange_) throw Failure(TUTTI_NOT_SUPPORTED, "no device is found there");
    if (!exchange_->reaches(peer))
      throw Failure(TUTTI_NOT_SUPPORTED,
                    fmt::format("rank {} is not reached by a Unix socket: it is in another network namespace, or has "
                                "ended, or found no device",
                                peer));
  };
  ChannelNotice notice;
  notice.kind = ChannelNotice::board;
  notice.from = rank_;
  Descriptor file;
  if (rank_ == 0) {
    std::string why;
    try {
      file = DirectBoard::make(nranks_, lanes_);
      notice.able = 1;
    } catch (const Failure& failure) {
      why = failure.text;
      why.copy(notice.why, sizeof notice.why - 1);
    }
    // Whoever can be reached is told, so that nobody waits.
    for (uint32_t r = 1; r < nranks_ && exchange_; ++r)
      while (exchange_->reaches(r) && clock_ns() < limit &&
             !exchange_->send(r, notice, file ? std::vector<int>{file.get()} : std::vector<int>{}))
        sched_yield();
    if (!file) throw Failure(TUTTI_NO_RESOURCES, why);
    for (uint32_t r = 1; r < nranks_; ++r) reach(r);
  } else {
    reach(0);
    std::optional<MemoryExchange::Received> received;
    while (!(received = exchange_->receive())) {
      if (clock_ns() > limit || bootstrap_->control().failed())
        throw Failure(TUTTI_TIMEOUT, "rank 0 has not handed it out");
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    if (received->notice.kind != ChannelNotice::board || !received->notice.able || received->descriptors.empty())
      throw Failure(TUTTI_NOT_SUPPORTED, fmt::format("rank 0: {}", received->notice.why));
    file = std::move(received->descriptors[0]);
  }
  board_ = std::make_shared<DirectBoard>(std::move(file), rank_, nranks_, lanes_);
}

// In checked mode destroying is a call like others: who still wants a collective is told that others do not.
void Communicator::check_end() {
  Call call;
  call.sequence = next_sequence_;
  const uint64_t limit = clock_ns() + connect_timeout_ns_;
  uint32_t fruitless = 0;
  try {
    while (!breaking_ && !call_check_.check(call, [this](Link& link) { return connect(link); }) && clock_ns() < limit) {
      progress_ports(true);
      pause(fruitless);
    }
  } catch (const std::exception& problem) {
    break_down(problem);
  }
}

// All ranks meet once more, so that nobody closes a connection over which another still waits for bytes. Meanwhile a
// second thread keeps the transports going, since what this rank has sent may still be on its way out.
void Communicator::settle() {
  std::atomic<bool> met{false};
  std::thread pump;
  std::optional<Failure> why;
  try {
    pump = std::thread([&] {
      while (!met.load(std::memory_order_acquire)) {
        for (Port& port : ports_) progress_port(port, *this);
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
    bootstrap_->all_gather("end", std::chrono::nanoseconds(connect_timeout_ns_));
    bootstrap_->leave_together();
  } catch (const std::exception& problem) {
    why = failure_of(problem);
  }
  met.store(true, std::memory_order_release);
  if (pump.joinable()) pump.join();
  if (why) {
    const std::string text = fmt::format("{}; seen by rank {} in {}: destroy", why->text, rank_, name_);
    log(TUTTI_LOG_WARN, name_, text);
    bootstrap_->announce_failure(TUTTI_ABORTED, "destroyed the communicator without the others: " + why->text);
    broken_text_ = text;
    broken_status_.store(why->status, std::memory_order_release);
    breaking_ = true;
    recorder_->failed(text);
    return;
  }
  // What others told of their calls before they came here has arrived. That they leave now is no loss.
  for (Port& port : ports_) progress_port(port, *this);
  if (lost_status_ == TUTTI_MISMATCH) break_down(lost_status_, lost_peer_, lost_reason_);
}

void Communicator::close() {
  for (Port& port : ports_)
    if (port.endpoint) port.api->close_endpoint(port.endpoint);
  links_.clear();
  ports_.clear();
}

tutti_status Communicator::end() {
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true, std::memory_order_relaxed);
  }
  work_.notify_one();
  if (thread_.joinable()) thread_.join();
  ActiveEngines::process().remove(this);  // from here on this thread is alone
  if (streams_) {
    await_streams([this] { return streams_->operations() == 0; });
    streams_->end();
  }
  if (async_error() == TUTTI_OK && unfinished_)
    break_down(TUTTI_ABORTED, rank_,
               fmt::format("destroyed the communicator {} with {} operations pending", name_, unfinished_));
  recorder_->enter(async_error() == TUTTI_OK ? TUTTI_FLIGHT_ENDING : TUTTI_FLIGHT_FAILED);
  if (async_error() == TUTTI_OK && call_check_.checked()) check_end();
  if (async_error() == TUTTI_OK && nranks_ > 1)
    settle();
  else if (!breaking_ && bootstrap_->control().failed())  // a loss that no call has met yet
    break_down(*bootstrap_->control().first_cause());
  const bool broken = broken_status_.load(std::memory_order_acquire) < 0;
  if (!broken) recorder_->ended();
  return broken ? remember(async_error(), broken_text_) : tutti_status{TUTTI_OK};
}

Communicator::~Communicator() {
  bootstrap_->control().answer_roll_calls(nullptr);
  if (board_ && !streams_) board_->close();
  close();  // before the windows: what a transport has not given back must still be there
  alive_->store(false, std::memory_order_release);
}

}  // namespace tutti::core
