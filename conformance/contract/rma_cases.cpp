// SPDX-License-Identifier: Apache-2.0
//
// rma/1: two ranks of one process, driven by one thread.
#include <tutti/plugin/rma.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "contract_case.hpp"

namespace tutti::conformance::contract {
namespace {

const tutti_rma* rma_under_test(Bench& bench) {
  return table_under_test<tutti_rma>(bench, TUTTI_RMA_ID, "rma", [](const tutti_rma* table) {
    judge_table_of(TUTTI_RMA_ID, table, TUTTI_RMA_STAMP);
    require(table->open && table->abort && table->put && table->get && table->signal, "E-4",
            "a table of " TUTTI_RMA_ID " is incomplete");
    judge_name("rma", table->name, table->summary);
  });
}

struct RegionKey {
  uint8_t bytes[TUTTI_RMA_KEY_BYTES] = {};
  uint64_t length = sizeof bytes;
};

// One rank's space, with what came of its operations.
class Actor {
 public:
  Actor(Bench& bench, uint32_t rank, uint64_t communicator) : table_(rma_under_test(bench)), patience_(bench.patience) {
    const tutti_space_config config{sizeof config, rank, 2, 0, communicator};
    const tutti_status status = call("open", true, [&] { return table_->open(table_->self, &config, &space_); });
    require(status == TUTTI_OK && space_, "P-1", "open of rank {} of 2 returned {}: {}", rank, status_text(status),
            last_error());
  }
  ~Actor() {
    if (space_) plain_call("close", true, [&] { table_->close(space_); });
  }
  Actor(const Actor&) = delete;
  Actor& operator=(const Actor&) = delete;

  tutti_rma_region* share(void* address, uint64_t bytes, RegionKey& key) {
    const tutti_memory memory{sizeof memory, TUTTI_MEMORY_HOST, address, bytes, -1, 0, 0};
    tutti_rma_region* region = nullptr;
    const tutti_status status = call("export_region", true, [&] {
      return table_->export_region(space_, &memory, &region, key.bytes, &key.length);
    });
    require(status == TUTTI_OK && key.length <= TUTTI_RMA_KEY_BYTES, "P-1",
            "export_region of {} bytes returned {} and a key of {} bytes: {}", bytes, status_text(status), key.length,
            last_error());
    return region;
  }
  void withdraw(tutti_rma_region* region) {
    call("withdraw_region", true, [&] { return table_->withdraw_region(space_, region); });
  }
  tutti_status import(uint32_t peer, const void* key, uint64_t bytes, tutti_remote** remote) {
    return call("import_region", true, [&] { return table_->import_region(space_, peer, key, bytes, remote); });
  }
  void release(tutti_remote* remote) {
    call("release_region", true, [&] { return table_->release_region(space_, remote); });
  }
  tutti_status put(tutti_remote* remote, uint64_t offset, const void* from, uint64_t bytes, uint64_t cookie) {
    return call("put", false, [&] { return table_->put(remote, offset, from, bytes, cookie); });
  }
  tutti_status get(tutti_remote* remote, uint64_t offset, void* to, uint64_t bytes, uint64_t cookie) {
    return call("get", false, [&] { return table_->get(remote, offset, to, bytes, cookie); });
  }
  tutti_status signal(tutti_remote* remote, uint64_t value) {
    return call("signal", false, [&] { return table_->signal(remote, value); });
  }
  uint64_t signals(tutti_rma_region* region) {
    uint64_t value = 0;
    call("test_signal", false, [&] { return table_->test_signal(region, &value); });
    return value;
  }
  tutti_status abort() {
    return call("abort", false, [&] { return table_->abort(space_); });
  }
  std::vector<tutti_rma_completion> progress(uint32_t capacity) {
    std::vector<tutti_rma_completion> records(capacity + 1);
    std::memset(static_cast<void*>(records.data()), 0xEE, records.size() * sizeof records[0]);
    const tutti_rma_completion guard = records.back();
    uint32_t n = 0;
    const tutti_status status =
        call("progress", false, [&] { return table_->progress(space_, records.data(), capacity, &n); });
    require(status == TUTTI_OK && n <= capacity && std::memcmp(&guard, &records.back(), sizeof guard) == 0, "P-6",
            "progress with room for {} completions returned {} and {} of them{}", capacity, status_text(status), n,
            std::memcmp(&guard, &records.back(), sizeof guard) ? ", and wrote behind them" : "");
    records.resize(n);
    for (const tutti_rma_completion& record : records)
      require(!record.reserved[0] && !record.reserved[1], "P-6", "a completion's reserved fields are not zero");
    return records;
  }
  // The completion of the one operation that is pending.
  void done(uint64_t cookie, uint32_t peer, tutti_status expected = TUTTI_OK) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(patience_);
    std::vector<tutti_rma_completion> records;
    while (records.empty() && std::chrono::steady_clock::now() < until) records = progress(4);
    require(records.size() == 1 && records[0].cookie == cookie && records[0].status == expected &&
                records[0].peer == peer,
            "P-1", "an operation with cookie {:#x} and rank {} ended with {} completions{}", cookie, peer,
            records.size(),
            records.empty() ? std::string()
                            : fmt::format(", the first with cookie {:#x}, rank {} and {}", records[0].cookie,
                                          records[0].peer, status_text(records[0].status)));
  }

