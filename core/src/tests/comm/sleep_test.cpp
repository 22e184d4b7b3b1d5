// SPDX-License-Identifier: Apache-2.0
//
// How a wait sleeps: also while other communicators of the process have pending operations, until any of them has
// something to do, and without holding up other threads. Here a sleep has no limit of its own: one that nothing ends
// lasts until the test is over.
#include <poll.h>
#include <sched.h>
#include <tutti/tutti.h>

#include <atomic>
#include <functional>

#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/real_function.hpp"
#include "../../../tests/harness/stream_ranks.hpp"

namespace {

constexpr timespec limit{60, 0};
thread_local bool watched = false;
std::atomic<uint64_t> sleeps{0}, ends{0}, yields{0};  // of watched threads
std::atomic<bool> late{false};                        // a sleep has reached the limit

}  // namespace

extern "C" int ppoll(pollfd* fds, nfds_t n, const timespec* timeout, const sigset_t* mask) {
  static constinit tutti::test::Real<int(pollfd*, nfds_t, const timespec*, const sigset_t*)> real("ppoll");
  if (!watched) return (*real)(fds, n, timeout, mask);
  ++sleeps;
  const int ready = (*real)(fds, n, &limit, mask);
  if (ready == 0) late = true;
  ++ends;
  return ready;
}
extern "C" int sched_yield() noexcept {
  static constinit tutti::test::Real<int()> real("sched_yield");
  if (watched) ++yields;
  return (*real)();
}

