// SPDX-License-Identifier: Apache-2.0
#include "virtual_time.hpp"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// Real time runs on beside the steps of the clock, on a busy machine for some seconds.
constexpr auto slack = 60s;

void in_threads(const std::vector<std::function<void()>>& bodies) {
  std::vector<std::thread> threads;
  for (const auto& body : bodies) threads.emplace_back(body);
  for (std::thread& thread : threads) thread.join();
}

// Two ends of a connection over the loopback device.
std::array<int, 2> connection() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0), one = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof at;
  EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  EXPECT_EQ(listen(listener, 1), 0);
  EXPECT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&at), &bytes), 0);
  EXPECT_EQ(connect(one, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  const int other = accept(listener, nullptr, nullptr);
  close(listener);
  return {one, other};
}

struct Sleep {
  const char* what;
  void (*until_timeout)();
};
// Each waits for an hour and reports a timeout.
const Sleep sleeps[] = {
    {"sleep_for", [] { std::this_thread::sleep_for(1h); }},
    {"sleep_until", [] { std::this_thread::sleep_until(steady_clock::now() + 1h); }},
    {"clock_nanosleep",
     [] {
       timespec until{};
       clock_gettime(CLOCK_MONOTONIC, &until);
       until.tv_sec += 3600;
       EXPECT_EQ(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr), 0);
     }},
    {"poll",
     [] {
       pollfd fd{eventfd(0, 0), POLLIN, 0};
       EXPECT_EQ(poll(&fd, 1, 3'600'000), 0);
       close(fd.fd);
     }},
    {"ppoll",
     [] {
       pollfd fd{eventfd(0, 0), POLLIN, 0};
       const timespec hour{3600, 0};
       EXPECT_EQ(ppoll(&fd, 1, &hour, nullptr), 0);
       close(fd.fd);
     }},
    {"epoll_wait",
     [] {
       const int epoll = epoll_create1(0);
       epoll_event event{};
       EXPECT_EQ(epoll_wait(epoll, &event, 1, 3'600'000), 0);
       close(epoll);
     }},
    {"condition_variable",
     [] {
       std::mutex mutex;
       std::condition_variable never;
       std::unique_lock lock(mutex);
       EXPECT_EQ(never.wait_for(lock, 1h), std::cv_status::timeout);
     }},
    {"pthread_cond_clockwait",
     [] {
       pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
       pthread_cond_t never = PTHREAD_COND_INITIALIZER;
       timespec until{};
       clock_gettime(CLOCK_MONOTONIC, &until);
       until.tv_sec += 3600;
       pthread_mutex_lock(&mutex);
       EXPECT_EQ(pthread_cond_clockwait(&never, &mutex, CLOCK_MONOTONIC, &until), ETIMEDOUT);
       pthread_mutex_unlock(&mutex);
     }},
    {"futex, relative",
     [] {
       uint32_t word = 0;
       const timespec hour{3600, 0};
       EXPECT_EQ(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &hour, nullptr, 0), -1);
       EXPECT_EQ(errno, ETIMEDOUT);
     }},
    {"futex, absolute",
     [] {
       uint32_t word = 0;
       timespec until{};
       clock_gettime(CLOCK_MONOTONIC, &until);
       until.tv_sec += 3600;
       EXPECT_EQ(syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, &until, nullptr, FUTEX_BITSET_MATCH_ANY), -1);
       EXPECT_EQ(errno, ETIMEDOUT);
     }},
};

TEST(VirtualTime, EveryWaitEndsAtItsDeadlineAtOnce) {
  VirtualTime time;
  for (const Sleep& sleep : sleeps) {
    SCOPED_TRACE(sleep.what);
    const nanoseconds before = time.passed();
    sleep.until_timeout();
    EXPECT_GE(time.passed() - before, 1h);
    EXPECT_LT(time.passed() - before, 1h + slack);
  }
}

TEST(VirtualTime, SleepersWakeInTheOrderOfTheirDeadlines) {
  VirtualTime time;
  std::mutex mutex;
  std::vector<int> order;
  std::vector<std::function<void()>> bodies;
  for (const int seconds : {300, 100, 500, 200, 400})
    bodies.emplace_back([&, seconds] {
      std::this_thread::sleep_for(std::chrono::seconds(seconds));
      const std::lock_guard lock(mutex);
      order.push_back(seconds);
    });
  in_threads(bodies);
  EXPECT_EQ(order, (std::vector{100, 200, 300, 400, 500}));
  EXPECT_GE(time.passed(), 500s);
  EXPECT_LT(time.passed(), 500s + slack);
}

nanoseconds cpu_time() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + nanoseconds(used.tv_nsec);
}

