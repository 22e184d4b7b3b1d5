// SPDX-License-Identifier: Apache-2.0
//
// mapped/1: memory that both ends of a link address in place, with a device that the suite finds beside the transport.
#include <signal.h>

#include <atomic>
#include <cstring>
#include <functional>

#include "contract_case.hpp"
#include "device_station.hpp"
#include "family.hpp"

namespace tutti::conformance::contract {
namespace {

constexpr uint64_t host_bytes = 5000, device_bytes = 70'000, inside = 1000;

// Where one end has a share.
struct End {
  tutti_share* share = nullptr;
  tutti_mapping* mapping = nullptr;
  tutti_mapped_place at{sizeof at};
  uint8_t* host() const { return static_cast<uint8_t*>(at.host); }
  uint32_t* device_flag(uint64_t k) const {
    return reinterpret_cast<uint32_t*>(static_cast<uint8_t*>(at.device) + 64 * k);
  }
  std::atomic_ref<uint32_t> host_flag(uint64_t k) const {
    return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(host() + 64 * k));
  }
};

// A plugin beside the transport whose device works here and exports memory.
Bench find_device(const Bench& bench) {
  for (const Companion& companion : companions()) {
    Bench found;
    found.path = companion.path;
    found.name = companion.id;
    found.patience = bench.patience;
    const auto* table = static_cast<const tutti_device*>(plain_call("init", true, [&] {
      return test_host()->find_interface(test_host()->self, companion.id.c_str(), TUTTI_DEVICE_ID);
    }));
    if (!table || companion.id != table->name) continue;
    try {
      const DeviceUnderTest device = device_under_test(found);
      if (device.memory->export_memory && device.caps.flags & TUTTI_DEVICE_EXPORTS) return found;
    } catch (const NotOffered&) {
    }
  }
  throw CannotRun{"no device plugin beside it exports memory"};
}

// The functions of mapped/1, and a device.
class Mapper {
 public:
  explicit Mapper(Bench& bench) : table_(bench.mapped()), device_bench_(find_device(bench)), station(device_bench_) {}
  tutti_mapped_device on(uint32_t number = 0) const {
    return {sizeof(tutti_mapped_device), station.device.caps.memory_kind, number, 0};
  }
  // address NULL: host memory.
  tutti_status try_share(Rank& rank, uint64_t tag, void* address, uint64_t bytes, End& end,
                         const tutti_mapped_device& device) {
    const tutti_share_config config{sizeof config, 0, tag, address, bytes, &device};
    return call("share", false,
                [&] { return table_->share(rank.links[1 - rank.options.rank], &config, &end.share, &end.at); });
  }
  void share(Rank& rank, uint64_t tag, void* address, uint64_t bytes, End& end) {
    const tutti_status status = try_share(rank, tag, address, bytes, end, on());
    require(status == TUTTI_OK && end.share, "M-1", "share of {} bytes of {} memory as tag {} returned {}: {}", bytes,
            address ? "device" : "host", tag, status_text(status), last_error());
  }
  tutti_status try_open(Rank& rank, uint64_t tag, End& end, const tutti_mapped_device& device) {
    return call("open_mapping", false, [&] {
      return table_->open_mapping(rank.links[1 - rank.options.rank], tag, &device, &end.mapping, &end.at);
    });
  }
  void open(Stage& stage, Rank& rank, uint64_t tag, End& end) {
    tutti_status status = TUTTI_AGAIN;
    stage.until([&] { return (status = try_open(rank, tag, end, on())) != TUTTI_AGAIN; }, "M-2",
                fmt::format("open_mapping goes on returning TUTTI_AGAIN for tag {}, which the peer shares", tag));
    require(status == TUTTI_OK && end.mapping, "M-2", "open_mapping of tag {} returned {}: {}", tag,
            status_text(status), last_error());
  }
  tutti_status state(const End& end) {
    return call("share_state", false, [&] { return table_->share_state(end.share); });
  }
  void until_mapped(Stage& stage, const End& end) {
    tutti_status status = TUTTI_AGAIN;
    stage.until([&] { return (status = state(end)) != TUTTI_AGAIN; }, "M-3",
                "share_state goes on returning TUTTI_AGAIN though the peer has mapped the share");
    require(status == TUTTI_OK, "M-3", "share_state of a mapped share returned {}: {}", status_text(status),
            last_error());
  }
  tutti_status try_withdraw(const End& end) {
    return call("withdraw", false, [&] { return table_->withdraw(end.share); });
  }
  // The answer that comes instead of TUTTI_AGAIN is `expected`.
  void withdraw(Stage& stage, const End& end, const char* clause, const char* after, tutti_status expected = TUTTI_OK) {
    tutti_status status = TUTTI_AGAIN;
    stage.until([&] { return (status = try_withdraw(end)) != TUTTI_AGAIN; }, clause,
                fmt::format("withdraw goes on returning TUTTI_AGAIN {}", after));
    require(status == expected, clause, "withdraw returned {} {}; expected {}", status_text(status), after,
            status_text(expected));
  }
  void close(const End& end, const char* clause = "M-4") {
    const tutti_status status = call("close_mapping", false, [&] { return table_->close_mapping(end.mapping); });
    require(status == TUTTI_OK, clause, "close_mapping returned {}: {}", status_text(status), last_error());
  }
  void decline(Rank& rank, uint64_t tag, tutti_status why) {
    const tutti_status status = call("decline", false, [&] {
      return table_->decline(rank.links[1 - rank.options.rank], tag, why, "a reason of its own");
    });
    require(status == TUTTI_OK, "M-10", "decline of tag {} returned {}: {}", tag, status_text(status), last_error());
  }

