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
#include <random>

#include "bootstrap/failure.hpp"
#include "engine/communicator.hpp"
#include "engine/fork_generation.hpp"
#include "engine/host.hpp"
#include "engine/registry.hpp"
#include "engine/settings.hpp"

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

std::vector<std::string> names_of(const std::string& list) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
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

Communicator::Communicator(const tutti_comm_config& config) {
  if (config.flags & ~uint32_t{TUTTI_COMM_PROGRESS_THREAD})
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
  fork_generation_ = fork_generation();
  if (const std::string error = required_plugin_error(); !error.empty()) throw Failure(TUTTI_NOT_FOUND, error);
  AlgorithmFilter filter(algorithm_setting_);

  meet(config);
  try {
    uint64_t id = 0;
    const auto algorithms = agree(&id);
    if (nranks_ > 1) open_ports(id);
    describe_ranks();
    choose_links();
    selector_ = std::make_unique<Selector>(topology_, std::move(filter), algorithms, lanes_, scratch_limit_);
  } catch (const Failure& failure) {
    bootstrap_->announce_failure(failure.text);
    close();
    throw;
  } catch (...) {
    close();
    throw;
  }
  set_wait_policy();
  windows_ = std::vector<Window>(windows_count_);
  for (uint32_t w = 0; w < windows_count_; ++w) windows_[w].execution.place(w * lanes_);
  point_to_point_.place(&links_, windows_count_ * lanes_);
  threaded_ = (config.flags & TUTTI_COMM_PROGRESS_THREAD) != 0;
  if (threaded_) thread_ = std::thread([this] { progress_thread(); });
  log(TUTTI_LOG_INFO, name_,
      fmt::format("rank {} of {}\n{}", rank_, nranks_, rank_ == 0 ? topology_.text() : std::string()));
}

void Communicator::meet(const tutti_comm_config& config) {
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
  rendezvous.all_gather = config.all_gather;
  rendezvous.context = config.all_gather_context;
  rendezvous.log = [this](uint32_t level, const std::string& text) { log(level, name_, text); };
  bootstrap_ = make_bootstrap(rendezvous, std::chrono::nanoseconds(connect_timeout_ns_));
  rank_ = bootstrap_->rank();
  nranks_ = bootstrap_->nranks();
}

