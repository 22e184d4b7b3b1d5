// SPDX-License-Identifier: Apache-2.0
//
// Calls that wait for another rank and whose caller ends them (tutti_set_interrupt): that rank hears of it.
#include <tutti/memory.h>
#include <tutti/tutti.h>

#include <chrono>
#include <semaphore>
#include <string>

#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/virtual_time/virtual_time.hpp"

namespace tutti::test {
namespace {

struct Asked {
  tutti_comm* comm = nullptr;
  bool aborts = false;  // by tutti_comm_abort, and goes on
  int questions = 0;
};

int32_t third_time(void* context) {
  auto& asked = *static_cast<Asked*>(context);
  if (++asked.questions < 3) return 0;
  if (!asked.aborts) return 1;
  EXPECT_EQ(tutti_comm_abort(asked.comm, "enough"), TUTTI_OK);
  return 0;
}

using Call = tutti_status (*)(tutti_comm* comm);

tutti_status split(tutti_comm* comm) {
  tutti_comm* part = nullptr;
  return tutti_comm_split(comm, nullptr, &part);
}

tutti_status register_window(tutti_comm* comm) {
  static float memory[16];
  tutti_window* window = nullptr;
  return tutti_comm_register(comm, memory, sizeof memory, nullptr, &window);
}

// Rank 0 makes the call, to which rank 1 does not come before it has ended. Then both have been told the reason.
void expect_end(Call call, const char* transport, uint32_t flags, bool aborts, const std::string& reason) {
  const VirtualTime time;
  const std::string place = fresh_place();
  std::binary_semaphore ended{0};
  const auto rank = [&](uint32_t r) {
    tutti_comm_config config = config_of(place, r, 2);
    config.transports = transport;
    config.flags = flags;
    config.timeout_ns = config.connect_timeout_ns = 3'000'000'000'000;
    tutti_comm* comm = nullptr;
    EXPECT_EQ(tutti_comm_create(&config, &comm), TUTTI_OK);
    if (!comm) return ended.release();
    EXPECT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
    if (r == 0) {
      Asked asked{comm, aborts};
      tutti_set_interrupt(third_time, &asked);
      EXPECT_EQ(call(comm), TUTTI_ABORTED);
      tutti_set_interrupt(nullptr, nullptr);
      EXPECT_GE(asked.questions, 3);
      EXPECT_NE(std::string(tutti_comm_error(comm)).find(reason), std::string::npos) << tutti_comm_error(comm);
      ended.release();
    } else {
      ended.acquire();
      EXPECT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_ABORTED);
      EXPECT_NE(std::string(tutti_comm_error(comm)).find(reason), std::string::npos) << tutti_comm_error(comm);
    }
    if (r == 1 || call != tutti_comm_destroy) tutti_comm_destroy(comm);
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
  EXPECT_LT(time.passed(), std::chrono::seconds(1000));
}

TEST(Interrupted, SplitRegisterAndDestroy) {
  for (const char* transport : {"shm", "tcp"})
    for (const uint32_t flags : {0u, uint32_t{TUTTI_COMM_PROGRESS_THREAD}}) {
      expect_end(split, transport, flags, false, "rank 0 was interrupted by its caller in tutti_comm_split");
      expect_end(register_window, transport, flags, false,
                 "rank 0 was interrupted by its caller in tutti_comm_register");
      for (const uint32_t check : {0u, uint32_t{TUTTI_COMM_CHECK_CALLS}})
        expect_end(tutti_comm_destroy, transport, flags | check, false, "was interrupted by its caller");
    }
}

// The others go on without the rank that was interrupted.
TEST(Interrupted, Shrink) {
  const VirtualTime time;
  const std::string place = fresh_place();
  std::binary_semaphore ended{0};
  const auto rank = [&](uint32_t r) {
    tutti_comm_config config = config_of(place, r, 2);
    config.timeout_ns = config.connect_timeout_ns = 3'000'000'000'000;
    tutti_comm *comm = nullptr, *next = nullptr;
    EXPECT_EQ(tutti_comm_create(&config, &comm), TUTTI_OK);
    if (!comm) return ended.release();
    EXPECT_EQ(tutti_comm_revoke(comm, "for a test"), TUTTI_OK);
    if (r == 1) ended.acquire();
    Asked asked{comm};
    if (r == 0) tutti_set_interrupt(third_time, &asked);
    EXPECT_EQ(tutti_comm_shrink(comm, nullptr, &next), r == 0 ? TUTTI_ABORTED : TUTTI_OK) << tutti_comm_error(comm);
    tutti_set_interrupt(nullptr, nullptr);
    if (r == 0) {
      EXPECT_NE(std::string(tutti_comm_error(comm)).find("rank 0 was interrupted by its caller"), std::string::npos)
          << tutti_comm_error(comm);
      ended.release();
    } else if (next) {
      EXPECT_EQ(tutti_comm_nranks(next), 1u);
      EXPECT_EQ(tutti_comm_destroy(next), TUTTI_OK);
    }
    tutti_comm_destroy(comm);
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
  EXPECT_LT(time.passed(), std::chrono::seconds(1000));
}

TEST(Interrupted, TheQuestionMayAbort) {
  for (const uint32_t flags : {0u, uint32_t{TUTTI_COMM_PROGRESS_THREAD}})
    for (const Call call : {split, register_window, tutti_comm_destroy})
      expect_end(call, "shm", flags, true, "rank 0 aborted: enough");
}

// Nobody comes to the meeting.
TEST(Interrupted, Create) {
  const VirtualTime time;
  char error[512] = "";
  const std::string place = fresh_place();
  tutti_comm_config config = config_of(place, 0, 2);
  config.connect_timeout_ns = 3'000'000'000'000;
  config.error = error;
  config.error_bytes = sizeof error;
  Asked asked;
  tutti_set_interrupt(third_time, &asked);
  tutti_comm* comm = nullptr;
  EXPECT_EQ(tutti_comm_create(&config, &comm), TUTTI_ABORTED);
  tutti_set_interrupt(nullptr, nullptr);
  EXPECT_EQ(comm, nullptr);
  EXPECT_NE(std::string(error).find("was interrupted by its caller"), std::string::npos) << error;
  EXPECT_LT(time.passed(), std::chrono::seconds(1000));
}

}  // namespace
}  // namespace tutti::test
