// SPDX-License-Identifier: Apache-2.0
//
// Ranks that call different things: in checked mode every kind of difference is an error on all ranks that names both
// calls before anything is written; without it first uses are compared, no message of another call is taken, and no
// silent answer survives the end.
#include <sys/wait.h>
#include <tutti/schedule.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>

#include "../../tests/harness/ranks.hpp"
#include "../../tests/harness/virtual_time/virtual_time.hpp"

namespace tutti::test {
namespace {

struct Outcome {
  tutti_status status = TUTTI_OK;  // of the call, or else of destroying
  tutti_status at_destroy = TUTTI_OK;
  std::string text;
  bool written = false;
};

// A call that rank `odd` of n makes instead of all_reduce(100 x float32, sum), and how both calls read.
struct Difference {
  const char* name;
  tutti_status (*odd)(tutti_comm* comm, float* data);
  const char* odd_text;
};

constexpr uint64_t count = 100;
constexpr const char* usual_text = "all_reduce(100 x float32, sum)";

const Difference differences[] = {
    {"operator",
     [](tutti_comm* c, float* d) {
       return tutti_all_reduce(c, d, d, count, TUTTI_FLOAT32, TUTTI_MAX, nullptr, nullptr);
     },
     "all_reduce(100 x float32, max)"},
    {"type of the same size",
     [](tutti_comm* c, float* d) { return tutti_all_reduce(c, d, d, count, TUTTI_INT32, TUTTI_SUM, nullptr, nullptr); },
     "all_reduce(100 x int32, sum)"},
    {"count",
     [](tutti_comm* c, float* d) {
       return tutti_all_reduce(c, d, d, count - 1, TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr);
     },
     "all_reduce(99 x float32, sum)"},
    {"count of nothing",
     [](tutti_comm* c, float*) {
       return tutti_all_reduce(c, nullptr, nullptr, 0, TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr);
     },
     "all_reduce(0 x float32, sum)"},
    {"collective",
     [](tutti_comm* c, float* d) {
       return tutti_reduce(c, d, d, count, TUTTI_FLOAT32, TUTTI_SUM, 1, nullptr, nullptr);
     },
     "reduce(100 x float32, sum, root 1)"},
    {"barrier", [](tutti_comm* c, float*) { return tutti_barrier(c, nullptr, nullptr); }, "barrier()"},
    {"tag",
     [](tutti_comm* c, float* d) {
       tutti_options options{sizeof options};
       options.tag = 7;
       return tutti_all_reduce(c, d, d, count, TUTTI_FLOAT32, TUTTI_SUM, &options, nullptr);
     },
     "all_reduce(100 x float32, sum, tag 7)"},
    {"algorithms",
     [](tutti_comm* c, float* d) {
       tutti_options options{sizeof options};
       options.algorithms = "^ring";
       return tutti_all_reduce(c, d, d, count, TUTTI_FLOAT32, TUTTI_SUM, &options, nullptr);
     },
     usual_text},
};

// The error of rank `r` of n when rank `odd` does something else as operation `before`.
struct Case {
  uint32_t n;
  const char* transport;
  uint32_t flags;
  uint32_t odd;
  int before;
  const Difference& difference;
};
Outcome outcome(const Case& c, const std::string& place, uint32_t r) {
  Outcome seen;
  tutti_comm_config config = config_of(place, r, c.n);
  config.transports = c.transport;
  config.flags = c.flags;
  tutti_comm* comm = nullptr;
  seen.status = tutti_comm_create(&config, &comm);
  EXPECT_EQ(seen.status, TUTTI_OK);
  if (seen.status < 0) return seen;
  std::vector<float> warm(count, 1), data(count, 1);
  const auto usual = [&](float* d) {
    return tutti_all_reduce(comm, d, d, count, TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr);
  };
  for (int k = 0; k < c.before; ++k) EXPECT_EQ(usual(warm.data()), TUTTI_OK) << tutti_comm_error(comm);
  seen.status = r == c.odd ? c.difference.odd(comm, data.data()) : usual(data.data());
  seen.text = tutti_comm_error(comm);
  seen.written = data != std::vector<float>(count, 1);
  seen.at_destroy = tutti_comm_destroy(comm);
  return seen;
}

// Every rank's.
std::vector<Outcome> outcomes(uint32_t n, const char* transport, uint32_t flags, uint32_t odd, int before,
                              const Difference& difference) {
  std::vector<Outcome> all(n);
  const std::string place = fresh_place();
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < n; ++r)
    threads.emplace_back([&, r] { all[r] = outcome({n, transport, flags, odd, before, difference}, place, r); });
  for (std::thread& t : threads) t.join();
  return all;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void expect_named_by_all(const Outcome& seen, const Case& c, uint32_t r) {
  SCOPED_TRACE(testing::Message() << c.difference.name << " of rank " << c.odd << " of " << c.n << " over "
                                  << (c.transport ? c.transport : "shm and tcp") << ", rank " << r << ": "
                                  << seen.text);
  EXPECT_EQ(seen.status, TUTTI_MISMATCH);
  EXPECT_TRUE(has(seen.text, std::string("rank ") + std::to_string(c.odd) + " called " + c.difference.odd_text));
  EXPECT_TRUE(has(seen.text, std::string("called ") + usual_text));
  EXPECT_TRUE(has(seen.text, "operation #3"));
  EXPECT_FALSE(seen.written);
  uint32_t round = 0, rounds = 0;
  if (const auto at = seen.text.find("round "); at != std::string::npos) {
    EXPECT_EQ(std::sscanf(seen.text.c_str() + at, "round %u of %u", &round, &rounds), 2);
  }
  EXPECT_LE(round, rounds);
}

// Processes of two pretend hosts: shared memory inside each, TCP between them. Before all tests that start threads,
// which do not survive a fork.
TEST(CheckedMode, EveryDifferenceIsNamedWithinAndAcrossHosts) {
  constexpr uint32_t n = 4;
  for (const Difference& difference : differences) {
    const Case c{n, nullptr,   TUTTI_COMM_CHECK_CALLS, static_cast<uint32_t>(&difference - differences) % n,
                 3, difference};
    std::string folder = std::filesystem::temp_directory_path() / "tutti-call-check-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    std::vector<pid_t> ranks;
    for (uint32_t r = 0; r < n; ++r) {
      const pid_t child = fork();
      if (child == 0) {
        setenv("TUTTI_HOST_ID", r < n / 2 ? "a" : "b", 1);
        expect_named_by_all(outcome(c, "file:" + folder, r), c, r);
        std::_Exit(HasFailure() ? 1 : 0);
      }
      ranks.push_back(child);
    }
    for (const pid_t rank : ranks) {
      int status = 0;
      waitpid(rank, &status, 0);
      EXPECT_EQ(status, 0) << difference.name;
    }
    std::filesystem::remove_all(folder);
  }
}

TEST(CheckedMode, EveryDifferenceIsNamedOnAllRanksBeforeAnythingIsWritten) {
  for (const char* transport : {"shm", "tcp"})
    for (uint32_t n = 2; n <= 5; ++n)
      for (const Difference& difference : differences) {
        const uint32_t odd = (n + static_cast<uint32_t>(&difference - differences)) % n;
        const auto all = outcomes(n, transport, TUTTI_COMM_CHECK_CALLS, odd, 3, difference);
        for (uint32_t r = 0; r < n; ++r)
          expect_named_by_all(all[r], {n, transport, TUTTI_COMM_CHECK_CALLS, odd, 3, difference}, r);
      }
}

TEST(CheckedMode, ARootIsCompared) {
  run_ranks(3,
            [](Communicator& comm) {
              int32_t x = 1;
              const Failed failed = failure_of([&] { comm.broadcast<int32_t>({&x, 1}, comm.rank() == 2 ? 1 : 0); });
              EXPECT_EQ(failed.status, TUTTI_MISMATCH);
              EXPECT_TRUE(has(failed.text,
                              "rank 2 called broadcast(1 x int32, root 1) as operation #0, rank 0 called "
                              "broadcast(1 x int32, root 0)"))
                  << failed.text;
            },
            {"shm", nullptr, TUTTI_COMM_CHECK_CALLS});
}

// Equal calls go through, whatever may differ between ranks: in place or not, deadlines, blocking or not.
TEST(CheckedMode, WhatMayDifferMayDiffer) {
  for (const uint32_t flags : {0u, uint32_t{TUTTI_COMM_PROGRESS_THREAD}})
    for (const char* transport : {"shm", "tcp"})
      for (uint32_t n = 1; n <= 5; ++n)
        run_ranks(n,
                  [n](Communicator& comm) {
                    for (int k = 0; k < 15; ++k) {
                      std::vector<int64_t> in(100, k), out(100);
                      const bool in_place = comm.rank() % 2;
                      if (comm.rank() % 3 == 0)
                        comm.async().all_reduce<int64_t>(in, in_place ? in : out, Op::sum).wait();
                      else
                        comm.all_reduce<int64_t>(in, in_place ? in : out, Op::sum);
                      ASSERT_EQ((in_place ? in : out)[99], static_cast<int64_t>(n) * k);
                      comm.barrier();
                    }
                  },
                  {transport, nullptr, flags | TUTTI_COMM_CHECK_CALLS});
}

TEST(CheckedMode, ManyOperationsInFlight) {
  run_ranks(3,
            [](Communicator& comm) {
              std::vector<std::vector<int32_t>> data(40);
              std::vector<Request> requests;
              for (size_t k = 0; k < data.size(); ++k) {
                data[k].assign(k * 50 + 1, static_cast<int32_t>(k));
                requests.push_back(comm.async().all_reduce<int32_t>(data[k], data[k], Op::sum));
              }
              while (!requests.empty()) {
                requests.back().wait();
                requests.pop_back();
              }
              for (size_t k = 0; k < data.size(); ++k) EXPECT_EQ(data[k][k], static_cast<int32_t>(3 * k));
            },
            {nullptr, nullptr, TUTTI_COMM_CHECK_CALLS});
}

// Two collectives in another order, asynchronously: the first of them is the difference.
TEST(CheckedMode, AnotherOrderIsNamed) {
  run_ranks(2,
            [](Communicator& comm) {
              float a = 1, b = 2;
              std::vector<Request> requests;
              const Failed failed = failure_of([&] {
                for (int k = 0; k < 2; ++k)
                  if (static_cast<uint32_t>(k) == comm.rank())
                    requests.push_back(comm.async().all_reduce<float>({&a, 1}, {&a, 1}, Op::sum));
                  else
                    requests.push_back(comm.async().broadcast<float>({&b, 1}, 0));
                for (Request& r : requests) r.wait();
              });
              EXPECT_EQ(failed.status, TUTTI_MISMATCH);
              EXPECT_TRUE(has(failed.text, "rank 0 called all_reduce(1 x float32, sum)")) << failed.text;
              EXPECT_TRUE(has(failed.text, "rank 1 called broadcast(1 x float32, root 0) as operation #0"))
                  << failed.text;
            },
            {nullptr, nullptr, TUTTI_COMM_CHECK_CALLS});
}

TEST(CheckedMode, WhoDestroysInsteadIsNamed) {
  const Difference nothing{"nothing", [](tutti_comm*, float*) { return tutti_status{TUTTI_OK}; }, ""};
  const auto all = outcomes(3, "tcp", TUTTI_COMM_CHECK_CALLS, 1, 2, nothing);
  for (const uint32_t r : {0u, 2u}) {
    EXPECT_EQ(all[r].status, TUTTI_MISMATCH);
    EXPECT_TRUE(has(all[r].text, "rank 1 called tutti_comm_destroy()")) << all[r].text;
  }
  EXPECT_EQ(all[1].at_destroy, TUTTI_MISMATCH);
}

TEST(CheckedMode, AMissingRankIsTheOneThatIsWaitedFor) {
  const VirtualTime time;
  std::atomic<bool> over{false};
  run_ranks(2,
            [&over](Communicator& comm) {
              comm.barrier();
              if (comm.rank() == 1) {
                while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(5));
                return;
              }
              float x = 1;
              const Failed failed = failure_of([&] { comm.all_reduce<float>({&x, 1}, {&x, 1}, Op::sum); });
              over = true;
              EXPECT_EQ(failed.status, TUTTI_TIMEOUT);
              EXPECT_TRUE(has(failed.text, "rank 1 has not told which call it makes")) << failed.text;
              EXPECT_EQ(has(failed.text, "flight record: "), TUTTI_RECORD) << failed.text;
            },
            {nullptr, nullptr, TUTTI_COMM_CHECK_CALLS, default_timeout});
  EXPECT_GE(time.passed(), std::chrono::seconds(600));
  EXPECT_LT(time.passed(), late(std::chrono::seconds(600)));
}

TEST(CheckedMode, AllRanksHaveItOrNone) {
  const std::string place = fresh_place();
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      char error[512] = "";
      tutti_comm_config config = config_of(place, r, 2);
      config.flags = r ? TUTTI_COMM_CHECK_CALLS : 0;
      config.error = error;
      config.error_bytes = sizeof error;
      tutti_comm* comm = nullptr;
      EXPECT_EQ(tutti_comm_create(&config, &comm), TUTTI_MISMATCH);
      EXPECT_TRUE(has(error, "TUTTI_CHECK")) << error;
    });
  for (std::thread& t : threads) t.join();
}