 private:
  const tutti_rma* table_;
  const double patience_;
  tutti_space* space_ = nullptr;
};

// Rank 0 accesses a region of rank 1.
struct Access {
  explicit Access(Bench& bench, uint64_t communicator = 7) : actor{{bench, 0, communicator}, {bench, 1, communicator}} {
    region = actor[1].share(target.data() + around, inside, key);
    const tutti_status status = actor[0].import(1, key.bytes, key.length, &remote);
    require(status == TUTTI_OK, "P-1", "import_region of rank 1's key returned {}: {}", status_text(status),
            last_error());
  }
  ~Access() {
    if (std::uncaught_exceptions()) return;
    actor[0].release(remote);
    actor[1].withdraw(region);
  }
  static constexpr uint64_t around = 64, inside = 100'000;
  std::vector<uint8_t> target = std::vector<uint8_t>(inside + 2 * around, 0xEE);
  Actor actor[2];
  RegionKey key;
  tutti_rma_region* region = nullptr;
  tutti_remote* remote = nullptr;
};

void rma_puts_and_gets(Bench& bench) {
  Access p(bench);
  std::vector<uint8_t> expected = p.target;
  uint64_t cookie = uint64_t{1} << 60;
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{8}, uint64_t{4097}, uint64_t{0}, Access::inside})
    for (const uint64_t offset : {uint64_t{0}, uint64_t{3}, Access::inside - bytes}) {
      if (offset + bytes > Access::inside) continue;
      std::vector<uint8_t> from(bytes), back(bytes, 0xEE);
      fill(from.data(), bytes, bench.seed, {0, 1, static_cast<uint32_t>(offset), static_cast<uint32_t>(bytes)});
      std::copy(from.begin(), from.end(), expected.begin() + static_cast<long>(Access::around + offset));
      const tutti_status put = p.actor[0].put(p.remote, offset, from.data(), bytes, ++cookie);
      require(put == TUTTI_OK, "P-1", "put of {} bytes at {} returned {}: {}", bytes, offset, status_text(put),
              last_error());
      p.actor[0].done(cookie, 1);
      const std::string wrong = first_difference(expected.data(), p.target.data(), expected.size());
      require(wrong.empty(), "P-1", "put of {} bytes at {} of a region, which begins at byte {} here: {}", bytes, offset,
              Access::around, wrong);
      const tutti_status got = p.actor[0].get(p.remote, offset, back.data(), bytes, ++cookie);
      require(got == TUTTI_OK, "P-1", "get of {} bytes at {} returned {}: {}", bytes, offset, status_text(got),
              last_error());
      p.actor[0].done(cookie, 1);
      require(back == from, "P-1", "get of {} bytes at {} gave other bytes than were put there", bytes, offset);
    }
}

void rma_outside(Bench& bench) {
  Access p(bench);
  const std::vector<uint8_t> before = p.target;
  std::vector<uint8_t> own(16, 1);
  for (const auto& [offset, bytes] : {std::pair{Access::inside, uint64_t{1}}, {Access::inside - 7, 8}, {UINT64_MAX, 1},
                                      {UINT64_MAX - 3, 8}, {uint64_t{8}, UINT64_MAX - 4}}) {
    const tutti_status put = p.actor[0].put(p.remote, offset, own.data(), bytes, 1);
    require(put == TUTTI_INVALID_ARGUMENT, "P-2", "put of {} bytes at {} of a region of {} returned {}", bytes, offset,
            Access::inside, status_text(put));
    const tutti_status get = p.actor[0].get(p.remote, offset, own.data(), bytes, 2);
    require(get == TUTTI_INVALID_ARGUMENT, "P-2", "get of {} bytes at {} of a region of {} returned {}", bytes, offset,
            Access::inside, status_text(get));
  }
  require(p.target == before && p.actor[0].progress(4).empty(), "P-2",
          "an operation that was refused has written memory or completed");
}

