// SPDX-License-Identifier: Apache-2.0
//
// Operations as users issue them: asynchronous ones in any number, blocking among asynchronous, send and receive,
// requests that are waited for in another order, two communicators at once, and every wrong argument.
#include <sys/mman.h>
#include <sys/resource.h>
#include <tutti/registry.h>
#include <tutti/schedule.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <mutex>

#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/virtual_time/virtual_time.hpp"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

TEST(Asynchronous, ManyMoreThanWindowsInAnyOrderOfWaiting) {
  for (const uint32_t flags : {0u, uint32_t{TUTTI_COMM_PROGRESS_THREAD}})
    run_ranks(3,
              [](Communicator& comm) {
                constexpr int operations = 50;
                std::vector<std::vector<int64_t>> data(operations);
                std::vector<Request> requests;
                for (int k = 0; k < operations; ++k) {
                  data[k].assign(static_cast<size_t>(k * 997 + 1), k + comm.rank());
                  requests.push_back(comm.async().all_reduce<int64_t>(data[k], data[k], Op::sum));
                }
                int64_t one = 1;
                comm.all_reduce<int64_t>({&one, 1}, {&one, 1}, Op::sum);  // blocking, behind all of them
                EXPECT_EQ(one, 3);
                for (int k = operations; k-- > 0;) {
                  requests[k].wait();
                  for (const int64_t x : data[k]) ASSERT_EQ(x, 3 * k + 3) << k;
                }
              },
              {nullptr, nullptr, flags});
}

TEST(Asynchronous, TestMakesProgress) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<float> data(100'000, 1.0f);
    Request request = comm.async().all_reduce<float>(data, data, Op::sum);
    while (!request.test()) std::this_thread::yield();
    EXPECT_EQ(data.back(), 2.0f);
  });
}

// One rank blocks in B while the other first waits for an earlier operation of A: legal, since A was issued by both.
TEST(Asynchronous, AWaitAdvancesOtherCommunicators) {
  const std::string a_place = fresh_place(), b_place = fresh_place();
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      Communicator a(config_of(a_place, r, 2)), b(config_of(b_place, r, 2));
      std::vector<double> data(1'000'000, r + 1.0);
      Request request = a.async().all_reduce<double>(data, data, Op::sum);
      if (r == 1) request.wait();
      b.barrier();
      request.wait();
      EXPECT_EQ(data[999'999], 3.0);
    });
  for (auto& t : threads) t.join();
}

TEST(Asynchronous, WaitForReturnsInTimeAndTheOperationGoesOn) {
  const VirtualTime time;
  std::atomic<bool> returned{false};
  run_ranks(2, [&](Communicator& comm) {
    while (comm.rank() == 1 && !returned) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    int32_t x = 1;
    Request request = comm.async().all_reduce<int32_t>({&x, 1}, {&x, 1}, Op::sum);
    if (comm.rank() == 0) {
      const auto begin = time.passed();
      EXPECT_FALSE(request.wait_for(20s));
      EXPECT_GE(time.passed() - begin, 20s);
      EXPECT_LT(time.passed() - begin, late(20s));
      returned = true;
    }
    request.wait();
    EXPECT_EQ(x, 2);
  });
}

// How long each of so many fruitless waits takes, in order.
std::vector<std::chrono::nanoseconds> real_time_of_waits(Request& request, int waits, std::chrono::nanoseconds time) {
  std::vector<std::chrono::nanoseconds> times;
  for (int i = 0; i < waits; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(request.wait_for(time));
    times.emplace_back(std::chrono::steady_clock::now() - begin);
  }
  std::ranges::sort(times);
  return times;
}

// How often this thread has given its core away in so many waits; stops at `enough`.
int real_time_sleeps_in_waits(Request& request, int waits, std::chrono::nanoseconds time, int enough) {
  const auto sleeps = [] {
    rusage used{};
    getrusage(RUSAGE_THREAD, &used);
    return used.ru_nvcsw;
  };
  const auto before = sleeps();
  for (int i = 0; i < waits && sleeps() - before < enough; ++i) EXPECT_FALSE(request.wait_for(time));
  return static_cast<int>(sleeps() - before);
}

// Like one long wait: a rank that polled in each of them would keep the core from the others on it.
TEST(Asynchronous, RealTimeManyShortWaitsSleepAndEndInTime) {
  using namespace std::chrono_literals;
  for (const char* transport : {"shm", "tcp"}) {
    std::atomic<bool> returned{false};
    run_ranks(2,
              [&](Communicator& comm) {
                comm.barrier();
                while (comm.rank() == 1 && !returned) std::this_thread::sleep_for(1ms);
                int32_t x = 1;
                Request request = comm.async().all_reduce<int32_t>({&x, 1}, {&x, 1}, Op::sum);
                if (comm.rank() == 0) {
                  const auto poll = real_time_of_waits(request, 33, 0ns)[16];
                  const auto few_polls = std::max<std::chrono::nanoseconds>(5us, 4 * poll);
                  real_time_sleeps_in_waits(request, 3000, few_polls, 50);  // spins and yields at first
                  EXPECT_GE(real_time_sleeps_in_waits(request, 200, few_polls, 50), 50) << transport;
                  const auto times = real_time_of_waits(request, 21, 1ms);
                  EXPECT_GE(times.front(), 1ms) << transport;
                  EXPECT_LT(times[10], 10ms) << transport;
                  returned = true;
                }
                request.wait();
                EXPECT_EQ(x, 2);
              },
              {transport});
  }
}