// Without checked mode: the first use of a plan is compared, so that no answer is wrong in silence.
TEST(FirstUse, DifferencesAreFoundWithoutCheckedMode) {
  for (const char* transport : {"shm", "tcp"})
    for (uint32_t n = 2; n <= 5; ++n)
      for (const Difference& difference : differences) {
        const uint32_t odd = (n + static_cast<uint32_t>(&difference - differences)) % n;
        const auto all = outcomes(n, transport, 0, odd, 0, difference);
        uint32_t naming = 0;
        for (uint32_t r = 0; r < n; ++r) {
          SCOPED_TRACE(testing::Message() << difference.name << " of rank " << odd << " of " << n << " over "
                                          << transport << ", rank " << r << ": " << all[r].text);
          EXPECT_TRUE(all[r].status < 0 || all[r].at_destroy < 0);
          naming += has(all[r].text, difference.odd_text) && has(all[r].text, usual_text);
        }
        EXPECT_GE(naming, 1u) << difference.name << " over " << transport << " of " << n;
      }
}

// After every plan has been used three times by all: rank `odd` does its call, the others the usual one, as operation
// #6. Where they use other lanes, and wait for each other, it is the deadline that ends them.
Outcome after_use(uint32_t rank, uint32_t n, const std::string& place, const char* transport, uint32_t odd,
                  const Difference& difference, std::barrier<>& all_used) {
  Outcome seen;
  tutti_comm_config config = config_of(place, rank, n);
  config.transports = transport;
  config.timeout_ns = 0;  // the default
  tutti_comm* comm = nullptr;
  EXPECT_EQ(tutti_comm_create(&config, &comm), TUTTI_OK);
  if (!comm) return all_used.arrive_and_drop(), seen;
  std::vector<float> data(count, 1);
  const auto call = [&](bool usual) {
    return usual ? tutti_all_reduce(comm, data.data(), data.data(), count, TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr)
                 : difference.odd(comm, data.data());
  };
  for (int k = 0; k < 6; ++k) EXPECT_EQ(call(k % 2), TUTTI_OK) << tutti_comm_error(comm);
  all_used.arrive_and_wait();
  seen.status = call(rank != odd);
  seen.text = tutti_comm_error(comm);
  seen.at_destroy = tutti_comm_destroy(comm);
  return seen;
}

