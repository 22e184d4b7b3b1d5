// SPDX-License-Identifier: Apache-2.0
//
// Calls on device memory that fail while a thread of the process or a device does not come back: the others learn it in
// time, and no memory that is still in use is given back without a word.
#include <future>

#include "../../bootstrap/tests/in_time.hpp"
#include "../../tests/harness/stream_ranks.hpp"

namespace tutti::test {
namespace {

using std::chrono::milliseconds, std::chrono::seconds;

constexpr const char* untouched = "untouched";

// The rank that comes last puts the work of both into their streams, that of rank 0 first, and the queue of its device
// is full. The other gives up in time, says whom it has waited for, and is destroyed before that thread comes back.
void give_up_on_a_full_queue(uint32_t last, bool by_abort, tutti_status expected,
                             const std::vector<std::string>& words) {
  const OnDevices each;
  setenv("TUTTI_SIMULATED_DEPTH", "16", 1);
  run_processes(
      2, 2,
      [&](tutti_comm* comm, uint32_t rank) {
        static Gate gate;
        static std::promise<void> left;
        auto& s = *new Stream(rank);
        auto* data = s.make<float>(10);
        const tutti_options options = on(s, by_abort ? 0 : 500'000'000);
        const auto reduce = [&] {
          return tutti_all_reduce(comm, data, data, 10, TUTTI_FLOAT32, TUTTI_SUM, &options, nullptr);
        };
        ASSERT_EQ(reduce(), TUTTI_OK) << tutti_comm_error(comm);
        ASSERT_TRUE(s.finish());
        if (rank == last) {
          gate.fill(s, 16);
          std::this_thread::sleep_for(milliseconds(200));
          std::thread opening([] {
            left.get_future().wait_for(1.2 * InTime::limit());
            std::this_thread::sleep_for(milliseconds(500));
            gate.open();
          });
          EXPECT_EQ(reduce(), expected);
          opening.join();
          EXPECT_TRUE(s.finish());
          return;
        }
        std::thread aborting([&] {
          std::this_thread::sleep_for(seconds(1));
          if (by_abort) {
            EXPECT_EQ(tutti_comm_abort(comm, "enough"), TUTTI_OK);
          }
        });
        {
          const InTime deadline;
          EXPECT_EQ(reduce(), expected);
        }
        aborting.join();
        const std::string text = tutti_comm_error(comm);
        for (const std::string& word : words) EXPECT_NE(text.find(word), text.npos) << word << ": " << text;
        left.set_value();
      },
      "", [](uint32_t) { setenv("TUTTI_SIMULATED_DEVICES", "2", 1); });
  unsetenv("TUTTI_SIMULATED_DEPTH");
}

TEST(StreamFailure, AThreadThatSitsInTheDeviceIsWaitedForOnlySoLong) {
  for (const uint32_t last : {1u, 0u})
    give_up_on_a_full_queue(last, false, TUTTI_TIMEOUT,
                            {"for rank " + std::to_string(last) + " of its process, whose thread",
                             "has waited 0.5 s (the call's timeout) in",
                             "has not come back from a call of the device", untouched});
}

TEST(StreamFailure, AnAbortEndsBesideAThreadThatSitsInTheDevice) {
  for (const uint32_t last : {1u, 0u})
    give_up_on_a_full_queue(last, true, TUTTI_ABORTED,
                            {"enough", "thread of rank " + std::to_string(last), untouched});
}

// Rank 1's stream has been given the copy of what rank 0 sends, and is held up. Rank 2 keeps both calls from ending.
// When the transfers fail, rank 0's call returns only after that copy, and may change what it has sent.
TEST(StreamFailure, ASendThatFailsIsReadNoMore) {
  setenv("TUTTI_SIMULATED_DEPTH", "16", 1);
  setenv("TUTTI_SIMULATED_QUEUES", "8", 1);
  run_processes(3, 3, [](tutti_comm* comm, uint32_t rank) {
    constexpr uint64_t count = 1000;
    static Gate gate;
    Stream s;
    auto* data = s.make<uint8_t>(2 * count);
    std::memset(data, rank == 0 ? 7 : 0, 2 * count);
    const tutti_options options = on(s);
    ASSERT_EQ(tutti_barrier(comm, &options, nullptr), TUTTI_OK) << tutti_comm_error(comm);
    ASSERT_TRUE(s.finish());
    if (rank == 1) gate.hold(s);
    if (rank == 2) gate.fill(s, 16);
    ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
    if (rank == 0) {
      std::thread ending([comm] {
        std::this_thread::sleep_for(milliseconds(500));
        EXPECT_EQ(tutti_comm_abort(comm, "enough"), TUTTI_OK);
        std::this_thread::sleep_for(milliseconds(500));
        gate.open();
      });
      const tutti_message send[] = {{data, count, TUTTI_UINT8, 2, 0, TUTTI_SEND},
                                    {data, count, TUTTI_UINT8, 1, 0, TUTTI_SEND}};
      EXPECT_EQ(tutti_exchange(comm, send, 2, &options, nullptr), TUTTI_ABORTED);
      EXPECT_EQ(std::string(tutti_comm_error(comm)).find(untouched), std::string::npos) << tutti_comm_error(comm);
      std::memset(data, 9, count);
      ending.join();
    } else if (rank == 1) {
      const tutti_message receive[] = {{data, count, TUTTI_UINT8, 0, 0, TUTTI_RECEIVE},
                                       {data + count, count, TUTTI_UINT8, 2, 0, TUTTI_RECEIVE}};
      EXPECT_EQ(tutti_exchange(comm, receive, 2, &options, nullptr), TUTTI_ABORTED);
    } else {
      const tutti_message both[] = {{data, count, TUTTI_UINT8, 1, 0, TUTTI_SEND},
                                    {data + count, count, TUTTI_UINT8, 0, 0, TUTTI_RECEIVE}};
      EXPECT_EQ(tutti_exchange(comm, both, 2, &options, nullptr), TUTTI_ABORTED);
    }
    EXPECT_TRUE(s.finish());
    if (rank == 1) {
      EXPECT_EQ(data[count - 1], 7);
    }
  });
  unsetenv("TUTTI_SIMULATED_QUEUES");
  unsetenv("TUTTI_SIMULATED_DEPTH");
}

}  // namespace
}  // namespace tutti::test
