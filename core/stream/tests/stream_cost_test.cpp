// SPDX-License-Identifier: Apache-2.0
//
// The cost of a call on device memory for the thread that makes it, once its shape is known: no allocation, and at most
// two locks: the communicator's, and that of the place where the ranks of a process meet. A call that has to wait for
// another rank of its process, or for room in the device's queue, takes more while it waits: it looks around. What is
// kept for calls in flight grows with the most of them that there were at a time.
#include <array>
#include <chrono>

#include "../../tests/harness/counted_calls.hpp"
#include "../../tests/harness/first_uses.hpp"
#include "../../tests/harness/stream_ranks.hpp"

namespace tutti::test {
namespace {

constexpr uint64_t most_locks = 2;
constexpr uint32_t calls = 8;
constexpr uint32_t depth = 4;       // calls before the stream is waited for
constexpr uint32_t most_depth = 8;  // that were in flight before

struct Buffers {
  Stream stream;
  tutti_options options = on(stream);
  uint64_t count;
  int64_t *in, *out;
  Buffers(uint64_t n, uint32_t ranks)
      : count(n), in(stream.make<int64_t>(n * ranks)), out(stream.make<int64_t>(n * ranks)) {
    for (uint64_t i = 0; i < n * ranks; ++i) in[i] = static_cast<int64_t>(i);
  }
  ~Buffers() {
    stream.free(in);
    stream.free(out);
  }
};

using Call = tutti_status (*)(tutti_comm* comm, Buffers& b);
struct Named {
  const char* name;
  Call call;
  // Messages that a rank exchanges with each of its peers. Within a process each takes locks of its own, and a wait
  // that the other side has come.
  uint32_t messages = 0;
};
// Each of two neighbours in turn.
tutti_status send_or_receive(tutti_comm* comm, Buffers& b, uint32_t sender) {
  const uint32_t rank = tutti_comm_rank(comm), peer = rank ^ 1;
  if (peer >= tutti_comm_nranks(comm)) return TUTTI_OK;
  return rank % 2 == sender ? tutti_send(comm, b.in, b.count, TUTTI_INT64, peer, 4, &b.options, nullptr)
                            : tutti_receive(comm, b.out, b.count, TUTTI_INT64, peer, 4, &b.options, nullptr);
}
// With all ranks, this one included; two messages each way, of which one is empty.
tutti_status exchange(tutti_comm* comm, Buffers& b, bool others_empty) {
  const uint32_t n = tutti_comm_nranks(comm);
  std::array<tutti_message, 16> messages{};
  size_t used = 0;
  for (uint32_t peer = 0; peer < n; ++peer)
    for (const uint64_t count : {others_empty && peer != tutti_comm_rank(comm) ? 0 : b.count, uint64_t{0}}) {
      messages.at(used++) = {b.out + peer * b.count, count, TUTTI_INT64, peer, 5, TUTTI_RECEIVE};
      messages.at(used++) = {b.in + peer * b.count, count, TUTTI_INT64, peer, 5, TUTTI_SEND};
    }
  return tutti_exchange(comm, messages.data(), used, &b.options, nullptr);
}
// As many sends as can be without their receives.
void fill_with_unmatched(tutti_comm* comm) {
  constexpr uint32_t most_unmatched = 64;
  uint64_t data = 0;
  for (const bool sends : {true, false}) {
    for (uint32_t peer = 0; peer < tutti_comm_nranks(comm); ++peer)
      for (uint32_t i = 0; i < most_unmatched && peer != tutti_comm_rank(comm); ++i)
        ASSERT_EQ(sends ? tutti_send(comm, &data, 1, TUTTI_INT64, peer, 6, nullptr, nullptr)
                        : tutti_receive(comm, &data, 1, TUTTI_INT64, peer, 6, nullptr, nullptr),
                  TUTTI_OK)
            << tutti_comm_error(comm);
    ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
  }
}

constexpr Named kinds[] = {
    {"send", [](tutti_comm* comm, Buffers& b) { return send_or_receive(comm, b, 0); }, 1},
    {"receive", [](tutti_comm* comm, Buffers& b) { return send_or_receive(comm, b, 1); }, 1},
    {"exchange", [](tutti_comm* comm, Buffers& b) { return exchange(comm, b, false); }, 2},
    {"all_reduce",
     [](tutti_comm* comm, Buffers& b) {
       return tutti_all_reduce(comm, b.in, b.out, b.count, TUTTI_INT64, TUTTI_SUM, &b.options, nullptr);
     }},
    {"all_reduce with options",
     [](tutti_comm* comm, Buffers& b) {
       tutti_options options = b.options;
       options.algorithms = "^ring";
       options.tag = b.count;
       return tutti_all_reduce(comm, b.in, b.out, b.count, TUTTI_INT64, TUTTI_SUM, &options, nullptr);
     }},
    {"all_reduce in place",
     [](tutti_comm* comm, Buffers& b) {
       return tutti_all_reduce(comm, b.out, b.out, b.count, TUTTI_INT64, TUTTI_MAX, &b.options, nullptr);
     }},
    {"all_gather",
     [](tutti_comm* comm, Buffers& b) {
       return tutti_all_gather(comm, b.in, b.out, b.count, TUTTI_INT64, &b.options, nullptr);
     }},
    {"broadcast",
     [](tutti_comm* comm, Buffers& b) {
       return tutti_broadcast(comm, b.in, b.in, b.count, TUTTI_INT64, 0, &b.options, nullptr);
     }},
    {"all_to_all",
     [](tutti_comm* comm, Buffers& b) {
       return tutti_all_to_all(comm, b.in, b.out, b.count, TUTTI_INT64, &b.options, nullptr);
     }},
    {"barrier", [](tutti_comm* comm, Buffers& b) { return tutti_barrier(comm, &b.options, nullptr); }},
};

// Until no call is in flight. The end of its work in the stream is not enough: a receive is in flight until this rank
// has heard of the send, too.
void let_all_end(tutti_comm* comm, Buffers& buffers) {
  tutti_request* last = nullptr;
  ASSERT_EQ(tutti_barrier(comm, &buffers.options, &last), TUTTI_OK) << tutti_comm_error(comm);
  EXPECT_EQ(tutti_request_wait(last), TUTTI_OK) << tutti_comm_error(comm);
  tutti_request_free(last);
  EXPECT_TRUE(buffers.stream.finish());
}

// Calls of which no wait made the locks uncertain are added to `judged`.
// `handovers`: within the process, of a call.
void expect_cheap(tutti_comm* comm, Buffers& buffers, const Named& what, uint32_t handovers, uint32_t& judged) {
  constexpr uint64_t waits = 3;  // for room in the queue, for its sends to be told of, and to be in the stream
  const auto rounds = [&](bool known) {
    for (uint32_t i = 0; i < calls; ++i) {
      tutti_status status = TUTTI_OK;
      const CallCost cost = cost_of([&] { status = what.call(comm, buffers); });
      ASSERT_EQ(status, TUTTI_OK) << what.name << ": " << tutti_comm_error(comm);
      if (known) {
        const bool waited = cost.waited(waits + handovers);
        EXPECT_TRUE(waited || !cost.allocations)
            << cost.allocations << " allocations: " << what.name << " of " << buffers.count << ", call " << i;
        EXPECT_TRUE(waited || cost.locks <= most_locks || handovers)
            << cost.locks << " locks: " << what.name << " of " << buffers.count << ", call " << i;
        judged += !waited;
      }
      if (i % depth == depth - 1) let_all_end(comm, buffers);
    }
  };
  // Another rank's first call of a shape costs this one something, too: it offers memory.
  for (const bool known : {false, true}) {
    rounds(known);
    ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
    hear_first_uses(comm);
  }
}

std::atomic<uint32_t> judged_calls{0};  // of this process

template <bool in_windows, uint32_t in_process>  // ranks
void expect_all_cheap(tutti_comm* comm, uint32_t) {
  uint32_t judged = 0;
  fill_with_unmatched(comm);
  for (const uint64_t count : {8u, 2048u, 50'000u}) {
    Buffers buffers(count, tutti_comm_nranks(comm));
    std::vector<tutti_window*> windows;
    for (int64_t* data : {buffers.in, buffers.out})
      if (in_windows) {
        ASSERT_EQ(tutti_comm_register(comm, data, count * tutti_comm_nranks(comm) * sizeof *data, nullptr,
                                      &windows.emplace_back()),
                  TUTTI_OK)
            << tutti_comm_error(comm);
      }
    {
      // Streams may share a queue: no other rank's earlier one is still to be destroyed when this one is held up.
      ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
      Gate gate;
      gate.hold(buffers.stream);
      for (uint32_t i = 0; i < most_depth; ++i) {
        ASSERT_EQ(tutti_barrier(comm, &buffers.options, nullptr), TUTTI_OK) << tutti_comm_error(comm);
        ASSERT_EQ(exchange(comm, buffers, true), TUTTI_OK) << tutti_comm_error(comm);
      }
      gate.open();
      ASSERT_TRUE(buffers.stream.finish());
    }
    for (const Named& what : kinds)
      expect_cheap(comm, buffers, what, what.messages == 1 ? in_process > 1 : what.messages * (in_process - 1), judged);
    EXPECT_EQ(served(comm).find("+window") != std::string::npos, in_windows) << served(comm);
    for (tutti_window* window : windows)
      ASSERT_EQ(tutti_comm_deregister(comm, window, nullptr), TUTTI_OK) << tutti_comm_error(comm);
  }
  judged_calls += judged;
  ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
  EXPECT_GT(judged_calls, 0u) << "every call had to wait";
}

// Nobody asks the device whether it has come to an end, however often the host looks: a flag tells. (Once a second it
// is asked whether it works.)
void expect_no_queries(tutti_comm* comm, uint32_t rank) {
  Buffers buffers(50'000, tutti_comm_nranks(comm));
  const auto round = [&] {
    for (uint32_t i = 0; i < calls; ++i) {
      tutti_request* requests[2] = {};
      ASSERT_EQ(tutti_all_reduce(comm, buffers.in, buffers.out, buffers.count, TUTTI_INT64, TUTTI_SUM, &buffers.options,
                                 &requests[0]),
                TUTTI_OK)
          << tutti_comm_error(comm);
      ASSERT_EQ(rank % 2 ? tutti_receive(comm, buffers.out, buffers.count, TUTTI_INT64, rank - 1, 4, &buffers.options,
                                         &requests[1])
                         : tutti_send(comm, buffers.in, buffers.count, TUTTI_INT64, rank + 1, 4, &buffers.options,
                                      &requests[1]),
                TUTTI_OK)
          << tutti_comm_error(comm);
      for (tutti_request* request : requests) {
        ASSERT_EQ(tutti_request_wait(request), TUTTI_OK) << tutti_comm_error(comm);
        tutti_request_free(request);
      }
      ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
    }
  };
  round();
  for (uint32_t attempt = 0;; ++attempt) {  // another one where the machine was too busy
    const auto begin = std::chrono::steady_clock::now();
    const uint64_t before = counting::queries;
    round();
    const uint64_t queries = counting::queries - before;
    const bool quick = std::chrono::steady_clock::now() - begin < std::chrono::seconds(1);
    int64_t again = attempt < 4 && queries && !quick, all = 0;
    ASSERT_EQ(tutti_all_reduce(comm, &again, &all, 1, TUTTI_INT64, TUTTI_SUM, nullptr, nullptr), TUTTI_OK);
    if (all) continue;
    EXPECT_EQ(queries, 0u);
    return;
  }
}

// Processes first: threads do not survive a fork.
TEST(StreamCost, TheEndIsReadNotAsked) { run_processes(2, 1, expect_no_queries); }

TEST(StreamCost, TheEndIsReadNotAskedOverATransport) {
  run_processes(2, 1, expect_no_queries, "", [](uint32_t) { setenv("TUTTI_TRANSPORT", "shm", 1); });
}

TEST(StreamCost, TheEndIsReadNotAskedWithThreads) { run_processes(4, 2, expect_no_queries); }

TEST(StreamCost, BetweenProcesses) {
  if (TUTTI_TEST_CANNOT_COUNT) GTEST_SKIP() << "a sanitizer counts";
  run_processes(2, 1, expect_all_cheap<false, 1>);
}

TEST(StreamCost, BetweenProcessesInWindows) {
  if (TUTTI_TEST_CANNOT_COUNT) GTEST_SKIP() << "a sanitizer counts";
  run_processes(2, 1, expect_all_cheap<true, 1>);
}

TEST(StreamCost, BetweenProcessesOverATransport) {
  if (TUTTI_TEST_CANNOT_COUNT) GTEST_SKIP() << "a sanitizer counts";
  run_processes(2, 1, expect_all_cheap<false, 1>, "", [](uint32_t) { setenv("TUTTI_TRANSPORT", "shm", 1); });
}

TEST(StreamCost, BetweenProcessesWithThreads) {
  if (TUTTI_TEST_CANNOT_COUNT) GTEST_SKIP() << "a sanitizer counts";
  run_processes(4, 2, expect_all_cheap<false, 2>);
}

TEST(StreamCost, WithinAProcess) {
  if (TUTTI_TEST_CANNOT_COUNT) GTEST_SKIP() << "a sanitizer counts";
  run_threads(3, expect_all_cheap<false, 3>);
}

TEST(StreamCost, WhatIsCountedIsSeen) {
  if (TUTTI_TEST_CANNOT_COUNT) GTEST_SKIP() << "a sanitizer counts";
  std::mutex mutex;
  const CallCost cost = cost_of([&] {
    const std::lock_guard lock(mutex);
    ::operator delete(::operator new(1));  // unlike `delete new int` never left out by the compiler
    const counting::Pause pause;
    ::operator delete(::operator new(1));
  });
  EXPECT_EQ(cost.allocations, 1u);
  EXPECT_EQ(cost.locks, 1u);
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  tutti::test::load_counted_device(std::getenv("TUTTI_TEST_DEVICE"));
  return RUN_ALL_TESTS();
}