 private:
  const tutti_mapped* table_;
  Bench device_bench_;

 public:
  Station station;
};

std::vector<uint8_t> pattern(uint64_t bytes, uint8_t seed) {
  std::vector<uint8_t> made(bytes);
  for (uint64_t i = 0; i < bytes; ++i) made[i] = static_cast<uint8_t>(seed + i * 7 + i / 4096);
  return made;
}

// ---- one process

void places(Bench& bench) {
  Mapper m(bench);
  Stage stage(bench);
  uint8_t* memory = m.station.allocate(device_bytes);
  End host, device;
  m.share(stage[0], 1, nullptr, host_bytes, host);
  require(host.at.host && host.at.device && host.at.bytes == host_bytes, "M-1",
          "the place of {} bytes of host memory has host {}, device {} and {} bytes", host_bytes, host.at.host,
          host.at.device, host.at.bytes);
  for (uint64_t i = 0; i < host_bytes; ++i)
    require(host.host()[i] == 0, "M-1", "byte {} of shared host memory is {:#x}, expected 0", i, host.host()[i]);
  m.share(stage[0], 2, memory + inside, device_bytes - inside, device);
  require(!device.at.host && device.at.device == memory + inside && device.at.bytes == device_bytes - inside, "M-1",
          "the place of {} bytes of device memory at {} has host {}, device {} and {} bytes", device_bytes - inside,
          static_cast<void*>(memory + inside), device.at.host, device.at.device, device.at.bytes);
  m.withdraw(stage, host, "M-4", "for a share that nobody maps");
  m.withdraw(stage, device, "M-4", "for a share that nobody maps");
}

void tags(Bench& bench) {
  Mapper m(bench);
  Stage stage(bench);
  End early, ours[3], theirs;
  tutti_status status = m.try_open(stage[1], 7, early, m.on());
  require(status == TUTTI_AGAIN, "M-2", "open_mapping of a tag that is not shared returned {}: {}", status_text(status),
          last_error());
  for (uint64_t k = 0; k < 3; ++k) m.share(stage[0], 7 + k, nullptr, 100 + k, ours[k]);
  m.open(stage, stage[1], 8, theirs);
  require(theirs.at.bytes == 101, "M-2", "open_mapping of the tag of a share of 101 bytes gave one of {}",
          theirs.at.bytes);
  m.until_mapped(stage, ours[1]);
  stage.settle();
  for (const uint64_t k : {0, 2}) {
    status = m.state(ours[k]);
    require(status == TUTTI_AGAIN, "M-3", "share_state returned {} for a share that the peer has not mapped",
            status_text(status));
  }
  for (int again = 0; again < 3; ++again, stage.settle()) {
    status = m.try_withdraw(ours[1]);
    require(status == TUTTI_AGAIN, "M-4", "withdraw returned {} while the peer had the share mapped",
            status_text(status));
  }
  m.close(theirs);
  m.withdraw(stage, ours[1], "M-4", "after the peer has closed its mapping");
  // The tag is free again.
  m.share(stage[0], 8, nullptr, 333, ours[1]);
  m.open(stage, stage[1], 8, theirs);
  require(theirs.at.bytes == 333, "M-2", "the second share of a tag has 333 bytes, and open_mapping gave one of {}",
          theirs.at.bytes);
  m.close(theirs);
  for (const End& end : ours) m.withdraw(stage, end, "M-4", "for a share that nobody maps any more");
}

void kinds(Bench& bench) {
  Mapper m(bench);
  Stage stage(bench);
  End refused, ours, theirs;
  tutti_mapped_device unknown = m.on();
  unknown.kind = UINT32_MAX - 1;
  tutti_status status = m.try_share(stage[0], 1, nullptr, host_bytes, refused, unknown);
  require(status == TUTTI_NOT_SUPPORTED, "M-6", "share for an unknown kind of device returned {}", status_text(status));
  const tutti_mapped_device beyond = m.on(m.station.device.caps.devices);
  status = m.try_share(stage[0], 1, nullptr, host_bytes, refused, beyond);
  require(status < 0, "M-6", "share for device {} of {} returned {}", beyond.device, beyond.device,
          status_text(status));
  m.share(stage[0], 1, nullptr, host_bytes, ours);
  // Until the peer has told, the share may not have come there yet.
  tutti_status told = TUTTI_AGAIN, error = TUTTI_OK;
  stage.until(
      [&] {
        status = m.try_open(stage[1], 1, theirs, unknown);
        require(status != TUTTI_OK, "M-6", "open_mapping for an unknown kind of device returned TUTTI_OK");
        if (status < 0) error = status;
        told = m.state(ours);
        return told != TUTTI_AGAIN;
      },
      "M-7",
      [&] {
        return fmt::format("the peer's open_mapping returned {}, and share_state goes on returning TUTTI_AGAIN",
                           status_text(error));
      });
  require(told < 0 && told == error, "M-7", "the peer's open_mapping returned {}, and share_state returned {}",
          status_text(error), status_text(told));
  m.withdraw(stage, ours, "M-7", "for a share that the peer could not map");
}

void given_up(Bench& bench) {
  if (!bench.has_fail_peer()) throw NotOffered{"it has no fail_peer"};
  Mapper m(bench);
  Stage stage(bench);
  End ours, theirs, more;
  m.share(stage[0], 1, nullptr, host_bytes, ours);
  m.open(stage, stage[1], 1, theirs);
  m.until_mapped(stage, ours);
  stage[1].failures_expected = true;
  stage[0].fail_peer(1);
  tutti_status status = m.try_share(stage[0], 2, nullptr, host_bytes, more, m.on());
  require(status == TUTTI_PEER_FAILED, "M-8", "share with a peer that was given up returned {}", status_text(status));
  status = m.try_open(stage[0], 3, more, m.on());
  require(status == TUTTI_PEER_FAILED, "M-8", "open_mapping with a peer that was given up returned {}",
          status_text(status));
  m.withdraw(stage, ours, "M-8", "though the peer, which was given up, lives and has a mapping", TUTTI_PEER_FAILED);
  theirs.host_flag(0).store(1);
  require(theirs.host_flag(0).load() == 1, "M-8", "a mapping whose peer has failed does not keep what is written");
  m.close(theirs, "M-8");
}

// Rank 1 declines tags 1 and 2, before and after rank 0 has shared them, and tag 3, which rank 0 wants to map.
void declined(Bench& bench) {
  Mapper m(bench);
  Stage stage(bench);
  End early, late, theirs;
  const auto refused = [&](const char* what, const std::function<tutti_status()>& ask, tutti_status expected) {
    tutti_status status = TUTTI_AGAIN;
    stage.until([&] { return (status = ask()) != TUTTI_AGAIN; }, "M-10",
                fmt::format("{} goes on returning TUTTI_AGAIN after the peer has declined", what));
    require(status == expected, "M-10", "{} returned {} after the peer had declined with {}", what, status_text(status),
            status_text(expected));
    require(last_error().find("a reason of its own") != std::string::npos, "M-10",
            "after the peer has declined with \"a reason of its own\" {} gives the reason \"{}\"", what, last_error());
  };
  m.share(stage[0], 1, nullptr, host_bytes, early);
  m.decline(stage[1], 1, TUTTI_NOT_SUPPORTED);
  refused(
      "share_state of a share", [&] { return m.state(early); }, TUTTI_NOT_SUPPORTED);
  m.decline(stage[1], 2, TUTTI_NO_RESOURCES);
  stage.settle();
  m.share(stage[0], 2, nullptr, host_bytes, late);
  refused(
      "share_state of a share that was made afterwards", [&] { return m.state(late); }, TUTTI_NO_RESOURCES);
  for (const End& end : {early, late}) m.withdraw(stage, end, "M-10", "for a share that the peer has declined");
  m.decline(stage[1], 3, TUTTI_NOT_FOUND);
  refused(
      "open_mapping", [&] { return m.try_open(stage[0], 3, theirs, m.on()); }, TUTTI_NOT_FOUND);
  // The tags are free again.
  m.share(stage[0], 2, nullptr, host_bytes, late);
  m.open(stage, stage[1], 2, theirs);
  m.until_mapped(stage, late);
  m.close(theirs);
  m.withdraw(stage, late, "M-4", "after the peer has closed its mapping");
  m.share(stage[1], 3, nullptr, 77, late);
  m.open(stage, stage[0], 3, theirs);
  require(theirs.at.bytes == 77, "M-10",
          "open_mapping of a tag that had been declined gave a share of {} bytes, not 77", theirs.at.bytes);
  m.close(theirs);
  m.withdraw(stage, late, "M-4", "after the peer has closed its mapping");
}

// ---- two processes

void until_set(Stage& stage, const End& flags, uint64_t k) {
  stage.until([&] { return flags.host_flag(k).load(std::memory_order_acquire) == 1; }, "M-5",
              fmt::format("flag {}, which the other end has set, stays {}", k, flags.host_flag(k).load()));
}

void require_same(const std::vector<uint8_t>& got, const std::vector<uint8_t>& expected, const char* who) {
  const std::string difference = first_difference(expected.data(), got.data(), expected.size());
  require(difference.empty(), "M-5", "device memory as {} reads it after its flag was set: {}", who, difference);
}

// Flag 0: the owner's bytes are there; 1: the peer's, set by its stream; 2: the owner's stream waits for the peer's
// processor; 3: that stream goes on.
void owner(Mapper& m, Stage& stage, const std::vector<uint8_t>& question, const std::vector<uint8_t>& reply) {
  End flags, memory;
  void* stream = m.station.stream();
  uint8_t* address = m.station.allocate(device_bytes);
  m.share(stage[0], 1, nullptr, 4096, flags);
  m.share(stage[0], 2, address, device_bytes, memory);
  m.until_mapped(stage, flags);
  m.until_mapped(stage, memory);
  m.station.put(address, question);
  m.station.issue(stream, {wait_until(flags.device_flag(2), 1), write_flag(flags.device_flag(3), 1)}, "M-5");
  try {
    flags.host_flag(0).store(1, std::memory_order_release);
    until_set(stage, flags, 1);
    require_same(m.station.get(address, device_bytes), reply, "its owner");
    until_set(stage, flags, 3);
  } catch (...) {  // no stream waits for memory that goes with the stage
    flags.host_flag(2).store(1, std::memory_order_release);
    m.station.finish(stream);
    throw;
  }
  m.station.finish(stream);
  m.withdraw(stage, flags, "M-4", "after the peer's process has closed its mapping");
  m.withdraw(stage, memory, "M-4", "after the peer's process has closed its mapping");
}

void peer_of_owner(Mapper& m, Stage& stage, const std::vector<uint8_t>& question, const std::vector<uint8_t>& reply) {
  End flags, memory;
  void* stream = m.station.stream();
  m.open(stage, stage[0], 1, flags);
  m.open(stage, stage[0], 2, memory);
  until_set(stage, flags, 0);
  require_same(m.station.get(memory.at.device, device_bytes), question, "the peer");
  m.station.put(memory.at.device, reply);
  m.station.issue(stream, {write_flag(flags.device_flag(1), 1)}, "M-5");
  flags.host_flag(2).store(1, std::memory_order_release);
  m.station.finish(stream);
  until_set(stage, flags, 3);
  m.close(flags);
  m.close(memory);
}

void one_memory(Bench& bench) {
  Family::run(bench, 2, [&](Family& family, uint32_t rank) {
    needs_processes(bench);
    Mapper m(bench);
    Stage stage(bench, {.nranks = 0});
    family.open(stage, rank);
    (rank == 0 ? owner : peer_of_owner)(m, stage, pattern(device_bytes, 1), pattern(device_bytes, 2));
    family.meet(&stage);
  });
}

void dead(Bench& bench) {
  Family::run(bench, 2, [&](Family& family, uint32_t rank) {
    needs_processes(bench);
    Mapper m(bench);
    Stage stage(bench, {.nranks = 0});
    family.open(stage, rank);
    stage[0].failures_expected = true;
    End ours, theirs;
    m.share(stage[0], 1 + rank, nullptr, 4096, ours);
    m.open(stage, stage[0], 2 - rank, theirs);
    m.until_mapped(stage, ours);
    family.meet(&stage);
    if (rank == 1) family.expect_death(1);
    if (rank == 1) raise(SIGKILL);
    stage.until([&] { return !stage[0].events.empty(); }, "T-32", "the death of the peer's process is not told");
    m.withdraw(stage, ours, "M-9", "after the peer's process has ended");
    theirs.host_flag(0).store(1);
    require(theirs.host_flag(0).load() == 1, "M-9", "a mapping whose peer has died does not keep what is written");
    m.close(theirs, "M-9");
  });
}

}  // namespace