TEST(AfterFirstUse, NoRankTakesTheBytesOfAnotherCall) {
  for (const char* transport : {"shm", "tcp"})
    for (uint32_t n = 2; n <= 5; ++n)
      for (const Difference& difference : differences) {
        const uint32_t odd = (n + static_cast<uint32_t>(&difference - differences)) % n;
        const VirtualTime time;
        std::vector<Outcome> all(n);
        const std::string place = fresh_place();
        std::barrier all_used(n);
        std::vector<std::thread> threads;
        for (uint32_t r = 0; r < n; ++r)
          threads.emplace_back([&, r] { all[r] = after_use(r, n, place, transport, odd, difference, all_used); });
        for (std::thread& t : threads) t.join();
        for (const Outcome& seen : all) {
          SCOPED_TRACE(testing::Message()
                       << difference.name << " of rank " << odd << " of " << n << " over " << transport << ", rank "
                       << &seen - all.data() << ": " << seen.status << " " << seen.text);
          EXPECT_TRUE(seen.status == TUTTI_MISMATCH || seen.at_destroy == TUTTI_MISMATCH);
          EXPECT_TRUE(seen.status != TUTTI_MISMATCH || (has(seen.text, "operation #6") && has(seen.text, usual_text) &&
                                                        has(seen.text, difference.odd_text)));
        }
      }
}

