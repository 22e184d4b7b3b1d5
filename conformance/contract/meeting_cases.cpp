// SPDX-License-Identifier: Apache-2.0
//
// meeting/1: ranks that are threads of this process meet at a place of their own.
#include <tutti/plugin/meeting.h>

#include <cstring>
#include <latch>
#include <thread>

#include "contract_case.hpp"

namespace tutti::conformance::contract {
namespace {

constexpr uint32_t visitors = 3;

const tutti_meeting* meeting_under_test(Bench& bench) {
  return table_under_test<tutti_meeting>(bench, TUTTI_MEETING_ID, "meeting", [](const tutti_meeting* table) {
    judge_table_of(TUTTI_MEETING_ID, table);
    require(table->open && table->all_gather && table->abort && table->close, "E-4",
            "a table of " TUTTI_MEETING_ID " is incomplete");
    judge_name("meeting", table->name, table->summary);
  });
}

// One rank's part in a meeting.
class Visitor {
 public:
  Visitor(const tutti_meeting* table, uint32_t rank, uint32_t nranks, const std::string& place, double seconds = 30)
      : table_(table) {
    const tutti_meeting_config config{
        sizeof config, rank, nranks, 0, place.c_str(), "the suite's", static_cast<uint64_t>(seconds * 1e9)};
    uint32_t told = UINT32_MAX, told_ranks = UINT32_MAX;
    status = call("open", true, [&] { return table->open(table->self, &config, &room_, &told, &told_ranks); });
    error = status == TUTTI_OK ? "" : last_error();
    if (status == TUTTI_OK)
      require(told == rank && told_ranks == nranks, "G-1",
              "open of rank {} of {} says rank {} of {}: with nranks in the config both are the config's", rank, nranks,
              told, told_ranks);
  }
  ~Visitor() {
    if (room_) plain_call("close", true, [&] { table_->close(room_); });
  }
  Visitor(const Visitor&) = delete;
  Visitor& operator=(const Visitor&) = delete;
  tutti_status gather(const std::vector<uint8_t>& mine, std::vector<uint8_t>& all) {
    return call("all_gather", true, [&] { return table_->all_gather(room_, mine.data(), mine.size(), all.data()); });
  }
  void abort() {
    plain_call("abort", false, [&] { table_->abort(room_); });
  }
  tutti_status status;
  std::string error;