TEST(PointToPoint, SizesTagsAndOrder) {
  for (const char* transport : {"shm", "tcp"})
    run_ranks(2,
              [](Communicator& comm) {
                const uint32_t other = 1 - comm.rank();
                for (const size_t count : {0u, 1u, 58u, 59u, 1000u, 300'000u}) {
                  std::vector<int32_t> mine(count, static_cast<int32_t>(comm.rank() + 10)), theirs(count);
                  Request sending = comm.async().send<int32_t>(mine, other, 7);
                  comm.receive<int32_t>(theirs, other, 7);
                  sending.wait();
                  for (const int32_t x : theirs) ASSERT_EQ(x, static_cast<int32_t>(other + 10)) << count;
                }
                // Tags are matched, whatever the order of arrival; equal tags in order.
                constexpr int n = 200;
                std::vector<int32_t> values(n);
                if (comm.rank() == 0) {
                  std::vector<Request> requests;
                  for (int k = 0; k < n; ++k) {
                    values[k] = k;
                    requests.push_back(comm.async().send<int32_t>({&values[k], 1}, 1, static_cast<uint32_t>(k % 3)));
                  }
                  for (auto& r : requests) r.wait();
                } else {
                  std::vector<Request> requests;
                  std::vector<int> expected;
                  for (int tag = 2; tag >= 0; --tag)
                    for (int k = tag; k < n; k += 3) expected.push_back(k);
                  for (int i = 0; i < n; ++i)
                    requests.push_back(
                        comm.async().receive<int32_t>({&values[i], 1}, 0, static_cast<uint32_t>(expected[i] % 3)));
                  for (auto& r : requests) r.wait();
                  for (int i = 0; i < n; ++i) ASSERT_EQ(values[i], expected[i]);
                }
              },
              {transport});
}

// All groups are under way before anybody waits, beside a collective; a group of none is complete.
TEST(PointToPoint, GroupsGoOnTogether) {
  run_ranks(3, [](Communicator& comm) {
    constexpr uint64_t count = 100'000;
    const uint32_t next = (comm.rank() + 1) % 3, previous = (comm.rank() + 2) % 3;
    std::vector<std::vector<int32_t>> out(4), in(4);
    std::vector<Request> requests;
    for (uint32_t g = 0; g < 4; ++g) {
      out[g].assign(count, static_cast<int32_t>(10 * g + comm.rank()));
      in[g].assign(count, -1);
      const tutti_message messages[] = {{in[g].data(), count, TUTTI_INT32, previous, g, TUTTI_RECEIVE},
                                        {out[g].data(), count, TUTTI_INT32, next, g, TUTTI_SEND}};
      requests.push_back(comm.async().exchange(messages));
    }
    comm.barrier();
    while (!requests.empty()) {
      requests.back().wait();
      requests.pop_back();
    }
    for (uint32_t g = 0; g < 4; ++g)
      for (const int32_t x : in[g]) ASSERT_EQ(x, static_cast<int32_t>(10 * g + previous));
    comm.exchange({});
    comm.async().exchange({}).wait();
  });
}

// Of a message that waits for its receiver.
TEST(PointToPoint, ASizeMismatchIsAnErrorOnBothSides) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<int32_t> data(comm.rank() ? 10'000 : 20'000);
    const Failed failed = failure_of([&] {
      if (comm.rank() == 0)
        comm.send<int32_t>(data, 1);
      else
        comm.receive<int32_t>(data, 0);
    });
    EXPECT_EQ(failed.status, TUTTI_MISMATCH);
    EXPECT_NE(failed.text.find("40000 bytes"), std::string::npos) << failed.text;
    EXPECT_NE(failed.text.find("80000 bytes"), std::string::npos) << failed.text;
    comm.barrier();  // the communicator goes on
  });
}

TEST(PointToPoint, MixesWithCollectives) {
  run_ranks(3, [](Communicator& comm) {
    const uint32_t n = comm.nranks(), right = (comm.rank() + 1) % n, left = (comm.rank() + n - 1) % n;
    for (int round = 0; round < 50; ++round) {
      std::vector<int32_t> out(5000, round), in(5000), sum(100, 1);
      Request s = comm.async().send<int32_t>(out, right);
      Request a = comm.async().all_reduce<int32_t>(sum, sum, Op::sum);
      Request r = comm.async().receive<int32_t>(in, left);
      r.wait();
      a.wait();
      s.wait();
      ASSERT_EQ(in[4999], round);
      ASSERT_EQ(sum[99], 3);
    }
  });
}