std::vector<ContractCase> mapped_cases() {
  return {
      {"mapped-places", "share tells where memory is", {"M-1", "M-4", "T-5", "D-1", "D-5"}, 6, places},
      {"mapped-tags",
       "a share is mapped by its tag, and taken back when no one has it",
       {"M-1", "M-2", "M-3", "M-4", "T-5", "D-1"},
       10,
       tags},
      {"mapped-kinds",
       "unknown devices are refused, and the peer hears of it",
       {"M-1", "M-6", "M-7", "T-5", "D-1"},
       10,
       kinds},
      {"mapped-given-up",
       "a peer that was given up keeps its mapping",
       {"M-1", "M-2", "M-3", "M-8", "T-5", "D-1"},
       10,
       given_up},
      {"mapped-declined",
       "a rank that declines is heard by its peer, which does not wait",
       {"M-1", "M-2", "M-3", "M-4", "M-10", "T-5", "D-1"},
       10,
       declined},
      {"mapped-one-memory",
       "streams and processors of two processes see one memory",
       {"M-1", "M-2", "M-3", "M-4", "M-5", "T-5", "T-37", "D-1", "D-5", "D-7", "X-1", "X-9", "X-12"},
       30,
       one_memory},
      {"mapped-death",
       "a process that has ended holds no mapping",
       {"M-1", "M-2", "M-3", "M-9", "T-5", "T-32", "T-37", "D-1"},
       30,
       dead},
  };
}

}  // namespace tutti::conformance::contract
