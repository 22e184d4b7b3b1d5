// SPDX-License-Identifier: Apache-2.0
//
// A transport's capabilities, its addresses, and structs of other lengths.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "contract_case.hpp"

namespace tutti::conformance::contract {
namespace {

void query_repeats(Bench& bench) {
  const tutti_transport_caps first = bench.caps();
  const tutti_transport* t = bench.transport();
  const OpenDomain one(bench), other(bench);
  for (tutti_domain* domain : {one.handle, one.handle, other.handle, one.handle}) {
    tutti_transport_caps again{};
    again.struct_size = sizeof again;
    call("query", true, [&] { return t->query(domain, &again); });
    require(std::memcmp(&first, &again, sizeof first) == 0, "T-1",
            "query gave other values the second time, of a domain opened alike");
  }
}

// An output struct of every length that a caller compiled with older or newer headers may have.
void query_keeps_to_its_room(Bench& bench) {
  const tutti_transport_caps whole = bench.caps();
  const tutti_transport* t = bench.transport();
  const OpenDomain domain(bench);
  constexpr uint32_t least = tutti_mandatory<tutti_transport_caps>::bytes;
  for (const uint32_t room : {8u, 16u, 32u, least - 8, least, uint32_t{sizeof whole}, uint32_t{sizeof whole} + 32}) {
    alignas(8) uint8_t bytes[sizeof whole + 64];
    std::memset(bytes, 0xA7, sizeof bytes);
    std::memcpy(bytes, &room, sizeof room);
    const tutti_status status =
        call("query", true, [&] { return t->query(domain.handle, reinterpret_cast<tutti_transport_caps*>(bytes)); });
    for (size_t i = room < least ? sizeof room : room; i < sizeof bytes; ++i)
      require(bytes[i] == 0xA7, "E-9", "query wrote byte {} of a tutti_transport_caps that has room for {}", i, room);
    require(status == (room < least ? TUTTI_INVALID_ARGUMENT : TUTTI_OK), "E-9",
            "query into a tutti_transport_caps with room for {} bytes, of which {} are mandatory, returned {}: {}",
            room, least, status_text(status), last_error());
    if (room < least) continue;
    uint32_t filled = 0;
    std::memcpy(&filled, bytes, sizeof filled);
    require(filled >= least && filled <= room, "E-9", "query into {} bytes says that it filled {}", room, filled);
    const size_t known = std::min<size_t>({filled, room, sizeof whole});
    require(std::memcmp(bytes + 4, reinterpret_cast<const uint8_t*>(&whole) + 4, known - 4) == 0, "E-9",
            "query into {} bytes gave other values than into {}", room, sizeof whole);
  }
}

void longer_config(Bench& bench) {
  const tutti_transport* t = bench.transport();
  bench.caps();
  struct Longer {
    tutti_endpoint_config config;
    uint64_t unknown[2];
  };
  const OpenDomain domain(bench);
  const tutti_pair_messages pair{sizeof pair, 0, nullptr, [](void*, uint32_t, const void*, uint64_t) -> tutti_status {
                                   return TUTTI_PEER_FAILED;
                                 }};
  for (const uint64_t tail : {0, 1}) {
    Longer longer{};
    longer.config.struct_size = sizeof longer;
    longer.config.nranks = 2;
    longer.config.lanes = 1;
    longer.config.name = "longer";
    longer.config.communicator_id = bench.seed;
    longer.config.pair = &pair;
    longer.unknown[1] = tail;
    tutti_endpoint* endpoint = nullptr;
    const tutti_status status =
        call("open_endpoint", true, [&] { return t->open_endpoint(domain.handle, &longer.config, &endpoint); });
    if (tail == 0)
      require(
          status == TUTTI_OK, "E-8",
          "open_endpoint with a config that is 16 zero bytes longer than this revision's returned {}: {}; a tail of "
          "zeros asks for nothing new",
          status_text(status), last_error());
    else
      require(
          status == TUTTI_NOT_SUPPORTED, "E-8",
          "open_endpoint with a config whose unknown tail is not zero returned {}, expected TUTTI_NOT_SUPPORTED: it "
          "asks for something that the plugin does not know",
          status_text(status));
    if (endpoint) plain_call("close_endpoint", true, [&] { t->close_endpoint(endpoint); });
  }
}

void unknown_interfaces(Bench& bench) {
  const tutti_transport* t = bench.transport();
  for (const char* id : {"tutti.view/999", "tutti.no_such_thing/1", "", "tutti.transport/1 "}) {
    const void* table = plain_call("get_interface", true, [&] { return t->get_interface(t->self, id); });
    require(!table, "E-3", "transport {}: get_interface(\"{}\") is not NULL", t->name, id);
  }
  for (const char* id : {TUTTI_VIEW_ID, TUTTI_WAIT_FD_ID, TUTTI_MAPPED_ID, TUTTI_RAILS_ID}) {
    const void* first = plain_call("get_interface", true, [&] { return t->get_interface(t->self, id); });
    const void* again = plain_call("get_interface", true, [&] { return t->get_interface(t->self, id); });
    require(first == again, "E-3", "transport {}: get_interface(\"{}\") gave another table the second time", t->name,
            id);
  }
  for (const auto judge_one : {+[](Bench& b) { b.view(); }, +[](Bench& b) { b.wait_fd(); },
                               +[](Bench& b) { b.mapped(); }, +[](Bench& b) { b.rails(); }}) {
    try {
      judge_one(bench);
    } catch (const NotOffered&) {
    }
  }
}

// The least time, in seconds, in which `n` messages of `bytes` bytes pass, of many tries.
double best_time(Stage& stage, uint64_t bytes, uint32_t n, uint32_t tries) {
  using Clock = std::chrono::steady_clock;
  std::vector<uint8_t> from(bytes, 1), to(bytes);
  double best = 1e9;
  for (uint32_t k = 0; k < tries; ++k) {
    const auto begin = Clock::now();
    uint32_t sent = 0, received = 0;
    stage.until(
        [&] {
          while (received < n && stage[1].post(stage[1].receive(0, 0, to.data(), bytes))) ++received;
          while (sent < n && stage[0].post(stage[0].send(1, 0, from.data(), bytes))) ++sent;
          return sent == n && received == n && stage[0].pending() + stage[1].pending() == 0;
        },
        "T-21", "messages on one lane do not arrive");
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

// What query estimates beside the best of many tries. One thread drives both ends, which costs something, but not the
// factor of 300 that is allowed here; and a slow or busy machine only makes the best try one of its better ones.
void estimates(Bench& bench) {
  constexpr double most = 300;
  const tutti_transport_caps& caps = bench.caps();
  Stage stage(bench, {.lanes = 1});
  const double latency = best_time(stage, 8, 1, 2000) * 1e9;
  require(latency < most * static_cast<double>(caps.latency_ns), "T-1",
          "latency_ns is {}, and the fastest of 2000 messages of 8 bytes takes {:.0f} ns: the core chooses transports "
          "and algorithms by this estimate",
          caps.latency_ns, latency);
  const uint64_t bytes = std::min<uint64_t>(caps.fragment_bytes, uint64_t{1} << 18);
  const double bandwidth = static_cast<double>(4 * bytes) / best_time(stage, bytes, 4, 30);
  require(bandwidth * most > static_cast<double>(caps.bandwidth), "T-1",
          "bandwidth is {} bytes per second, and the fastest of 30 times 4 messages of {} bytes reaches {:.3g}: the "
          "core chooses transports and algorithms by this estimate",
          caps.bandwidth, bytes, bandwidth);
}

}  // namespace

std::vector<ContractCase> description_cases() {
  return {
      {"query-repeats", "query gives legal values, the same each time", {"T-1", "E-10"}, 1, query_repeats},
      {"query-room", "query keeps to the room that it is given", {"T-1", "E-9"}, 1, query_keeps_to_its_room},
      {"interface-ids", "get_interface knows its own ids only", {"E-3", "E-4"}, 1, unknown_interfaces},
      {"longer-config",
       "a longer tutti_endpoint_config is taken if its tail is zero",
       {"E-8", "T-3"},
       2,
       longer_config},
      {"estimates", "latency_ns and bandwidth beside what is measured", {"T-1", "T-20", "T-21"}, 30, estimates},
  };
}

}  // namespace tutti::conformance::contract