TEST(Meeting, ByUniqueIdAndByFolder) {
  tutti_unique_id id{};
  ASSERT_EQ(tutti_unique_id_create(&id), TUTTI_OK);
  std::string folder = testing::TempDir() + "tutti-meeting-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  for (const std::string& place : {std::string(id.text), "file:" + folder}) {
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < 3; ++r)
      threads.emplace_back([&, r] {
        const Failed failed = failure_of([&] {
          Communicator comm(config_of(place, r, 3));
          int64_t x = r;
          comm.all_reduce<int64_t>({&x, 1}, {&x, 1}, Op::sum);
          EXPECT_EQ(x, 3);
        });
        EXPECT_EQ(failed.status, TUTTI_OK) << failed.text;
      });
    for (auto& t : threads) t.join();
  }
}

struct Gathering {
  std::mutex mutex;
  std::condition_variable arrived;
  std::string mine[2][2];  // by round, since one rank may be a round ahead of the other's copying
  uint32_t here = 0, round = 0;
};
struct Guest {
  Gathering* gathering;
  uint32_t rank;
};
tutti_status gather_by_hand(void* context, const void* mine, uint64_t bytes, void* all) {
  const Guest& guest = *static_cast<Guest*>(context);
  Gathering& g = *guest.gathering;
  std::unique_lock lock(g.mutex);
  const uint32_t round = g.round;
  g.mine[round % 2][guest.rank].assign(static_cast<const char*>(mine), bytes);
  if (++g.here == 2) {
    g.here = 0;
    ++g.round;
    g.arrived.notify_all();
  } else {
    g.arrived.wait(lock, [&] { return g.round != round; });
  }
  for (uint32_t r = 0; r < 2; ++r) std::memcpy(static_cast<char*>(all) + r * bytes, g.mine[round % 2][r].data(), bytes);
  return TUTTI_OK;
}

TEST(Meeting, ByTheApplicationsOwnAllGather) {
  Gathering gathering;
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      Guest guest{&gathering, r};
      tutti_comm_config config{sizeof config};
      config.rank = r;
      config.nranks = 2;
      config.all_gather = gather_by_hand;
      config.all_gather_context = &guest;
      const Failed failed = failure_of([&] {
        Communicator comm(config);
        comm.barrier();
      });
      EXPECT_EQ(failed.status, TUTTI_OK) << failed.text;
    });
  for (auto& t : threads) t.join();
}

// Creation alone calls the function: destroying has its deadline, and needs neither the function nor its context.
TEST(Meeting, DestroyDoesNotCallTheApplicationsAllGather) {
  Gathering gathering;
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  const VirtualTime time;
  for (uint32_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      tutti_comm* comm = nullptr;
      {
        Guest guest{&gathering, r};
        tutti_comm_config config{sizeof config};
        config.rank = r;
        config.nranks = 2;
        config.all_gather = gather_by_hand;
        config.all_gather_context = &guest;
        ASSERT_EQ(tutti_comm_create(&config, &comm), TUTTI_OK);
        ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
        guest = {nullptr, 0};
      }
      if (r == 0)  // it is late
        while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const auto begin = time.passed();
      EXPECT_EQ(tutti_comm_destroy(comm), TUTTI_TIMEOUT);
      if (r == 1) {
        EXPECT_GE(time.passed() - begin, 30s);
        EXPECT_LT(time.passed() - begin, late(30s));
      }
      over = true;
      const std::string text = tutti_comm_error(comm);
      EXPECT_NE(text.find("rank 0 did not arrive"), std::string::npos) << text;
    });
  for (auto& t : threads) t.join();
}

TEST(Memory, TheApplicationsOwnSharedMemoryIsAddressedDirectly) {
  run_ranks(2, [](Communicator& comm) {
    constexpr size_t bytes = 4 << 20, offset = 8192;
    const int fd = memfd_create("application", MFD_CLOEXEC);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(ftruncate(fd, bytes + offset), 0);
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
    ASSERT_NE(memory, MAP_FAILED);
    ASSERT_EQ(tutti_mem_register(memory, bytes, fd, offset), TUTTI_OK);
    EXPECT_EQ(tutti_mem_register(static_cast<char*>(memory) + 64, 64, fd, offset + 64),
              TUTTI_INVALID_ARGUMENT);  // overlaps
    close(fd);
    auto* data = static_cast<int32_t*>(memory);
    for (size_t i = 0; i < bytes / 4; ++i) data[i] = static_cast<int32_t>(i + comm.rank());
    comm.all_reduce<int32_t>({data, bytes / 4}, {data, bytes / 4}, Op::sum);
    for (size_t i = 0; i < bytes / 4; ++i) ASSERT_EQ(data[i], static_cast<int32_t>(2 * i + 1));
    comm.barrier();  // nobody reads it any more
    EXPECT_EQ(tutti_mem_deregister(memory), TUTTI_OK);
    EXPECT_EQ(tutti_mem_deregister(memory), TUTTI_INVALID_ARGUMENT);
    munmap(memory, bytes);
  });
}

