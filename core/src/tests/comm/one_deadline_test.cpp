// SPDX-License-Identifier: Apache-2.0
//
// A call has one deadline, however many times its ranks wait for each other in it. A rank comes so late that the first
// wait ends shortly before the deadline, and another one that has come goes no further: its thread is stuck in the
// question of tutti_set_interrupt, as an application may be in a call of its own.
#include <tutti/tutti.h>

#include <array>
#include <chrono>
#include <semaphore>
#include <string>

#include "../../../tests/harness/faulty.hpp"
#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/virtual_time/virtual_time.hpp"

namespace tutti::test {
namespace {

using std::chrono::seconds;

constexpr seconds first_wait(30);

bool has(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

int32_t stay(void* until) {
  static_cast<std::binary_semaphore*>(until)->acquire();
  static_cast<std::binary_semaphore*>(until)->release();
  return 0;
}

// Three ranks. Rank 0 makes the call at once, as rank 1 does, which is stuck in it; rank 2 is late. Rank 0's status is
// TUTTI_TIMEOUT, at the deadline, and its error has all these words.
void expect_one(const std::string& place, seconds deadline, bool at_creation,
                const std::function<tutti_status(tutti_comm*)>& call, const std::vector<std::string>& words) {
  const VirtualTime time;
  std::binary_semaphore ended{0};
  const auto rank = [&](uint32_t r) {
    char error[4096] = "";
    tutti_comm_config config = config_of(place, r, 3);
    config.transports = "shm";
    config.error = error;
    config.error_bytes = sizeof error;
    tutti_comm* comm = nullptr;
    if (!at_creation) {
      ASSERT_EQ(tutti_comm_create(&config, &comm), TUTTI_OK) << error;
    }
    if (r == 1) tutti_set_interrupt(stay, &ended);
    if (r == 2) std::this_thread::sleep_for(first_wait);
    const auto begin = time.passed();
    const tutti_status status = at_creation ? tutti_comm_create(&config, &comm) : call(comm);
    const auto passed = time.passed() - begin;
    if (r == 0) {
      const std::string text = at_creation ? error : tutti_comm_error(comm);
      EXPECT_EQ(status, TUTTI_TIMEOUT) << text;
      EXPECT_GE(passed, deadline) << text;
      EXPECT_LT(passed, late(deadline)) << text;
      for (const std::string& some : words) EXPECT_TRUE(has(text, some)) << some << "\n" << text;
      ended.release();
    } else {
      EXPECT_LT(status, TUTTI_OK);
    }
    tutti_set_interrupt(nullptr, nullptr);
    tutti_comm_destroy(comm);
  };
  std::array<std::thread, 3> threads;
  for (uint32_t r = 0; r < 3; ++r) threads[r] = std::thread(rank, r);
  for (std::thread& thread : threads) thread.join();
}

// The connect timeout of config_of() is 60 s.
TEST(OneDeadline, Creation) {
  expect_one(fresh_place(), seconds(60), true, nullptr, {"rank 1", "60 s (the communicator's connect timeout)"});
}

TEST(OneDeadline, CreationByAnId) {
  tutti_unique_id id;
  ASSERT_EQ(tutti_unique_id_create(&id), TUTTI_OK);
  expect_one(id.text, seconds(60), true, nullptr,
             {"could not be connected", "60 s (the communicator's connect timeout)"});
}

TEST(OneDeadline, Split) {
  const auto split = [](tutti_comm* comm) {
    tutti_split how{};
    how.struct_size = sizeof how;
    how.timeout_ns = 45'000'000'000;
    tutti_comm* part = nullptr;
    return tutti_comm_split(comm, &how, &part);
  };
  expect_one(fresh_place(), seconds(45), false, split,
             {"rank 1 did not come to tutti_comm_split within 45.0 s (the call's timeout)"});
}

// The first message to a rank that is outside Tutti and then passes its time in another call: the link is connected
// after 30 s, and the other side told of the message.
TEST(OneDeadline, FirstUseOfALink) {
  const VirtualTime time;
  run_ranks(
      2,
      [&](Communicator& world) {
        if (world.rank() == 1) {
          std::this_thread::sleep_for(first_wait);
          tutti_envelope never{sizeof never, 0, 0, 99, 0};
          EXPECT_EQ(tutti_probe(world.handle(), &never, 600'000'000'000), TUTTI_TIMEOUT);
          return;
        }
        const std::vector<float> message(1 << 18);
        tutti_options options{};
        options.struct_size = sizeof options;
        options.timeout_ns = 45'000'000'000;
        const auto begin = time.passed();
        EXPECT_EQ(tutti_send(world.handle(), message.data(), message.size(), TUTTI_FLOAT32, 1, 7, &options, nullptr),
                  TUTTI_TIMEOUT);
        EXPECT_GE(time.passed() - begin, seconds(45));
        EXPECT_LT(time.passed() - begin, late(seconds(45)));
        EXPECT_TRUE(has(world.error_text(), "no progress for 45.0 s (the call's timeout)")) << world.error_text();
      },
      {.transports = "tcp"});
}

// A transport has the connect timeout to reach a rank, and gives up no later.
TEST(OneDeadline, OfConnectingIsNamed) {
  faulty::load();
  run_ranks(
      2,
      [](Communicator& world) {
        faulty::cannot_connect = true;
        const Failed failed = failure_of([&] { world.barrier(); });
        EXPECT_EQ(failed.status, TUTTI_TIMEOUT) << failed.text;
        EXPECT_TRUE(has(failed.text, "connecting may take 60 s (the communicator's connect timeout)")) << failed.text;
      },
      {.transports = "faulty"});
  faulty::cannot_connect = false;
}

// A receive beside an older one from the same rank has its own time.
TEST(OneDeadline, OfAReceiveBesideAnOlderOne) {
  const VirtualTime time;
  run_ranks(2, [&](Communicator& world) {
    float data = 0, other = 0;
    if (world.rank() == 1) {
      std::this_thread::sleep_for(seconds(130));
      data = 5;
      world.send<float>({&data, 1}, 0, 2);
      world.send<float>({&data, 1}, 0, 1);
      return;
    }
    tutti_options options{};
    options.struct_size = sizeof options;
    options.timeout_ns = 600'000'000'000;
    tutti_request* older = nullptr;
    ASSERT_EQ(tutti_receive(world.handle(), &other, 1, TUTTI_FLOAT32, 1, 1, &options, &older), TUTTI_OK);
    EXPECT_EQ(tutti_request_wait_for(older, 100'000'000'000), TUTTI_AGAIN);
    options.timeout_ns = 45'000'000'000;
    EXPECT_EQ(tutti_receive(world.handle(), &data, 1, TUTTI_FLOAT32, 1, 2, &options, nullptr), TUTTI_OK)
        << world.error_text();
    EXPECT_EQ(tutti_request_wait(older), TUTTI_OK) << world.error_text();
    EXPECT_EQ(data + other, 10);
    tutti_request_free(older);
  });
}

}  // namespace
}  // namespace tutti::test