// A rank waits in a call for one that has made another call, which sends nothing, and destroys the communicator.
TEST(AfterFirstUse, WhoDestroysAfterAnotherCallIsFoundAtOnce) {
  const VirtualTime time;
  const Difference& nothing = differences[3];
  std::vector<Outcome> all(2);
  const std::string place = fresh_place();
  std::barrier all_used(2);
  std::thread other([&] { all[1] = after_use(1, 2, place, "shm", 1, nothing, all_used); });
  all[0] = after_use(0, 2, place, "shm", 1, nothing, all_used);
  other.join();
  EXPECT_EQ(all[0].status, TUTTI_MISMATCH);
  EXPECT_TRUE(has(all[0].text, "rank 1 called all_reduce(0 x float32, sum) as operation #6")) << all[0].text;
  EXPECT_LT(time.passed(), std::chrono::seconds(20));
}

// Calls under way at once, of which the fourth differs on one rank: no rank is told TUTTI_OK for it or for a later one.
TEST(AfterFirstUse, CallsUnderWayAtOnce) {
  for (const char* transport : {"shm", "tcp"})
    for (uint32_t n = 2; n <= 4; ++n) {
      std::barrier all_used(n);
      run_ranks(n,
                [n, &all_used](Communicator& comm) {
                  const auto sum_of = [&](int64_t& x, bool max) {
                    return comm.async().all_reduce<int64_t>({&x, 1}, {&x, 1}, max ? Op::max : Op::sum);
                  };
                  for (const bool max : {false, true}) {
                    int64_t x = 1;
                    sum_of(x, max).wait();
                  }
                  all_used.arrive_and_wait();
                  constexpr size_t calls = 7, odd = 3;
                  std::array<int64_t, calls> data;
                  data.fill(1);
                  std::vector<Request> requests;
                  failure_of([&] {  // a rank that is behind may not begin the last ones any more
                    for (size_t k = 0; k < calls; ++k) requests.push_back(sum_of(data[k], k == odd && comm.rank() == 1));
                  });
                  for (size_t k = 0; k < requests.size(); ++k) {
                    const Failed one = failure_of([&] { requests[k].wait(); });
                    if (one.status == TUTTI_OK) {
                      EXPECT_LT(k, odd);
                      EXPECT_EQ(data[k], static_cast<int64_t>(n));
                    } else {
                      EXPECT_EQ(one.status, TUTTI_MISMATCH) << one.text;
                      EXPECT_TRUE(has(one.text, "operation #5")) << one.text;
                    }
                  }
                },
                {transport});
    }
}