// Peers map the descriptor: memory that is something else must be refused, or they would read something else.
TEST(Memory, WhatIsNotTheDescriptorsMemoryIsRefused) {
  constexpr size_t bytes = 1 << 20;
  const int fd = memfd_create("application", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, bytes), 0);
  void* shared = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  void* own = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  void* anonymous = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_EQ(tutti_mem_register(own, bytes, fd, 0), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(tutti_mem_register(anonymous, bytes, fd, 0), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(tutti_mem_register(shared, bytes / 2, fd, 4096), TUTTI_INVALID_ARGUMENT);  // another offset
  EXPECT_EQ(tutti_mem_register(shared, bytes + 4096, fd, 0), TUTTI_INVALID_ARGUMENT);  // past its end
  EXPECT_EQ(tutti_mem_register(shared, bytes, fd, 0), TUTTI_OK);
  EXPECT_EQ(tutti_mem_deregister(shared), TUTTI_OK);
  for (void* memory : {shared, own, anonymous}) munmap(memory, bytes);
  close(fd);
}

// Rank 0's buffers are aligned, so the ranks compare the type of the call.
TEST(Memory, ElementsThatOnlyMoveMayLieAtAnyAddress) {
  for (const uint32_t flags : {0u, uint32_t{TUTTI_COMM_CHECK_CALLS}})
    for (const uint64_t count : {1, 1000, 100'000})
      run_ranks(3,
                [count](Communicator& comm) {
                  const uint64_t bytes = count * sizeof(double);
                  std::vector<std::byte> memory(6 * bytes + 16, std::byte(comm.rank()));
                  std::byte *const in = memory.data() + comm.rank(), *const out = in + 3 * bytes;
                  const auto came_from = [&](uint32_t root, const std::byte* block) {
                    EXPECT_EQ(std::count(block, block + bytes, std::byte(root)), bytes) << count << " from " << root;
                  };
                  tutti_comm* const c = comm.handle();
                  const auto passes = [c](tutti_status status) { EXPECT_EQ(status, TUTTI_OK) << tutti_comm_error(c); };
                  passes(tutti_broadcast(c, in, out, count, TUTTI_FLOAT64, 1, nullptr, nullptr));
                  came_from(1, out);
                  for (const bool to_all : {false, true}) {
                    std::fill_n(out, 3 * bytes, std::byte(9));
                    passes(to_all ? tutti_all_to_all(c, in, out, count, TUTTI_FLOAT64, nullptr, nullptr)
                                  : tutti_all_gather(c, in, out, count, TUTTI_FLOAT64, nullptr, nullptr));
                    for (uint32_t root = 0; root < 3; ++root) came_from(root, out + root * bytes);
                  }
                  const uint32_t next = (comm.rank() + 1) % 3, before = (comm.rank() + 2) % 3;
                  const tutti_message messages[] = {{in, count, TUTTI_FLOAT64, next, 0, TUTTI_SEND, {}},
                                                    {out, count, TUTTI_FLOAT64, before, 0, TUTTI_RECEIVE, {}}};
                  passes(tutti_exchange(c, messages, 2, nullptr, nullptr));
                  came_from(before, out);
                },
                {nullptr, nullptr, flags});
}

TEST(Requests, OutliveTheirCommunicator) {
  std::latch destroyed(1);  // by rank 0: if rank 1 were the first, that would be why the operation fails
  run_ranks(2, [&](Communicator& comm) {
    std::vector<float> data(1000);
    tutti_request* request = nullptr;
    {
      const std::string place = "local:short-lived";
      tutti_comm_config config = config_of(place, comm.rank(), 2);
      Communicator brief(config);
      if (comm.rank() == 0) {
        ASSERT_EQ(tutti_all_reduce(brief.handle(), data.data(), data.data(), 1000, TUTTI_FLOAT32, TUTTI_SUM, nullptr,
                                   &request),
                  TUTTI_OK);
      } else {
        destroyed.wait();
      }
    }
    if (comm.rank() == 0) {
      destroyed.count_down();
      EXPECT_LT(tutti_request_wait(request), 0);
      EXPECT_NE(std::string(tutti_request_error(request)).find("with 1 operations pending"), std::string::npos)
          << tutti_request_error(request);
    }
    tutti_request_free(request);
    comm.barrier();
  });
}

TEST(Creation, ARankLeftByAnExceptionKeepsNobodyWaiting) {
  const auto begin = std::chrono::steady_clock::now();
  run_ranks(2, [](Communicator& comm) {
    const std::string place = "local:exception";
    try {
      Communicator brief(config_of(place, comm.rank(), 2));
      brief.barrier();
      if (comm.rank() == 1) throw 42;
      EXPECT_LT(failure_of([&] { brief.barrier(); }).status, 0);
    } catch (int) {
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));  // the deadlines
}

TEST(PointToPoint, GoesOnInsideABlockingCollective) {
  for (const char* transport : {"shm", "tcp"})
    run_ranks(2,
              [](Communicator& comm) {
                std::vector<int32_t> data(300'000, comm.rank() ? 5 : 0);
                if (comm.rank() == 0) {
                  Request receiving = comm.async().receive<int32_t>(data, 1);
                  comm.barrier();
                  receiving.wait();
                  EXPECT_EQ(data.back(), 5);
                } else {
                  comm.send<int32_t>(data, 0);
                  comm.barrier();
                }
              },
              {transport});
}

TEST(Deadlines, IdleTimeIsNotWaitingTime) {
  const VirtualTime time;
  run_ranks(2,
            [](Communicator& comm) {
              int32_t x = 1;
              for (int round = 0; round < 2; ++round) {
                std::this_thread::sleep_for(comm.rank() ? 700s : 610s);
                if (comm.rank() == 0)
                  comm.receive<int32_t>({&x, 1}, 1);
                else
                  comm.send<int32_t>({&x, 1}, 0);
              }
            },
            {nullptr, nullptr, 0, default_timeout});
  EXPECT_GE(time.passed(), 2 * 700s);
  EXPECT_LT(time.passed(), late(2 * 700s));
}

TEST(Deadlines, OptionsHoldForSendAndReceive) {
  const VirtualTime time;
  std::atomic<bool> over{false};
  run_ranks(2, [&](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 1) {
      while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    tutti_options options{sizeof options};
    options.timeout_ns = 45'000'000'000;
    int32_t x = 0;
    const auto begin = time.passed();
    EXPECT_EQ(tutti_receive(comm.handle(), &x, 1, TUTTI_INT32, 1, 0, &options, nullptr), TUTTI_TIMEOUT);
    EXPECT_GE(time.passed() - begin, 45s);
    EXPECT_LT(time.passed() - begin, late(45s));
    over = true;
    EXPECT_NE(std::string(tutti_comm_error(comm.handle())).find("45.0 s"), std::string::npos)
        << tutti_comm_error(comm.handle());
  });
}

// The root's small broadcasts are over at once; whoever receives must not depend on the root calling Tutti again.
TEST(Progress, ACompletedSendNeedsNobody) {
  for (const char* transport : {"shm", "tcp"}) {
    std::atomic<bool> received{false};
    run_ranks(2,
              [&](Communicator& comm) {
                comm.barrier();
                int64_t x = 1;
                for (int i = 0; i < 200; ++i) comm.broadcast<int64_t>({&x, 1}, 0);
                if (comm.rank() == 1) received = true;
                while (!received) std::this_thread::sleep_for(std::chrono::milliseconds(1));
              },
              {transport});
    EXPECT_TRUE(received);
  }
}

TEST(Failure, AnAbortFromAnotherThreadIsNoticedByCallsThatNeverWait) {
  run_ranks(1, [](Communicator& comm) {
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      comm.abort("enough");
    });
    const Failed failed = failure_of([&] {
      for (;;) {
        int32_t x = 1;
        comm.all_reduce<int32_t>({&x, 1}, {&x, 1}, Op::sum);
      }
    });
    other.join();
    EXPECT_EQ(failed.status, TUTTI_ABORTED);
    EXPECT_NE(failed.text.find("enough"), std::string::npos) << failed.text;
  });
  for (int round = 0; round < 20; ++round)
    run_ranks(2, [&](Communicator& comm) {
      std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(round * 150));
        if (comm.rank() == 0) comm.abort("enough");
      });
      const Failed failed = failure_of([&] {
        std::vector<float> data(5000);
        for (;;) comm.all_reduce<float>(data, data, Op::sum);
      });
      other.join();
      EXPECT_LT(failed.status, 0);
    });
}

