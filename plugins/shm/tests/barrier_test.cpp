// SPDX-License-Identifier: Apache-2.0
//
// The barrier of a rank that is about to sleep (tutti/sdk/local/host_barrier.hpp): who makes it, and what is done where
// the kernel has none. The tests look at the system calls of this program.
#include <dlfcn.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>

#include "ranks.hpp"

namespace {
std::atomic<uint32_t> barriers{0};
std::atomic<bool> refuses{false};
}  // namespace

// Instead of libc's.
extern "C" long syscall(long number, ...) noexcept {
  using Call = long (*)(long, long, long, long, long, long, long);
  static const auto of_libc = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "syscall"));
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  const bool global = number == SYS_membarrier && (a[0] == MEMBARRIER_CMD_GLOBAL_EXPEDITED ||
                                                   a[0] == MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
  if (global && refuses) return errno = ENOSYS, -1;
  if (global && a[0] == MEMBARRIER_CMD_GLOBAL_EXPEDITED) ++barriers;
  return of_libc(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

namespace {
using ranks::As;
using ranks::Board;
using ranks::Rank;

// Rank 1 arms, then rank 0 sends: rank 1's descriptor becomes readable. How many barriers the first arm made.
uint32_t barriers_of_an_arm() {
  std::atomic<uint32_t> made{UINT32_MAX};
  ranks::run(As::kThreads, 2, [&](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, {});
    r.connect_all();
    tutti_link* link = r.links[1 - rank];
    if (rank == 0) {
      for (const auto end = ranks::in_a_minute(); made == UINT32_MAX; sched_yield())
        REQUIRE(std::chrono::steady_clock::now() < end);
      REQUIRE(r.v->try_reserve(link, 0, 8) != nullptr);
      r.v->commit(link, 0, 8);
    } else {
      int32_t fd = -1;
      REQUIRE(r.w->get_fd(r.endpoint, &fd) == TUTTI_OK);
      uint32_t before = barriers;
      while (r.w->arm(r.endpoint) == TUTTI_AGAIN) {
        r.progress();
        before = barriers;
      }
      made = barriers - before;
      pollfd wait{fd, POLLIN, 0};
      REQUIRE(poll(&wait, 1, 60000) == 1);
      r.w->disarm(r.endpoint);
    }
    r.meet();
  });
  return made;
}

bool kernel_has_barriers() {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0, 0, 0, 0) == 0;
}

TEST(Barrier, IsMadeByTheOneThatSleeps) {
  if (!kernel_has_barriers()) GTEST_SKIP() << "membarrier(2) has no MEMBARRIER_CMD_GLOBAL_EXPEDITED here";
  EXPECT_EQ(barriers_of_an_arm(), 1u);
}

// In a process of its own: the kernel is asked once.
TEST(Barrier, WithoutOneMessagesWakeAsWell) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        refuses = true;
        std::exit(barriers_of_an_arm() == 0 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