namespace tutti::test {
namespace {

// Until as many watched threads sleep. One that does not come to it yields for ever.
bool await_sleepers(uint64_t n) {
  while (sleeps - ends < n) {
    if (yields > 1'000'000 || late) return false;
    std::this_thread::yield();
  }
  return true;
}

// Calls of the two ranks on two communicators. The waits of rank 0 are watched.
using OnTwo = std::function<void(Communicator& first, Communicator& second)>;

void run(const OnTwo& rank0, const OnTwo& rank1, const char* transport, uint32_t flags = 0) {
  sleeps = ends = yields = 0;
  late = false;
  const std::string places[] = {fresh_place(), fresh_place()};
  std::vector<std::thread> ranks;
  for (uint32_t r = 0; r < 2; ++r)
    ranks.emplace_back([&, r] {
      try {
        std::vector<Communicator> both;
        for (const std::string& place : places) {
          tutti_comm_config config = config_of(place, r, 2);
          config.transports = transport;
          config.flags = flags;
          both.emplace_back(config);
          both.back().barrier();
        }
        watched = r == 0;
        (r == 0 ? rank0 : rank1)(both[0], both[1]);
        watched = false;
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << r << ": " << e.what();
      }
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_FALSE(late) << "a sleep over " << transport << " was not ended by what it waited for";
}

void run(const OnTwo& rank0, const OnTwo& rank1) {
  for (const char* transport : {"shm", "tcp"}) run(rank0, rank1, transport);
}

constexpr uint64_t large = 1 << 20;  // too large to be sent before its receive is known

// A wait for the second communicator, in each of its forms.
void wait_with(Communicator& second, const std::string& form, std::span<std::byte> data) {
  if (form == "blocking") {
    second.receive<std::byte>(data, 1);
  } else if (form == "request") {
    second.async().receive<std::byte>(data, 1).wait();
  } else {
    Request other = second.async().receive<std::byte>(data, 1, 7);  // so that the blocking call is not alone
    second.receive<std::byte>(data.first(1), 1);
    other.wait();
  }
}

void send_for(Communicator& second, const std::string& form, std::span<std::byte> data) {
  if (form == "behind another") {
    second.send<std::byte>(data.first(1), 0);
    second.send<std::byte>(data, 0, 7);
  } else {
    second.send<std::byte>(data, 0);
  }
}

TEST(Sleep, AWaitSleepsThoughAnotherCommunicatorHasSomethingPending) {
  for (const char* const form : {"blocking", "request", "behind another"})
    run(
        [&](Communicator& first, Communicator& second) {
          std::vector<std::byte> in(large), other(large);
          Request pending = first.async().receive<std::byte>(other, 1);
          wait_with(second, form, in);
          pending.wait();
        },
        [&](Communicator& first, Communicator& second) {
          std::vector<std::byte> out(large);
          EXPECT_TRUE(await_sleepers(1)) << form << ": it yields instead";
          send_for(second, form, out);
          first.send<std::byte>(out, 0);
        });
}

TEST(Sleep, ItEndsWhenAnotherCommunicatorHasSomethingToDo) {
  constexpr uint32_t messages = 8;
  for (const char* const form : {"blocking", "request", "behind another"})
    run(
        [&](Communicator& first, Communicator& second) {
          std::vector<std::byte> in(large), others(large * messages);
          std::vector<Request> pending;
          for (uint32_t tag = 0; tag < messages; ++tag)
            pending.push_back(first.async().receive<std::byte>(std::span(others).subspan(tag * large, large), 1, tag));
          wait_with(second, form, in);
          for (Request& request : pending) request.wait();
        },
        [&](Communicator& first, Communicator& second) {
          std::vector<std::byte> out(large);
          for (uint32_t tag = 0; tag < messages; ++tag) {
            EXPECT_TRUE(await_sleepers(1)) << form;
            first.send<std::byte>(out, 0, tag);  // comes back when the other rank has moved it
          }
          send_for(second, form, out);
        });
}

TEST(Sleep, OtherThreadsDoNotWaitForIt) {
  for (const bool blocks : {false, true})
    run(
        [&](Communicator& comm, Communicator&) {
          int32_t first = 0, second = 0, third = 3;
          Request one = comm.async().receive<int32_t>({&first, 1}, 1, 1),
                  two = comm.async().receive<int32_t>({&second, 1}, 1, 2);
          std::thread other([&] {
            EXPECT_TRUE(await_sleepers(1));
            EXPECT_FALSE(two.test());
            comm.async().send<int32_t>({&third, 1}, 1, 3).wait();
          });
          if (blocks)
            comm.barrier();
          else
            one.wait();
          other.join();
          one.wait();
          two.wait();
          EXPECT_EQ(first + second, 3);
        },
        [&](Communicator& comm, Communicator&) {
          int32_t values[] = {1, 2, 0};
          comm.receive<int32_t>({&values[2], 1}, 0, 3);  // of the other thread
          if (blocks) comm.barrier();
          comm.send<int32_t>({&values[0], 1}, 0, 1);
          comm.send<int32_t>({&values[1], 1}, 0, 2);
        });
}

// A call that waits for the other rank in its middle. True: it has succeeded.
using Middle = std::function<bool(Communicator&)>;

std::vector<std::pair<const char*, Middle>> middles() {
  std::vector<std::pair<const char*, Middle>> calls{
      {"register",
       [](Communicator& comm) {
         std::vector<std::byte> memory(4096);
         tutti_window* window = nullptr;
         return tutti_comm_register(comm.handle(), memory.data(), memory.size(), nullptr, &window) == TUTTI_OK &&
                tutti_comm_deregister(comm.handle(), window, nullptr) == TUTTI_OK;
       }},
      {"split", [](Communicator& comm) {
         tutti_comm* part = nullptr;
         return tutti_comm_split(comm.handle(), nullptr, &part) == TUTTI_OK && tutti_comm_destroy(part) == TUTTI_OK;
       }}};
#ifdef TUTTI_STREAM
  calls.emplace_back("all_reduce in a stream", [](Communicator& comm) {
    Stream s;
    auto* data = s.make<float>(10);
    const tutti_options options = on(s);
    return tutti_all_reduce(comm.handle(), data, data, 10, TUTTI_FLOAT32, TUTTI_SUM, &options, nullptr) == TUTTI_OK &&
           s.finish();
  });
#endif
  return calls;
}

// For each such call: `meanwhile` runs in a thread of rank 0, whose call sleeps until rank 1 makes its own, after that.
void during_each_middle(bool succeeds, const std::function<void(Communicator&, Request& pending)>& meanwhile) {
  for (const auto& [name, call] : middles()) {
    std::atomic<bool> done{false};
    run(
        [&](Communicator& comm, Communicator&) {
          int32_t value = 0;
          Request pending = comm.async().receive<int32_t>({&value, 1}, 1, 1);
          std::thread other([&] {
            EXPECT_TRUE(await_sleepers(1)) << name;
            meanwhile(comm, pending);
            done = true;
          });
          EXPECT_EQ(call(comm), succeeds) << name << ": " << tutti_comm_error(comm.handle());
          other.join();
          EXPECT_EQ(failure_of([&] { pending.wait(); }).status, succeeds ? TUTTI_OK : TUTTI_ABORTED) << name;
        },
        [&](Communicator& comm, Communicator&) {
          while (!done && !late) std::this_thread::yield();
          EXPECT_EQ(call(comm), succeeds) << name << ": " << tutti_comm_error(comm.handle());
          const int32_t value = 1;
          if (succeeds) comm.send<int32_t>({&value, 1}, 0, 1);
        },
        "shm", TUTTI_COMM_CHECK_CALLS);
    EXPECT_FALSE(late) << name;
  }
}

TEST(Sleep, OtherThreadsDoNotWaitForACallThatSleepsInItsMiddle) {
  during_each_middle(true, [](Communicator&, Request& pending) {
    EXPECT_EQ(failure_of([&] { EXPECT_FALSE(pending.test()); }).text, "");
  });
}

TEST(Sleep, AnAbortDoesNotWaitForACallThatSleepsInItsMiddle) {
  during_each_middle(false, [](Communicator& comm, Request&) { comm.abort("enough"); });
}

// Two such calls do not run into each other: the second begins when the first is over.
TEST(Sleep, ACallThatBeginsWaitsForOneThatSleepsInItsMiddle) {
  std::array<std::byte, 4096> memory[2][2];
  std::atomic<bool> begins{false};
  const auto add = [&](Communicator& comm, uint32_t number) {
    tutti_window* window = nullptr;
    EXPECT_EQ(tutti_comm_register(comm.handle(), &memory[comm.rank()][number], 4096, nullptr, &window), TUTTI_OK)
        << tutti_comm_error(comm.handle());
    return window;
  };
  const auto id_of = [](Communicator& comm, const tutti_window* window) {
    tutti_window_facts facts{};
    facts.struct_size = sizeof facts;
    EXPECT_EQ(tutti_comm_window(comm.handle(), window, &facts), TUTTI_OK);
    return facts.id;
  };
  run(
      [&](Communicator& comm, Communicator&) {
        tutti_window* second = nullptr;
        std::thread other([&] {
          EXPECT_TRUE(await_sleepers(1));
          begins = true;
          second = add(comm, 1);
        });
        tutti_window* const first = add(comm, 0);
        other.join();
        EXPECT_EQ(id_of(comm, first), 1u);
        EXPECT_EQ(id_of(comm, second), 2u);
      },
      [&](Communicator& comm, Communicator&) {
        while (!begins && !late) std::this_thread::yield();
        EXPECT_EQ(id_of(comm, add(comm, 0)), 1u);
        EXPECT_EQ(id_of(comm, add(comm, 1)), 2u);
      },
      "shm");
}

// Whichever of two threads moves it, each hears of the end of its own operation.
TEST(Sleep, OfTwoThreadsThatWaitEachIsWoken) {
  constexpr int rounds = 10;
  run(
      [&](Communicator& comm, Communicator&) {
        for (int n = 0; n < rounds; ++n) {
          int32_t mine = 0, others = 0;
          Request one = comm.async().receive<int32_t>({&mine, 1}, 1, 1),
                  two = comm.async().receive<int32_t>({&others, 1}, 1, 2);
          std::thread other([&] {
            watched = true;
            two.wait();
          });
          one.wait();
          other.join();
          EXPECT_EQ(mine + others, 2 * n + 1);
        }
      },
      [&](Communicator& comm, Communicator&) {
        for (int32_t n = 0; n < rounds; ++n) {
          const int32_t values[] = {n, n + 1};
          EXPECT_TRUE(await_sleepers(2));
          comm.send<int32_t>({&values[n % 2], 1}, 0, 1);
          comm.send<int32_t>({&values[1 - n % 2], 1}, 0, 2);
        }
      });
}

// An operation that begins while others sleep: its thread leaves it to them.
TEST(Sleep, ItEndsWhenAnotherThreadBeginsAnOperation) {
  run(
      [&](Communicator& first, Communicator& second) {
        std::vector<std::byte> in(large), other(large);
        Request pending;
        std::thread begins([&] {
          EXPECT_TRUE(await_sleepers(1));
          pending = first.async().receive<std::byte>(other, 1);
        });
        second.async().receive<std::byte>(in, 1).wait();
        begins.join();
        pending.wait();
      },
      [&](Communicator& first, Communicator& second) {
        std::vector<std::byte> out(large);
        first.send<std::byte>(out, 0);
        second.send<std::byte>(out, 0);
      });
}

}  // namespace
}  // namespace tutti::test