TEST(Reports, NamesStayWhereTheyAre) {
  run_ranks(2, [](Communicator& comm) {
    comm.barrier();
    const auto before = comm.services();
    const std::string name = before[0].collective;
    std::vector<float> in(64), out(128);
    comm.all_gather<float>(in, out);
    comm.broadcast<float>(in, 0);
    comm.all_reduce<float>(in, in, Op::sum);
    comm.reduce<float>(in, std::span(out).first(64), Op::sum, 0);
    EXPECT_EQ(name, before[0].collective);
  });
}

// Whatever the caller's rows held before.
TEST(Reports, ReservedRoomOfRowsIsZero) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<float> in(64), out(128);
    comm.all_gather<float>(in, out);
    const auto check = [&](auto row, auto ask, auto room) {
      std::vector<decltype(row)> rows(8);
      std::memset(static_cast<void*>(rows.data()), 0xff, rows.size() * sizeof row);
      uint64_t n = rows.size();
      ASSERT_EQ(ask(comm.handle(), rows.data(), &n), TUTTI_OK);
      for (uint64_t i = 0; i < n && i < rows.size(); ++i)
        for (const uint64_t word : room(rows[i])) EXPECT_EQ(word, 0u);
      if (n < rows.size()) {
        EXPECT_NE(room(rows[n])[0], 0u) << "written behind the last row";
      }
    };
    check(tutti_service{}, tutti_comm_services, [](auto& row) { return std::to_array(row.reserved); });
    check(tutti_link_traffic{}, tutti_comm_traffic, [](auto& row) { return std::to_array(row.reserved1); });
    check(tutti_rail_traffic{}, tutti_comm_rails, [](auto& row) { return std::to_array(row.reserved); });
  });
}