// No message passes between the calls that differ: the next one that does says which they were.
TEST(AfterFirstUse, TheNextMessageShowsADifferenceThatNoneHasShown) {
  for (const char* transport : {"shm", "tcp"})
    for (uint32_t n = 2; n <= 4; ++n) {
      std::barrier all_used(n);
      run_ranks(n,
                [n, &all_used](Communicator& comm) {
                  int32_t x = 1;
                  for (uint32_t root = 0; root < n; ++root) comm.broadcast<int32_t>({&x, 1}, root);
                  comm.all_reduce<int32_t>({&x, 1}, {&x, 1}, Op::max);
                  all_used.arrive_and_wait();
                  const Failed failed = failure_of([&] {
                    comm.broadcast<int32_t>({&x, 1}, comm.rank());
                    comm.all_reduce<int32_t>({&x, 1}, {&x, 1}, Op::max);
                  });
                  EXPECT_EQ(failed.status, TUTTI_MISMATCH);
                  EXPECT_TRUE(has(failed.text, "called broadcast(1 x int32, root")) << failed.text;
                  EXPECT_TRUE(has(failed.text, "operation #" + std::to_string(n + 1) + ",")) << failed.text;
                },
                {transport});
    }
}

// The status of each rank's tutti_comm_destroy after `calls`, and its text.
std::vector<Outcome> ends(uint32_t n, const char* transport,
                          const std::function<void(tutti_comm*, uint32_t rank)>& calls) {
  std::vector<Outcome> all(n);
  const std::string place = fresh_place();
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      tutti_comm_config config = config_of(place, r, n);
      config.transports = transport;
      tutti_comm* comm = nullptr;
      ASSERT_EQ(tutti_comm_create(&config, &comm), TUTTI_OK);
      calls(comm, r);
      all[r].at_destroy = tutti_comm_destroy(comm);
      all[r].text = tutti_comm_error(comm);
    });
  for (std::thread& t : threads) t.join();
  return all;
}

