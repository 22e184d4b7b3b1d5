// SPDX-License-Identifier: Apache-2.0
//
// Signals at 1 kHz, whose handler has no SA_RESTART, from before a communicator is made until it has ended: every call
// gives the right result, at once and where ranks wait for a late one until they sleep. Ranks are threads, where each
// thread of the process is interrupted, the library's too, or processes with an interval timer.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>

#include <filesystem>

#include "../../../tests/harness/child_ranks.hpp"
#include "../../../tests/harness/every_call.hpp"

namespace tutti::test {
namespace {

constexpr long kPeriodUs = 1000;

// Of this thread so far.
thread_local volatile sig_atomic_t interruptions = 0;

void install_handler() {
  struct sigaction action {};
  action.sa_handler = [](int) { interruptions = interruptions + 1; };
  if (sigaction(SIGALRM, &action, nullptr) != 0) throw std::runtime_error("sigaction failed");
}

// A process's timer signals the thread that calls this, the main one, whenever it can.
void interrupt_by_timer() {
  install_handler();
  const itimerval each{{0, kPeriodUs}, {0, kPeriodUs}};
  if (setitimer(ITIMER_REAL, &each, nullptr) != 0) throw std::runtime_error("setitimer failed");
}

// A timer would signal the same thread again and again, so another thread signals all of them until the process ends.
void interrupt_all_threads() {
  install_handler();
  std::thread([] {
    const pid_t own = gettid();
    while (usleep(kPeriodUs) == 0)
      for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
        if (const pid_t thread = std::stoi(task.path().filename()); thread != own)
          syscall(SYS_tgkill, getpid(), thread, SIGALRM);
  }).detach();
}

// How often the ranks of all cases have slept in a call, in memory that their processes share.
std::atomic<uint64_t>& sleeps() {
  static auto* const count = new (mmap(nullptr, sizeof(std::atomic<uint64_t>), PROT_READ | PROT_WRITE,
                                       MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<uint64_t>(0);
  return *count;
}
uint64_t sleeps_of_thread() {
  rusage use{};
  getrusage(RUSAGE_THREAD, &use);
  return static_cast<uint64_t>(use.ru_nvcsw);
}

// The late rank comes when it has been interrupted a few times, which the others wait for.
constexpr int kLateness = 5;
constexpr uint32_t kNobody = UINT32_MAX;

void carry_out(const Made& call, uint32_t late) {
  std::vector<int64_t> in(call.elements(TUTTI_BUFFER_IN)), out(call.elements(TUTTI_BUFFER_OUT), -77);
  call.fill(in.data());
  const int begin = interruptions;
  while (late == call.rank() && interruptions - begin < kLateness) usleep(10 * kPeriodUs);
  const uint64_t before = sleeps_of_thread();
  call.carry_out(in.empty() ? nullptr : in.data(), out.empty() ? nullptr : out.data());
  if (late != kNobody && late != call.rank()) sleeps() += sleeps_of_thread() - before;
}

class InterruptedCalls : public testing::TestWithParam<EveryCall> {
 public:
  static void SetUpTestSuite() { sleeps() = 0; }
  static void TearDownTestSuite() {
    if (!sanitized) {
      EXPECT_GT(sleeps(), 0) << "no rank that waited for a late one has slept";
    }
  }
};

TEST_P(InterruptedCalls, GiveTheReferencesResult) {
  if (sanitized) GTEST_SKIP() << "a sanitizer's threads do not outlive a fork";
  const EveryCall& what = GetParam();
  const std::string choice = what.choice();
  const auto body = [&](Communicator& comm) {
    const bool rooted = what.collective && has_root(what.collective);
    for (const uint64_t count : {uint64_t{1}, uint64_t{1} << 17})  // 8 bytes, 1 MiB
      for (const uint32_t root : {0u, what.nranks - 1}) {
        if ((root != 0 && !rooted) || HasFailure()) continue;
        for (int k = 0; k < 3; ++k) carry_out({comm, what, count, root}, kNobody);
        for (uint32_t late = 0; late < what.nranks; ++late) carry_out({comm, what, count, root}, late);
      }
    EXPECT_GT(interruptions, 0);
  };
  for (const Ranks kind : {Ranks::threads, Ranks::processes})
    run_in_children(kind, what.nranks, what.name(), body,
                    {what.transport.c_str(), choice.empty() ? nullptr : choice.c_str()},
                    kind == Ranks::threads ? interrupt_all_threads : interrupt_by_timer);
}

INSTANTIATE_TEST_SUITE_P(All, InterruptedCalls, testing::ValuesIn(every_call()),
                         [](const auto& each) { return each.param.name(); });

}  // namespace
}  // namespace tutti::test