TEST(Reports, ThePlanTellsWhichScheduleRan) {
  run_ranks(3, [](Communicator& comm) {
    tutti_plan_facts facts{sizeof(tutti_plan_facts)};
    EXPECT_EQ(tutti_comm_plan(comm.handle(), TUTTI_ALL_GATHER, &facts), TUTTI_NOT_FOUND);
    std::vector<float> in(64), out(192);
    comm.all_gather<float>(in, out);
    ASSERT_EQ(tutti_comm_plan(comm.handle(), TUTTI_ALL_GATHER, &facts), TUTTI_OK) << tutti_comm_error(comm.handle());
    Problem problem;
    problem.collective = TUTTI_ALL_GATHER;
    problem.nranks = 3;
    problem.lanes = 4;
    problem.hosts = {0, 0, 0};
    Schedule schedule;
    std::string error;
    const tutti_algorithm* algorithm = find_algorithm(facts.algorithm, &error);
    ASSERT_TRUE(algorithm) << error;
    ASSERT_EQ(build_schedule(*algorithm, make_query(problem, comm.rank()), &schedule, &error), TUTTI_OK) << error;
    EXPECT_EQ(facts.schedule_hash, schedule_hash(schedule));
    EXPECT_GE(facts.slices, 1u);
    facts.struct_size = 8;
    EXPECT_EQ(tutti_comm_plan(comm.handle(), TUTTI_ALL_GATHER, &facts), TUTTI_INVALID_ARGUMENT);
  });
}

struct Wrong {
  const char* what;
  std::function<tutti_status(tutti_comm*)> call;
  tutti_status status;
  const char* says;
};