TEST(VirtualTime, StandsStillWhileAThreadComputes) {
  for (const bool beside_polls : {false, true}) {
    VirtualTime time;
    std::atomic<bool> computed{false};
    std::vector<std::function<void()>> bodies{[&] {
                                                while (cpu_time() < 300ms) {
                                                }
                                                EXPECT_LT(time.passed(), slack);
                                                computed = true;
                                              },
                                              [&] {
                                                std::this_thread::sleep_for(1h);
                                                EXPECT_TRUE(computed);
                                              }};
    if (beside_polls)
      bodies.emplace_back([&] {
        while (time.passed() < 1h) std::this_thread::sleep_for(50us);
        EXPECT_TRUE(computed);
      });
    in_threads(bodies);
  }
}

// The kernel's list of threads ends early where one of them ends just then: here at the end of a link, before the next.
TEST(VirtualTime, StandsStillWhileThreadsEndAndOthersBegin) {
  VirtualTime time;
  std::atomic<bool> over{false};
  const std::function<void(int)> link = [&](int left) {
    const nanoseconds begin = cpu_time();
    while (cpu_time() - begin < 50us) {
    }
    if (left > 0) {
      std::thread(link, left - 1).detach();
    } else {
      EXPECT_LT(time.passed(), slack);
      over = true;
      over.notify_one();
    }
  };
  in_threads({[&] {
                std::this_thread::sleep_for(1h);
                EXPECT_TRUE(over);
              },
              [&] {
                std::thread(link, 10'000).detach();
                over.wait(false);
              }});
}

// Each of the two is asleep most of the time, in calls that the clock does not know, and never are both.
TEST(VirtualTime, StandsStillWhileThreadsTalkInBlockingCalls) {
  VirtualTime time;
  const auto [one, other] = connection();
  std::atomic<bool> talked{false};
  const auto talk = [](int fd, bool begins) {
    char word = 'w';
    for (int i = 0; i < 5000; ++i) {
      if (begins) {
        EXPECT_EQ(write(fd, &word, 1), 1);
      }
      EXPECT_EQ(read(fd, &word, 1), 1);
      if (!begins) {
        EXPECT_EQ(write(fd, &word, 1), 1);
      }
    }
  };
  in_threads({[&, fd = one] {
                talk(fd, true);
                EXPECT_LT(time.passed(), slack);
                talked = true;
              },
              [&, fd = other] { talk(fd, false); },
              [&] {
                std::this_thread::sleep_for(1h);
                EXPECT_TRUE(talked);
              }});
  close(one);
  close(other);
}

// A mutex is held over a sleep: the one who waits for it has no deadline, and gets it then.
TEST(VirtualTime, AMutexIsWaitedForLikeAnythingElse) {
  VirtualTime time;
  std::mutex mutex;
  std::atomic<bool> held{false};
  in_threads({[&] {
                const std::lock_guard lock(mutex);
                held = true;
                std::this_thread::sleep_for(30s);
              },
              [&] {
                while (!held) std::this_thread::yield();
                const std::lock_guard lock(mutex);
                EXPECT_GE(time.passed(), 30s);
                EXPECT_LT(time.passed(), 30s + slack);
              }});
}

TEST(VirtualTime, ANotificationIsNoTimeout) {
  VirtualTime time;
  std::mutex mutex;
  std::condition_variable changed;
  bool ready = false;
  in_threads({[&] {
                std::this_thread::sleep_for(100s);
                const std::lock_guard lock(mutex);
                ready = true;
                changed.notify_one();
              },
              [&] {
                std::unique_lock lock(mutex);
                EXPECT_EQ(changed.wait_for(lock, 200s), std::cv_status::no_timeout);
                EXPECT_TRUE(ready);
                EXPECT_GE(time.passed(), 100s);
                EXPECT_LT(time.passed(), 100s + slack);
              }});
}

// Each answer comes at once, and the clock must not overtake it.
TEST(VirtualTime, DataInAConnectionIsNoTimeout) {
  VirtualTime time;
  const auto [one, other] = connection();
  constexpr int rounds = 2000;
  std::atomic<int> timeouts{0};
  const auto play = [&](int fd, bool begins) {
    char ball = 'b';
    for (int round = 0; round < rounds; ++round) {
      if (begins) {
        if (round % 100 == 0) std::this_thread::sleep_for(1min);
        EXPECT_EQ(write(fd, &ball, 1), 1);
      }
      pollfd ready{fd, POLLIN, 0};
      const int found = begins ? poll(&ready, 1, 100) : poll(&ready, 1, 120'000);
      if (found != 1) ++timeouts;
      EXPECT_EQ(read(fd, &ball, 1), 1);
      if (!begins) {
        EXPECT_EQ(write(fd, &ball, 1), 1);
      }
    }
  };
  in_threads({[&, fd = one] { play(fd, true); }, [&, fd = other] { play(fd, false); }});
  EXPECT_EQ(timeouts, 0);
  EXPECT_GE(time.passed(), rounds / 100 * 1min);
  EXPECT_LT(time.passed(), rounds / 100 * 1min + slack);
  close(one);
  close(other);
}

struct Nap {
  const char* what;
  void (*take)();
};
const Nap naps[] = {{"yield", [] { std::this_thread::yield(); }},
                    {"20 us", [] { std::this_thread::sleep_for(20us); }},
                    {"1.5 ms", [] { std::this_thread::sleep_for(1500us); }},
                    {"20 ms", [] {
                       pollfd fd{-1, POLLIN, 0};
                       poll(&fd, 1, 20);
                     }}};

TEST(VirtualTime, WhoPollsSeesADeadlineSoonAfterIt) {
  for (const Nap& nap : naps) {
    SCOPED_TRACE(nap.what);
    VirtualTime time;
    in_threads({[&] {
                  while (time.passed() < 600s) nap.take();
                  EXPECT_LT(time.passed(), 600s * 9 / 8 + slack);
                },
                // Beside it, a deadline that is no nap's is met.
                [&] {
                  std::this_thread::sleep_for(50s);
                  EXPECT_GE(time.passed(), 50s);
                  EXPECT_LT(time.passed(), 50s + slack);
                }});
  }
}

// Ranks that poll memory answer each other, and the clock does not run away meanwhile: at each of its steps the ball has
// moved.
TEST(VirtualTime, WhoPollsGetsItsTurnBetweenSteps) {
  constexpr int turns = 100;
  VirtualTime time;
  std::atomic<int> ball{0};
  const auto play = [&](int mine) {
    for (int turn = mine; turn < turns; turn += 2) {
      while (ball != turn) std::this_thread::sleep_for(1500us);  // longer than the keeper's turns
      ball = turn + 1;
    }
  };
  in_threads({[&] { play(0); }, [&] { play(1); }});
  EXPECT_LT(time.passed(), slack);
}

// Processes that leave hardly anything of one core to who is pinned to it at the lowest priority.
class BusyCore {
 public:
  BusyCore() : core_(static_cast<size_t>(sched_getcpu())) {
    for (int k = 0; k < 8; ++k) {
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin();
        for (std::atomic<int> turns{0};;) ++turns;
      }
      children_.push_back(child);
    }
  }
  ~BusyCore() {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }
  void pin() const {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core_, &cores);
    EXPECT_EQ(sched_setaffinity(0, sizeof cores, &cores), 0);
  }
  void starve() const {
    pin();
    const sched_param none{};
    EXPECT_EQ(pthread_setschedparam(pthread_self(), SCHED_IDLE, &none), 0);
  }

 private:
  const size_t core_;
  std::vector<pid_t> children_;
};