// Calls that return TUTTI_OK on all ranks, since every plan has been used and no rank waits for a message: destroying
// finds them, on every rank.
TEST(Destroying, FindsCallsThatDifferThoughAllSucceeded) {
  for (const char* transport : {"shm", "tcp"})
    for (uint32_t n = 2; n <= 4; ++n) {
      const auto all = ends(n, transport, [n](tutti_comm* comm, uint32_t rank) {
        int32_t x[2] = {1, 2};
        const auto broadcast = [&](uint32_t root) {
          EXPECT_EQ(tutti_broadcast(comm, x, x, 2, TUTTI_INT32, root, nullptr, nullptr), TUTTI_OK)
              << tutti_comm_error(comm);
        };
        for (uint32_t root = 0; root < n; ++root) broadcast(root);
        broadcast(rank);
      });
      for (const Outcome& rank : all) {
        EXPECT_EQ(rank.at_destroy, TUTTI_MISMATCH);
        EXPECT_TRUE(
            has(rank.text, "rank 1 called broadcast(2 x int32, root 1) as operation #" + std::to_string(n) +
                               ", rank 0 called broadcast(2 x int32, root 0): all ranks must make the same calls; "
                               "found when the communicator was destroyed"))
            << rank.text;
      }
    }
}

TEST(Destroying, FindsACallThatNotAllHaveMade) {
  const auto all = ends(3, "shm", [](tutti_comm* comm, uint32_t rank) {
    int32_t x = 1;
    for (uint32_t k = 0; k < (rank == 0 ? 2 : 1); ++k) {
      EXPECT_EQ(tutti_broadcast(comm, &x, &x, 1, TUTTI_INT32, 0, nullptr, nullptr), TUTTI_OK);
    }
  });
  for (const Outcome& rank : all) {
    EXPECT_EQ(rank.at_destroy, TUTTI_MISMATCH);
    EXPECT_TRUE(has(rank.text,
                    "rank 0 called broadcast(1 x int32, root 0) as operation #1, rank 1 called tutti_comm_destroy()"))
        << rank.text;
  }
}