TEST(WrongArguments, EachIsNamed) {
  static float a[64], b[64];
  const Wrong wrongs[] = {
      {"null in",
       [](tutti_comm* c) { return tutti_all_reduce(c, nullptr, b, 4, TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr); },
       TUTTI_INVALID_ARGUMENT, "in is NULL, expected a buffer of 16 bytes"},
      {"null out",
       [](tutti_comm* c) { return tutti_all_reduce(c, a, nullptr, 4, TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr); },
       TUTTI_INVALID_ARGUMENT, "out is NULL"},
      {"misaligned",
       [](tutti_comm* c) {
         return tutti_all_reduce(c, reinterpret_cast<char*>(a) + 1, b, 4, TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr);
       },
       TUTTI_INVALID_ARGUMENT, "not aligned"},
      {"overlap",
       [](tutti_comm* c) { return tutti_all_reduce(c, a, a + 1, 4, TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr); },
       TUTTI_INVALID_ARGUMENT, "overlap"},
      {"gather overlap",
       [](tutti_comm* c) { return tutti_all_gather(c, a + 3, a, 4, TUTTI_FLOAT32, nullptr, nullptr); },
       TUTTI_INVALID_ARGUMENT, "in == out + rank * count"},
      {"dtype", [](tutti_comm* c) { return tutti_all_reduce(c, a, b, 4, 99, TUTTI_SUM, nullptr, nullptr); },
       TUTTI_INVALID_ARGUMENT, "99 is not a data type"},
      {"dtype 0", [](tutti_comm* c) { return tutti_all_reduce(c, a, b, 4, 0, TUTTI_SUM, nullptr, nullptr); },
       TUTTI_INVALID_ARGUMENT, "0 is not a data type"},
      {"op", [](tutti_comm* c) { return tutti_all_reduce(c, a, b, 4, TUTTI_FLOAT32, 99, nullptr, nullptr); },
       TUTTI_INVALID_ARGUMENT, "99 is not an operator"},
      {"op of another type",
       [](tutti_comm* c) { return tutti_all_reduce(c, a, b, 4, TUTTI_FLOAT32, TUTTI_BAND, nullptr, nullptr); },
       TUTTI_INVALID_ARGUMENT,
       "all_reduce: operator band is not defined for float32: expected one of sum, prod, min, max, avg, or a type that "
       "has it (int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool)"},
      {"sum of truth values",
       [](tutti_comm* c) { return tutti_reduce(c, a, b, 4, TUTTI_BOOL, TUTTI_SUM, 0, nullptr, nullptr); },
       TUTTI_INVALID_ARGUMENT,
       "reduce: operator sum is not defined for bool: expected one of band, bor, bxor, land, lor, lxor"},
      {"root", [](tutti_comm* c) { return tutti_broadcast(c, a, b, 4, TUTTI_FLOAT32, 2, nullptr, nullptr); },
       TUTTI_INVALID_ARGUMENT, "root is 2, expected less than 2"},
      {"overflow",
       [](tutti_comm* c) {
         return tutti_all_reduce(c, a, b, UINT64_MAX / 2, TUTTI_FLOAT32, TUTTI_SUM, nullptr, nullptr);
       },
       TUTTI_INVALID_ARGUMENT, "more than can be addressed"},
      {"self",
       [](tutti_comm* c) { return tutti_send(c, a, 4, TUTTI_FLOAT32, tutti_comm_rank(c), 0, nullptr, nullptr); },
       TUTTI_INVALID_ARGUMENT, "this rank itself"},
      {"peer", [](tutti_comm* c) { return tutti_receive(c, a, 4, TUTTI_FLOAT32, 9, 0, nullptr, nullptr); },
       TUTTI_INVALID_ARGUMENT, "peer is 9"},
      {"stream",
       [](tutti_comm* c) {
         tutti_options options{sizeof options};
         options.stream = a;
         return tutti_all_reduce(c, a, b, 4, TUTTI_FLOAT32, TUTTI_SUM, &options, nullptr);
       },
       TUTTI_NOT_SUPPORTED, "stream"},
      {"options size",
       [](tutti_comm* c) {
         tutti_options options{4};
         return tutti_all_reduce(c, a, b, 4, TUTTI_FLOAT32, TUTTI_SUM, &options, nullptr);
       },
       TUTTI_INVALID_ARGUMENT, "struct_size is 4"},
      {"sum of pairs",
       [](tutti_comm* c) { return tutti_all_reduce(c, a, b, 4, TUTTI_FLOAT32_INT32, TUTTI_SUM, nullptr, nullptr); },
       TUTTI_INVALID_ARGUMENT,
       "all_reduce: operator sum is not defined for float32_int32: expected one of minloc, maxloc, or a type that has "
       "it (int8, "},
      {"place without an index",
       [](tutti_comm* c) { return tutti_scan(c, a, b, 4, TUTTI_FLOAT32, TUTTI_MINLOC, nullptr, nullptr); },
       TUTTI_INVALID_ARGUMENT,
       "scan: operator minloc is not defined for float32: expected one of sum, prod, min, max, avg, or a type that has "
       "it (float32_int32, float64_int64)"},
      {"dtype behind the last",
       [](tutti_comm* c) { return tutti_send(c, a, 4, TUTTI_FLOAT64_INT64 + 1, 1, 0, nullptr, nullptr); },
       TUTTI_INVALID_ARGUMENT, "20 is not a data type"},
      {"op behind the last",
       [](tutti_comm* c) {
         return tutti_reduce(c, a, b, 4, TUTTI_FLOAT32_INT32, TUTTI_MAXLOC + 1, 0, nullptr, nullptr);
       },
       TUTTI_INVALID_ARGUMENT, "14 is not an operator"},
      {"operator of the application",
       [](tutti_comm* c) {
         return tutti_all_reduce(c, a, b, 4, TUTTI_FLOAT32, TUTTI_FIRST_USER_OP + 7, nullptr, nullptr);
       },
       TUTTI_INVALID_ARGUMENT,
       "operator 0x10007 is not an operator of this communicator: make one with tutti_op_create"},
      {"collective that no mask has",
       [](tutti_comm* c) {
         tutti_plan_facts facts{sizeof facts};
         return tutti_comm_plan(c, 0x10000, &facts);
       },
       TUTTI_INVALID_ARGUMENT, "65536 is not a collective"},
      {"reserved words of a message",
       [](tutti_comm* c) {
         const tutti_message message{a, 4, TUTTI_FLOAT32, 1 - tutti_comm_rank(c), 0, TUTTI_SEND, {0, 0, 0, 1}};
         return tutti_exchange(c, &message, 1, nullptr, nullptr);
       },
       TUTTI_NOT_SUPPORTED, "messages[0]: reserved is not 0"},
  };
  run_ranks(2, [&](Communicator& comm) {
    for (const Wrong& wrong : wrongs) {
      EXPECT_EQ(wrong.call(comm.handle()), wrong.status) << wrong.what;
      const std::string text = tutti_comm_error(comm.handle());
      EXPECT_NE(text.find(wrong.says), std::string::npos) << wrong.what << ": " << text;
      EXPECT_EQ(text.rfind("rank " + std::to_string(comm.rank()), 0), 0u) << text;
    }
    comm.barrier();  // none of them has harmed the communicator
  });
}

TEST(Creation, SaysWhatIsWrong) {
  const auto error_of = [](tutti_comm_config config) { return failure_of([&] { Communicator comm(config); }); };
  const std::string place = fresh_place();
  tutti_comm_config config = config_of(place, 0, 1);
  config.transports = "carrier-pigeon";
  config.nranks = 2;
  config.rank = 5;
  EXPECT_NE(error_of(config).text.find("rank is 5, expected less than nranks, which is 2"), std::string::npos);
  config = config_of(place, 0, 1);
  config.algorithms = "all_reduce:magic";
  EXPECT_NE(error_of(config).text.find("there is no algorithm \"magic\"; there are:"), std::string::npos)
      << error_of(config).text;
  config.algorithms = "all_shuffle:ring";
  EXPECT_NE(error_of(config).text.find("all_reduce"), std::string::npos) << error_of(config).text;
  config.algorithms = nullptr;
  config.windows = 1000;
  EXPECT_NE(error_of(config).text.find("windows is 1000"), std::string::npos);
  config = config_of(place, 0, 1);
  config.struct_size = 3;
  EXPECT_EQ(error_of(config).status, TUTTI_INVALID_ARGUMENT);
}