 private:
  const tutti_meeting* table_;
  tutti_room* room_ = nullptr;
};

// `body` as each rank of a meeting, each in a thread that calls `arrive` before it opens. The first exception of a rank
// is thrown again.
void meet(Bench& bench, const std::string& place, const std::function<void(Visitor&, uint32_t rank)>& body,
          double seconds = 30, const std::function<void(uint32_t rank)>& arrive = {}) {
  const tutti_meeting* table = meeting_under_test(bench);
  std::exception_ptr trouble[visitors];
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < visitors; ++rank)
    threads.emplace_back([&, rank] {
      try {
        if (arrive) arrive(rank);
        Visitor visitor(table, rank, visitors, place, seconds);
        if (visitor.status != TUTTI_OK)
          throw NotOffered{fmt::format("open at a place of the suite's returned {}: {}", status_text(visitor.status),
                                       visitor.error)};
        body(visitor, rank);
      } catch (...) {
        trouble[rank] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& one : trouble)
    if (one) std::rethrow_exception(one);
}

std::string place_of(const Bench& bench, const char* name) { return fmt::format("contract-{}-{}", bench.seed, name); }

uint8_t byte_of(uint32_t rank, uint32_t round, size_t i) { return static_cast<uint8_t>(i * 7 + rank * 31 + round); }

void meeting_gathers(Bench& bench) {
  for (uint32_t life = 0; life < 3; ++life)  // a place can be used again
    meet(bench, place_of(bench, "gathers"), [&](Visitor& visitor, uint32_t rank) {
      uint32_t round = life;
      for (const size_t bytes : {size_t{1}, size_t{8}, size_t{300}, size_t{1024}, size_t{5000}, size_t{1}}) {
        ++round;
        std::vector<uint8_t> mine(bytes), all(visitors * bytes, 0xEE);
        for (size_t i = 0; i < bytes; ++i) mine[i] = byte_of(rank, round, i);
        const tutti_status status = visitor.gather(mine, all);
        require(status == TUTTI_OK, "G-2", "all_gather of {} bytes returned {}: {}", bytes, status_text(status),
                last_error());
        for (size_t i = 0; i < all.size(); ++i)
          require(all[i] == byte_of(static_cast<uint32_t>(i / bytes), round, i % bytes), "G-2",
                  "all_gather of {} bytes: byte {} of rank {} is {:#04x} at rank {}, expected {:#04x}", bytes,
                  i % bytes, i / bytes, all[i], rank, byte_of(static_cast<uint32_t>(i / bytes), round, i % bytes));
      }
    });
}

void meeting_ends_in_time(Bench& bench) {
  meet(
      bench, place_of(bench, "late"),
      [&](Visitor& visitor, uint32_t rank) {
        std::vector<uint8_t> mine(8), all(visitors * 8);
        if (rank == 1) return std::this_thread::sleep_for(std::chrono::milliseconds(700));
        const tutti_status status = visitor.gather(mine, all);
        require(status == TUTTI_TIMEOUT, "G-3",
                "a rank does not come to an all_gather: it returned {}, expected TUTTI_TIMEOUT", status_text(status));
      },
      0.2);
}

void meeting_aborts(Bench& bench) {
  std::latch gathered{visitors - 1};  // abort may end an all_gather that another rank has not left yet
  meet(bench, place_of(bench, "aborted"), [&](Visitor& visitor, uint32_t rank) {
    std::vector<uint8_t> mine(8), all(visitors * 8);
    const tutti_status first = visitor.gather(mine, all);
    if (rank != 1) gathered.count_down();
    require(first == TUTTI_OK, "G-2", "all_gather of 8 bytes returned {}: {}", status_text(first), last_error());
    if (rank == 1) return gathered.wait(), visitor.abort();
    const tutti_status status = visitor.gather(mine, all);
    require(status == TUTTI_ABORTED, "G-4", "rank 1 has aborted: all_gather of rank {} returned {}, expected {}", rank,
            status_text(status), status_text(TUTTI_ABORTED));
  });
}

void meeting_other_sizes(Bench& bench) {
  std::atomic<uint32_t> refused{0};
  meet(
      bench, place_of(bench, "sizes"),
      [&](Visitor& visitor, uint32_t rank) {
        std::vector<uint8_t> mine(rank == 2 ? 16 : 8), all(visitors * mine.size());
        const tutti_status status = visitor.gather(mine, all);
        require(status != TUTTI_OK, "G-5", "rank 2 gathers 16 bytes, the others 8, and rank {} is told TUTTI_OK", rank);
        refused += status == TUTTI_MISMATCH;
      },
      0.5);
  require(refused > 0, "G-5", "the ranks gather different numbers of bytes, and none of them is told TUTTI_MISMATCH");
}

void two_meetings_at_once(Bench& bench, uint32_t life) {
  std::latch all_here{2 * visitors};
  std::exception_ptr trouble[2];
  std::vector<std::thread> threads;
  for (uint32_t k = 0; k < 2; ++k)
    threads.emplace_back([&, k] {
      try {
        // The ranks of both arrive in turns, so that one place for both would mix them.
        const auto arrive = [&](uint32_t rank) {
          all_here.arrive_and_wait();
          std::this_thread::sleep_for(std::chrono::milliseconds(5 * (2 * rank + k)));
        };
        const auto gather = [&](Visitor& visitor, uint32_t) {
          for (uint32_t round = 0; round < 30; ++round) {
            const std::vector<uint8_t> mine(8, static_cast<uint8_t>(k + 1));
            std::vector<uint8_t> all(visitors * 8);
            const tutti_status status = visitor.gather(mine, all);
            require(status == TUTTI_OK, "G-6", "with two meetings at once all_gather returned {}: {}",
                    status_text(status), last_error());
            for (const uint8_t byte : all)
              require(byte == k + 1, "G-6", "a meeting got bytes of another, which has another place");
          }
        };
        meet(bench, place_of(bench, fmt::format("{}-{}", k ? "here" : "there", life).c_str()), gather, 30, arrive);
      } catch (...) {
        trouble[k] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& one : trouble)
    if (one) std::rethrow_exception(one);
}

void meeting_two_meetings(Bench& bench) {
  meeting_under_test(bench);  // loads the plugin before there are threads
  for (uint32_t life = 0; life < 3; ++life) two_meetings_at_once(bench, life);
}

}  // namespace

std::vector<ContractCase> meeting_cases() {
  return {
      {"gathers", "three ranks, six sizes, one place three times", {"G-1", "G-2", "E-5"}, 5, meeting_gathers},
      {"two-meetings", "two meetings at once, three times", {"G-1", "G-2", "G-6", "E-5"}, 30, meeting_two_meetings},
      {"aborted", "a rank aborts", {"G-2", "G-4", "E-5"}, 7, meeting_aborts},
      {"other-sizes", "ranks gather different numbers of bytes", {"G-5", "E-5"}, 30, meeting_other_sizes},
      {"late", "a rank does not come", {"G-3", "E-5"}, 40, meeting_ends_in_time},
  };
}

}  // namespace tutti::conformance::contract