nanoseconds real_time() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

// A thread whose nap is over and that waits for a core has not looked yet: there is one step at most from look to look.
TEST(VirtualTime, WhoPollsLooksBetweenStepsThoughItHasNoCore) {
  const BusyCore busy;
  VirtualTime time;
  in_threads({[&] {
    busy.starve();
    nanoseconds real_before = real_time(), before = time.passed();
    const nanoseconds end = real_before + 3s;
    for (int look = 0; look < 1000 && real_before < end; ++look) {
      std::this_thread::sleep_for(1500us);
      const nanoseconds real = real_time(), now = time.passed();
      // A step is an eighth of the time before it, which is a ninth of the time after it; two are a fifth.
      ASSERT_LT(now - before - (real_time() - real_before), now / 7 + 3ms) << "at look " << look;
      before = now;
      real_before = real;
    }
  }});
}

TEST(VirtualTime, WaitsWithoutAnEndMoveNothing) {
  VirtualTime time;
  const int event = eventfd(0, 0);
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  in_threads({[&] {
                std::this_thread::sleep_for(20s);
                eventfd_write(event, 1);
              },
              [&] {
                pollfd fd{event, POLLIN, 0};
                EXPECT_EQ(poll(&fd, 1, -1), 1);
                const std::lock_guard lock(mutex);
                over = true;
                changed.notify_one();
              },
              [&] {
                std::unique_lock lock(mutex);
                EXPECT_TRUE(changed.wait_until(lock, steady_clock::time_point::max(), [&] { return over; }));
              }});
  EXPECT_GE(time.passed(), 20s);
  EXPECT_LT(time.passed(), 20s + slack);
  close(event);
}

TEST(VirtualTime, AfterwardsTimeIsAtItsRealPaceAndHasNotGoneBack) {
  const auto before = steady_clock::now();
  {
    VirtualTime time;
    std::this_thread::sleep_for(1h);
  }
  EXPECT_GE(steady_clock::now() - before, 1h);
  timespec real{}, real_after{};
  clock_gettime(CLOCK_REALTIME, &real);
  const auto begin = steady_clock::now();
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  EXPECT_EQ(never.wait_for(lock, 20ms), std::cv_status::timeout);
  std::this_thread::sleep_for(20ms);
  EXPECT_GE(steady_clock::now() - begin, 40ms);
  clock_gettime(CLOCK_REALTIME, &real_after);
  EXPECT_GE((real_after.tv_sec - real.tv_sec) * 1'000'000'000 + real_after.tv_nsec - real.tv_nsec, 39'000'000);
  EXPECT_THROW(
      {
        VirtualTime one;
        VirtualTime two;
      },
      std::logic_error);
}

}  // namespace
}  // namespace tutti::test