void rma_signals(Bench& bench) {
  Access p(bench);
  require(p.actor[1].signals(p.region) == 0, "P-3", "a region's counter does not begin at 0");
  uint64_t sum = 0;
  for (const uint64_t value : {uint64_t{1}, uint64_t{5}, uint64_t{1} << 40}) {
    const uint64_t word = bench.seed + value;
    require(p.actor[0].put(p.remote, 8, &word, 8, value) == TUTTI_OK, "P-1", "a put is refused: {}", last_error());
    require(p.actor[0].signal(p.remote, value) == TUTTI_OK, "P-3", "signal returned an error: {}", last_error());
    sum += value;
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(bench.patience);
    uint64_t counted = 0;
    while ((counted = p.actor[1].signals(p.region)) != sum && std::chrono::steady_clock::now() < until) {
      if (p.actor[0].progress(4).size() > 1) break;
      p.actor[1].progress(4);
    }
    require(counted == sum, "P-3", "signals of {} in all were sent, and test_signal says {}", sum, counted);
    uint64_t seen = 0;
    std::memcpy(&seen, p.target.data() + Access::around + 8, 8);
    require(seen == word, "P-3", "a signal is counted before the bytes of the put before it are there");
    while (!p.actor[0].progress(4).empty()) continue;
  }
}

void rma_keys(Bench& bench) {
  Access p(bench);
  Actor foreign(bench, 0, 8);
  RegionKey longer = p.key, changed = p.key;
  for (uint64_t i = 0; i < changed.length; ++i) changed.bytes[i] = static_cast<uint8_t>(~changed.bytes[i]);
  longer.length = std::min<uint64_t>(longer.length + 1, TUTTI_RMA_KEY_BYTES);
  const auto refused = [&](Actor& by, uint32_t peer, const RegionKey& key, uint64_t bytes, const char* what) {
    tutti_remote* remote = nullptr;
    const tutti_status status = by.import(peer, key.bytes, bytes, &remote);
    require(status < 0, "P-4", "import_region of {} returned {}", what, status_text(status));
  };
  refused(p.actor[0], 1, p.key, 0, "an empty key");
  refused(p.actor[0], 1, p.key, p.key.length - 1, "a truncated key");
  refused(p.actor[0], 1, longer, longer.length, "a key with one byte more");
  refused(p.actor[0], 1, changed, changed.length, "a key of other bytes");
  refused(p.actor[0], 0, p.key, p.key.length, "rank 1's key as one of rank 0");
  refused(foreign, 1, p.key, p.key.length, "a key of another communicator");
  uint64_t word = 0;
  RegionKey gone;
  tutti_rma_region* region = p.actor[1].share(&word, 8, gone);
  p.actor[1].withdraw(region);
  refused(p.actor[0], 1, gone, gone.length, "a key of a region that was withdrawn");
}

void rma_little_room(Bench& bench) {
  Access p(bench);
  constexpr uint64_t many = 12;
  std::vector<uint8_t> own(8);
  uint64_t posted = 0, told = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(bench.patience);
  while (told < many && std::chrono::steady_clock::now() < until) {
    while (posted < many && p.actor[0].put(p.remote, 8 * posted, own.data(), 8, posted) == TUTTI_OK) ++posted;
    told += p.actor[0].progress(1).size();
  }
  require(told == many, "P-6", "of {} operations {} are told by progress with room for one completion", many, told);
}

void rma_aborts(Bench& bench) {
  Access p(bench);
  uint64_t word = 1;
  require(p.actor[0].abort() == TUTTI_OK, "P-5", "abort returned an error: {}", last_error());
  for (const tutti_status status : {p.actor[0].put(p.remote, 0, &word, 8, 1), p.actor[0].get(p.remote, 0, &word, 8, 2),
                                    p.actor[0].signal(p.remote, 1)})
    require(status == TUTTI_ABORTED, "P-5", "an operation after abort returned {}, expected {}", status_text(status),
            status_text(TUTTI_ABORTED));
  require(p.actor[1].signals(p.region) == 0, "P-5", "a signal after abort was counted");
}

}  // namespace

std::vector<ContractCase> rma_cases() {
  return {
      {"puts-and-gets", "five sizes at three offsets, both ways", {"P-1", "P-6", "E-5"}, 2, rma_puts_and_gets},
      {"outside", "accesses that do not lie in the region", {"P-1", "P-2", "P-6", "E-5"}, 2, rma_outside},
      {"signals", "puts, then signals", {"P-1", "P-3", "P-6", "E-5"}, 2, rma_signals},
      {"keys", "keys that are none", {"P-1", "P-4", "E-5"}, 2, rma_keys},
      {"little-room", "progress with room for one completion", {"P-1", "P-6", "E-5"}, 2, rma_little_room},
      {"aborted", "operations after abort", {"P-1", "P-5", "P-6", "E-5"}, 2, rma_aborts},
  };
}

}  // namespace tutti::conformance::contract