// Compares with rank 0 what must be equal; returns the algorithms that all ranks have.
std::vector<const tutti_algorithm*> Communicator::agree(uint64_t* id) {
  Json mine{{"version", tutti_version()},
            {"plugin ABI", TUTTI_ABI_MAJOR},
            {"byte order", std::endian::native == std::endian::little ? "little" : "big"},
            {"name", name_},
            {"windows", windows_count_},
            {"lanes", lanes_},
            {"scratch limit", scratch_limit_},
            {"transports (TUTTI_TRANSPORT)", transport_setting_},
            {"algorithms (TUTTI_ALGO)", algorithm_setting_}};
  const std::vector<std::string> compared = [&] {
    std::vector<std::string> keys;
    for (const auto& [key, value] : mine.items()) keys.push_back(key);
    return keys;
  }();
  mine["id"] = random_id();
  mine["algorithms"] = algorithm_versions();
  const std::vector<uint8_t> bytes = Json::to_cbor(mine);
  const auto all = bootstrap_->all_gather({bytes.begin(), bytes.end()}, std::chrono::nanoseconds(connect_timeout_ns_));
  std::vector<Json> ranks;
  try {
    for (const std::string& one : all) ranks.push_back(Json::from_cbor(one));
    for (uint32_t r = 1; r < nranks_; ++r)
      for (const std::string& key : compared)
        if (ranks[r].at(key) != ranks[0].at(key))
          throw Failure(TUTTI_MISMATCH, fmt::format("the ranks disagree about {}: rank 0 has {}, rank {} has {}", key,
                                                    ranks[0].at(key).dump(), r, ranks[r].at(key).dump()));
    *id = ranks[0].at("id").get<uint64_t>();
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

void Communicator::open_ports(uint64_t id) {
  std::vector<const tutti_transport*> wanted = list_transports();
  const std::vector<std::string> named = names_of(transport_setting_);
  if (!named.empty()) {
    wanted.clear();
    for (const std::string& name : named) {
      std::string error;
      const tutti_transport* transport = find_transport(name, &error);
      if (!transport)
        throw Failure(TUTTI_NOT_FOUND, fmt::format("TUTTI_TRANSPORT=\"{}\": {}", transport_setting_, error));
      wanted.push_back(transport);
    }
  }
  for (const tutti_transport* api : wanted) {
    tutti_transport_caps caps{};
    caps.struct_size = sizeof caps;
    const tutti_status able = api->query(api->self, &caps);
    if (able < 0) {
      const std::string why = take_plugin_error();
      if (!named.empty() || able != TUTTI_NOT_SUPPORTED)
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
    Port& port = ports_.emplace_back();
    port.api = api;
    port.caps = caps;
    port.index = static_cast<uint32_t>(ports_.size() - 1);
    port.domain = Domain::of(api);
    const std::string& secret = bootstrap_->secret();
    const tutti_endpoint_config config{sizeof config, rank_,
                                       nranks_,       windows_count_ * lanes_ + 1,
                                       name_.c_str(), reinterpret_cast<const uint8_t*>(secret.data()),
                                       secret.size(), id};
    if (const tutti_status status = api->open_endpoint(port.domain->handle(), &config, &port.endpoint); status < 0)
      throw Failure(status, fmt::format("{}: cannot open an endpoint: {}", api->name, take_plugin_error()));
    const auto* view = static_cast<const tutti_view*>(api->get_interface(api->self, TUTTI_VIEW_ID));
    const auto* wait = static_cast<const tutti_wait_fd*>(api->get_interface(api->self, TUTTI_WAIT_FD_ID));
    if ((view && view->stamp != TUTTI_VIEW_STAMP) || (wait && wait->stamp != TUTTI_WAIT_FD_STAMP))
      throw Failure(TUTTI_NOT_SUPPORTED,
                    fmt::format("transport {}: its view/1 or wait_fd/1 was compiled with other headers", api->name));
    if ((view && (view->struct_size < offsetof(tutti_view, send_region) || !view->try_receive || !view->release ||
                  !view->try_reserve || !view->commit)) ||
        (wait && (wait->struct_size < sizeof(tutti_wait_fd) || !wait->get_fd || !wait->arm || !wait->disarm)))
      throw Failure(TUTTI_INTERNAL,
                    fmt::format("transport {}: its view/1 or wait_fd/1 lacks a mandatory function", api->name));
    port.view = view;
    port.by_region = view && TUTTI_HAS(tutti_view, view, send_region) && TUTTI_HAS(tutti_view, view, released);
    if (wait && wait->get_fd(port.endpoint, &port.fd) == TUTTI_OK) port.wait_fd = wait;
  }
}

void Communicator::describe_ranks() {
  RankDescription mine;
  mine.host = host_key();
  mine.process = static_cast<uint64_t>(getpid());
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

// All ranks meet once more, so that nobody closes a connection over which another still waits for bytes. Meanwhile a
// second thread keeps the transports going, since what this rank has sent may still be on its way out.
void Communicator::settle() {
  std::atomic<bool> met{false};
  std::thread pump([&] {
    while (!met.load(std::memory_order_acquire)) {
      for (Port& port : ports_) progress_port(port, *this);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  try {
    bootstrap_->all_gather("end", std::chrono::nanoseconds(connect_timeout_ns_));
  } catch (const Failure& failure) {
    const std::string text = fmt::format("rank {}: {}: not all ranks came to the end: {}", rank_, name_, failure.text);
    log(TUTTI_LOG_WARN, name_, text);
    bootstrap_->announce_failure(fmt::format("rank {} has destroyed the communicator {}", rank_, name_));
    broken_text_ = text;
    broken_status_.store(failure.status, std::memory_order_release);
    breaking_ = true;
  }
  met.store(true, std::memory_order_release);
  pump.join();
}

void Communicator::close() {
  for (Port& port : ports_)
    if (port.endpoint) port.api->close_endpoint(port.endpoint);
  links_.clear();
  ports_.clear();
}

tutti_status Communicator::end() {
  stop_.store(true, std::memory_order_relaxed);
  if (thread_.joinable()) thread_.join();
  ActiveEngines::process().remove(this);  // from here on this thread is alone
  if (async_error() == TUTTI_OK && unfinished_)
    break_down(TUTTI_ABORTED,
               fmt::format("rank {}: {}: destroyed with {} operations pending", rank_, name_, unfinished_), true);
  if (async_error() == TUTTI_OK && nranks_ > 1) settle();
  return async_error();
}

Communicator::~Communicator() {
  close();  // before the windows: what a transport has not given back must still be there
  alive_->store(false, std::memory_order_release);
}

}  // namespace tutti::core
