// SPDX-License-Identifier: Apache-2.0
//
// Virtual time for tests whose subject is time and whose ranks are threads of the test program.
//
//   VirtualTime time;
//   ... a rank waits 600 s for another one that sleeps; the test takes milliseconds ...
//   EXPECT_GE(time.passed(), 600s);
//
// The program links tutti_virtual_time, which replaces these functions of libc for the program, libtutti and plugins:
// clock_gettime, nanosleep, clock_nanosleep, poll, ppoll, epoll_wait, epoll_pwait, pthread_cond_clockwait, sched_yield,
// and the timed waits of syscall(SYS_futex). Of recv, readv, send, sendmsg and accept4 it learns whether they succeed.
// Before the first VirtualTime all do what libc does. While one exists:
//
//   Virtual time is real time plus an offset that only grows. A keeper thread adds to it when every other thread waits.
//
// A thread waits if one of these holds:
//   - It is asleep: the kernel has not run it for 10 ms and it is not about to run. What it sleeps in does not matter: a
//     wait with a deadline, a mutex, a join. A thread that is woken and has no core yet is about to run.
//   - It polls: since the last step it has begun four waits, had no event, and it is in one.
//
// A step of the clock goes
//   - exactly to the earliest deadline of all waits, if no thread polls or naps. A nap is a wait of at most 250 ms;
//   - else by an eighth of the time since the last event, 1 ms at least, and at most to the earliest deadline of those
//     waits that are no naps. An event is a wait that ended otherwise than by the timeout of a nap, a poll without
//     timeout that found something, bytes or a connection over a socket, or a thread that slept elsewhere and ran.
//
// Guaranteed:
//   - steady_clock never goes back, and is never slower than real time.
//   - No step while a thread runs, or is ready to run, unless it polls and is in a nap: a busy machine makes tests
//     slower and changes no outcome.
//   - Deadlines of waits that are no naps pass in their order, and each waiter is woken at its own.
//   - Between two steps every thread that polls looks at least once at what it polls for.
//   - A wait that ends by data, a notification or a changed word reports that, not a timeout, unless both come within
//     one step.
//
// Not guaranteed:
//   - How late a thread that polls sees a deadline: up to an eighth of the time that it was idle.
//   - Anything that only the kernel knows to be under way: timers of TCP, timerfd, other processes. Data in a loopback
//     connection arrives within the 10 ms unless the kernel delays its delivery for longer.
//   - Waits by CLOCK_REALTIME, sem_timedwait, timed mutexes and select: they go by real time. The time stamp counter
//     does too, so times that the flight recorder derives from it are off.
//   - A thread that spins without a wait or a yield keeps the clock at the pace of real time.
//
// The offset stays when the object ends, and time goes on at its real pace. GoogleTest's times of cases are virtual.
#pragma once

#include <chrono>

namespace tutti::test {

// Only one exists at a time. Not for programs that fork while it exists.
class VirtualTime {
 public:
  VirtualTime();
  ~VirtualTime();
  VirtualTime(const VirtualTime&) = delete;
  VirtualTime& operator=(const VirtualTime&) = delete;

  std::chrono::nanoseconds passed() const { return std::chrono::steady_clock::now() - begin_; }

 private:
  std::chrono::steady_clock::time_point begin_;
};

// A bound for a deadline: before that, a thread that polls has seen it and told others, on a busy machine too.
constexpr std::chrono::nanoseconds late(std::chrono::nanoseconds deadline) {
  return deadline + deadline / 8 + std::chrono::seconds(20);
}

}  // namespace tutti::test