// Both ranks must hear of it, also the one whose own configuration is right.
Failed creation_failure(uint32_t rank, const std::string& place, const char* transports, uint32_t windows) {
  tutti_comm_config config = config_of(place, rank, 2);
  config.transports = transports;
  config.windows = windows;
  return failure_of([&] { Communicator comm(config); });
}

TEST(Creation, DisagreementsNameBothRanksAndValues) {
  const std::string place = fresh_place();
  Failed failed[2];
  std::thread other([&] { failed[1] = creation_failure(1, place, nullptr, 8); });
  failed[0] = creation_failure(0, place, nullptr, 4);
  other.join();
  for (const Failed& f : failed) {
    EXPECT_EQ(f.status, TUTTI_MISMATCH);
    EXPECT_NE(f.text.find("windows: rank 0 has 4, rank 1 has 8"), std::string::npos) << f.text;
  }
}

TEST(Creation, UnknownTransportsAreRefusedEverywhere) {
  const std::string place = fresh_place();
  Failed failed[2];
  std::thread other([&] { failed[1] = creation_failure(1, place, "carrier-pigeon", 0); });
  failed[0] = creation_failure(0, place, "carrier-pigeon", 0);
  other.join();
  for (const Failed& f : failed)
    EXPECT_NE(f.text.find("there is no transport \"carrier-pigeon\"; there are:"), std::string::npos) << f.text;
}

TEST(Failure, ARankThatNeverComesIsATimeoutThatSaysWhereItStands) {
  const VirtualTime time;
  run_ranks(2,
            [&](Communicator& comm) {
              comm.barrier();
              if (comm.rank() == 1) return std::this_thread::sleep_for(900s);
              int32_t x = 0;
              const auto begin = time.passed();
              const Failed failed = failure_of([&] { comm.all_reduce<int32_t>({&x, 1}, {&x, 1}, Op::sum); });
              EXPECT_GE(time.passed() - begin, 600s);
              EXPECT_LT(time.passed() - begin, late(600s));
              EXPECT_EQ(failed.status, TUTTI_TIMEOUT) << failed.text;
              EXPECT_NE(failed.text.find("all_reduce #1"), std::string::npos) << failed.text;
              EXPECT_NE(failed.text.find("rank 1"), std::string::npos) << failed.text;
              EXPECT_LT(tutti_comm_async_error(comm.handle()), 0);
            },
            {nullptr, nullptr, 0, default_timeout});
}

TEST(Failure, AbortEndsTheOthersToo) {
  run_ranks(2, [](Communicator& comm) {
    if (comm.rank() == 1) {
      comm.barrier();
      comm.abort("the cat is on the keyboard");
      return;
    }
    // The abort may overtake what rank 1 has told in the first one.
    const Failed failed = failure_of([&] {
      comm.barrier();
      comm.barrier();
    });
    EXPECT_LT(failed.status, 0);
    EXPECT_NE(failed.text.find("the cat is on the keyboard"), std::string::npos) << failed.text;
  });
}

TEST(Reports, TellWhatServed) {
  run_ranks(2,
            [](Communicator& comm) {
              std::vector<float> data(1000);
              for (int i = 0; i < 3; ++i) comm.all_reduce<float>(data, data, Op::sum);
              const auto services = comm.services();
              ASSERT_EQ(services.size(), 1u);
              EXPECT_STREQ(services[0].collective, "all_reduce");
              EXPECT_STREQ(services[0].algorithm, "ring");
              EXPECT_STREQ(services[0].transports, "shm");
              EXPECT_EQ(services[0].calls, 3u);
              EXPECT_EQ(services[0].bytes, 12'000u);
              const auto traffic = comm.traffic();
              ASSERT_EQ(traffic.size(), 1u);
              EXPECT_EQ(traffic[0].sent_bytes, 12'000u);  // 2 (n-1)/n of the data, three times
              EXPECT_EQ(traffic[0].received_bytes, 12'000u);
              uint64_t bytes = 0;
              EXPECT_EQ(tutti_comm_explain(comm.handle(), TUTTI_ALL_REDUCE, 1000, TUTTI_FLOAT32, nullptr, &bytes),
                        TUTTI_NO_RESOURCES);
              std::string text(bytes, '\0');
              EXPECT_EQ(tutti_comm_explain(comm.handle(), TUTTI_ALL_REDUCE, 1000, TUTTI_FLOAT32, text.data(), &bytes),
                        TUTTI_OK);
              EXPECT_NE(text.find("TUTTI_ALGO"), std::string::npos) << text;
            },
            {"shm", "all_reduce:ring"});
}

}  // namespace
}  // namespace tutti::test
