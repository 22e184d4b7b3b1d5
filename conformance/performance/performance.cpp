// SPDX-License-Identifier: Apache-2.0
#include "performance/performance.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <tutti/tutti.hpp>

#include "filters.hpp"
#include "matrix/area.hpp"
#include "matrix/mix.hpp"
#include "performance/figures.hpp"
#include "performance/yardstick.hpp"

namespace tutti::conformance {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t nranks = 2;
constexpr uint64_t large = 4 << 20;
// One round of each in turns, so that what disturbs the one disturbs the other.
constexpr int rounds = 15, exchanges_a_round = 16;
// Registering memory is worth its while, or at least costs nothing.
constexpr double registered_far = 2;

enum class Subject { latency, bandwidth, registered };
constexpr const char* subjects[] = {"latency", "bandwidth", "registered"};

tutti_transport_caps caps_of(const std::string& name) {
  std::string error;
  const tutti_transport* transport = find_transport(name, &error);
  if (!transport) throw std::runtime_error(error);
  tutti_transport_caps caps{};
  caps.struct_size = sizeof caps;
  if (query_transport(*transport, &caps) < 0) throw std::runtime_error(name + ": " + take_plugin_error());
  return caps;
}

Communicator meet(const Mix& mix, const std::string& folder, uint32_t rank) {
  const std::string rendezvous = (mix.threads ? "local:" : "file:") + folder, transports = mix.setting();
  tutti_comm_config config{};
  config.struct_size = sizeof config;
  config.name = "performance";
  config.rendezvous = rendezvous.c_str();
  config.rank = rank;
  config.nranks = nranks;
  config.transports = transports.c_str();
  return Communicator(config);
}

// Seconds of one all_reduce of 8 bytes, of several.
double exchange(const Communicator& comm) {
  int64_t value = 1;
  const auto begin = Clock::now();
  for (int i = 0; i < exchanges_a_round; ++i) comm.all_reduce<int64_t>({&value, 1}, {&value, 1}, Op::max);
  return std::chrono::duration<double>(Clock::now() - begin).count() / exchanges_a_round;
}

// Seconds of bringing what is in the memory to the other rank, of there and back: the first to start ends last.
double carry(const Communicator& comm, const Area& area) {
  const std::span<char> data(area.data(), area.bytes());
  const auto begin = Clock::now();
  comm.broadcast<char>(data, 0);
  comm.broadcast<char>(data, 1);
  return std::chrono::duration<double>(Clock::now() - begin).count() / 2;
}

Figures measure(Subject subject, const Mix& mix, const Communicator& comm, const std::string& folder, uint32_t rank) {
  const tutti_transport_caps caps = caps_of(mix.name);
  const double latency = static_cast<double>(caps.latency_ns) * 1e-9;
  const std::unique_ptr<Yardstick> yardstick =
      caps.reach == TUTTI_REACH_NETWORK ? network_yardstick(folder, rank) : host_yardstick(folder, rank);
  const Area ordinary(Memory::heap, large, 0), registered(Memory::alloc, large, 0);
  Figures f;
  if (subject == Subject::latency) {
    f.what = "all_reduce of 8 bytes";
    f.yardstick = yardstick->exchange_name();
    f.idle = yardstick->idle_exchange();
    f.claim = latency;
  } else {
    f.bytes = large;
    f.what = subject == Subject::bandwidth ? "4 MiB one way" : "4 MiB one way of registered memory";
    f.yardstick = subject == Subject::bandwidth ? yardstick->carry_name() : "ordinary memory";
    if (subject == Subject::registered)
      f.far = registered_far;
    else if (caps.bandwidth > 0)
      f.claim = latency + static_cast<double>(large) / static_cast<double>(caps.bandwidth);
  }
  const auto own = [&] {
    return subject == Subject::latency ? exchange(comm)
                                       : carry(comm, subject == Subject::registered ? registered : ordinary);
  };
  const auto limit = [&] {
    return subject == Subject::latency     ? yardstick->exchange(exchanges_a_round)
           : subject == Subject::bandwidth ? yardstick->carry(large)
                                           : carry(comm, ordinary);
  };
  own(), limit();  // plans are made, pages are touched
  for (int round = 0; round < rounds; ++round) {
    comm.barrier();
    f.own.push_back(own());
    comm.barrier();
    f.limit.push_back(limit());
  }
  return f;
}

// At one rank; rank 0 judges.
Outcome perform(Subject subject, const Mix& mix, const Place& place, uint32_t rank, Attestation& attestation) {
  const Communicator comm = meet(mix, place.folder, rank);
  const Figures figures = measure(subject, mix, comm, place.folder, rank);
  for (const tutti_link_traffic& row : comm.traffic()) {
    attestation.traffic.push_back({row.transport, rank, row.peer, row.sent_bytes, row.received_bytes});
    if (row.transport != mix.name)
      return Outcome::fail(fmt::format("attestation: {} was asked for, but {} carried bytes", mix.name, row.transport));
  }
  if (rank != 0) return Outcome::pass();
  if (const std::string slow = far_below(figures); !slow.empty()) return Outcome::warning("performance: " + slow);
  Outcome outcome = Outcome::pass();
  const std::string busy = not_judged(figures);
  outcome.message = in_words(figures) + (busy.empty() ? "" : "; " + busy);
  return outcome;
}

Outcome run(Subject subject, const Mix& mix, const Place& place) {
  if (!mix.threads) return perform(subject, mix, place, place.rank, place.attestation);
  Outcome outcomes[nranks];
  Attestation attestations[nranks];
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < nranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        outcomes[rank] = perform(subject, mix, place, rank, attestations[rank]);
      } catch (const std::exception& e) {
        outcomes[rank] = Outcome::fail(e.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const Attestation& one : attestations)
    place.attestation.traffic.insert(place.attestation.traffic.end(), one.traffic.begin(), one.traffic.end());
  return is_bad(outcomes[1].verdict) ? outcomes[1] : outcomes[0];
}

Case case_of(Subject subject, const Mix& mix) {
  const char* name = subjects[static_cast<size_t>(subject)];
  Case one;
  one.id = fmt::format("performance/{}/{}", mix.name, name);
  one.estimate_ms = 600;
  one.deadline_ms = 120'000;
  one.processes = mix.threads ? 1 : nranks;
  one.run = [subject, mix](const Place& place) { return run(subject, mix, place); };
  one.axes = {{"transport", mix.name}, {"performance", name}};
  return one;
}

// Mixes have no yardstick; what cannot serve is told by the matrix.
void list(const Selection& selection, std::vector<Case>& cases) {
  if (selection.level == Level::smoke || !selection.algorithms.empty() || !selection.collectives.empty() ||
      !selection.types.empty() || !selection.ranks.empty())
    return;
  for (const Mix& mix : select_mixes(selection.transports))
    if (mix.transports.size() == 1 && mix.unusable.empty() && !mix.mapped)
      for (const Subject subject : {Subject::latency, Subject::bandwidth, Subject::registered})
        cases.push_back(case_of(subject, mix));
}

std::optional<Case> find(const std::string& id) {
  for (const Subject subject : {Subject::latency, Subject::bandwidth, Subject::registered}) {
    const std::string front = "performance/", back = std::string("/") + subjects[static_cast<size_t>(subject)];
    if (!id.starts_with(front) || !id.ends_with(back) || id.size() <= front.size() + back.size()) continue;
    const Mix mix = make_mix(id.substr(front.size(), id.size() - front.size() - back.size()));
    if (mix.transports.size() == 1 && mix.unusable.empty() && !mix.mapped) return case_of(subject, mix);
  }
  return std::nullopt;
}

}  // namespace

Suite performance_suite() {
  return {"performance", "every transport beside what the machine allows and beside what it claims", list, find};
}

}  // namespace tutti::conformance