TEST(Destroying, SaysSoWhereTheDifferenceIsLongAgo) {
  const auto all = ends(2, "shm", [](tutti_comm* comm, uint32_t rank) {
    const auto reduce_nothing = [&](uint32_t op) {  // no message passes
      EXPECT_EQ(tutti_all_reduce(comm, nullptr, nullptr, 0, TUTTI_INT32, op, nullptr, nullptr), TUTTI_OK)
          << tutti_comm_error(comm);
    };
    reduce_nothing(TUTTI_SUM);
    reduce_nothing(TUTTI_MAX);
    reduce_nothing(rank ? TUTTI_SUM : TUTTI_MAX);
    for (int k = 0; k < 40; ++k) reduce_nothing(TUTTI_SUM);
  });
  for (const Outcome& rank : all) {
    EXPECT_EQ(rank.at_destroy, TUTTI_MISMATCH);
    EXPECT_TRUE(has(rank.text, "rank 1 made other calls than rank 0, before the last 32 that are known")) << rank.text;
  }
}

// Each waits for the other's message: the deadline tells who is where.
TEST(Deadline, NamesBothCalls) {
  for (const char* transport : {"shm", "tcp"}) {
    const VirtualTime time;
    run_ranks(2,
              [](Communicator& comm) {
                float x = 1;
                for (const uint32_t root : {0, 1, 0, 1}) comm.broadcast<float>({&x, 1}, root);
                comm.barrier();
                const Failed failed = failure_of([&] { comm.broadcast<float>({&x, 1}, 1 - comm.rank()); });
                EXPECT_EQ(failed.status, TUTTI_MISMATCH);
                EXPECT_TRUE(has(failed.text, "broadcast(1 x float32, root 0)")) << failed.text;
                EXPECT_TRUE(has(failed.text, "broadcast(1 x float32, root 1)")) << failed.text;
              },
              {transport, nullptr, 0, default_timeout});
    EXPECT_GE(time.passed(), std::chrono::seconds(600));
    EXPECT_LT(time.passed(), late(std::chrono::seconds(600)));
  }
}

TEST(Deadline, NamesTheRankThatHasNotCome) {
  const VirtualTime time;
  std::atomic<uint32_t> over{0};
  run_ranks(4,
            [&over](Communicator& comm) {
              float x = 1;
              comm.barrier();
              comm.all_reduce<float>({&x, 1}, {&x, 1}, Op::max);
              if (comm.rank() == 2) {
                while (over < 3) std::this_thread::sleep_for(std::chrono::milliseconds(5));
                return;
              }
              const Failed failed = failure_of([&] { comm.all_reduce<float>({&x, 1}, {&x, 1}, Op::max); });
              ++over;
              EXPECT_LT(failed.status, 0);
              EXPECT_TRUE(has(failed.text,
                              "rank 2 has not entered operation #2: its last was #1, all_reduce(1 x float32, max)"))
                  << failed.text;
              EXPECT_EQ(has(failed.text, "flight record: "), TUTTI_RECORD) << failed.text;
            },
            {nullptr, nullptr, 0, default_timeout});
  EXPECT_GE(time.passed(), std::chrono::seconds(600));
  EXPECT_LT(time.passed(), late(std::chrono::seconds(600)));
}

}  // namespace
}  // namespace tutti::test
