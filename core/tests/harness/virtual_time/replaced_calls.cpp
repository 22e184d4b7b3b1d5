// SPDX-License-Identifier: Apache-2.0
//
// The functions of libc that read the clock or wait for it, by the virtual clock.
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <ctime>

#include "../real_function.hpp"
#include "clock.hpp"

namespace tutti::test::virtual_time {
namespace {

constexpr int64_t second = 1'000'000'000;

constinit Real<int(clockid_t, timespec*)> real_clock_gettime("clock_gettime");
constinit Real<int(clockid_t, int, const timespec*, timespec*)> real_clock_nanosleep("clock_nanosleep");
constinit Real<int(const timespec*, timespec*)> real_nanosleep("nanosleep");
constinit Real<int(pollfd*, nfds_t, const timespec*, const sigset_t*)> real_ppoll("ppoll");
constinit Real<int(int, epoll_event*, int, int, const sigset_t*)> real_epoll_pwait("epoll_pwait");
constinit Real<int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)> real_cond_clockwait(
    "pthread_cond_clockwait");
constinit Real<ssize_t(int, void*, size_t, int)> real_recv("recv");
constinit Real<ssize_t(int, const void*, size_t, int)> real_send("send");
constinit Real<ssize_t(int, const msghdr*, int)> real_sendmsg("sendmsg");
constinit Real<ssize_t(int, const iovec*, int)> real_readv("readv");
constinit Real<int(int, sockaddr*, socklen_t*, int)> real_accept4("accept4");
constinit Real<int()> real_sched_yield("sched_yield");
constinit Real<long(long, ...)> real_syscall("syscall");

int64_t ns_of(const timespec& time) {
  // At most some decades: no overflow.
  return std::min<int64_t>(time.tv_sec, Clock::no_deadline / second / 4) * second + time.tv_nsec;
}
timespec timespec_of(int64_t ns) { return {ns / second, ns % second}; }

bool is_virtual(clockid_t clock) {
  return Clock::process().in_use() && (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_RAW ||
                                       clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_BOOTTIME);
}

int64_t after(int64_t ns) { return ns < 0 ? Clock::no_deadline : Clock::process().now() + ns; }

// Repeats `call(time left)`, which returns a negative number and sets errno, while the clock's signal ends it too early.
// After the deadline it is called once more with no time: what has come by then is no timeout.
template <typename Call>
auto wait_until(int64_t deadline, Call&& call) {
  Wait wait(deadline);
  while (true) {
    const timespec left = timespec_of(wait.left());
    const auto result = call(left);
    if (result < 0 && errno == EINTR && wait.woken()) continue;
    const bool timeout = result == 0 || (result < 0 && errno == ETIMEDOUT);
    if (!timeout) wait.ends_by_event();
    return result;
  }
}

// Calls what the clock does not wait for: it looks for events, moves bytes or takes a connection. Success is an event.
template <typename Call>
auto note(Call&& call) {
  const auto result = call();
  if (result > 0) Clock::process().note_event();
  return result;
}

// Sleeps until the deadline. 0, or the error; `left`: of the time, after an error.
int sleep_until(int64_t deadline, timespec* left) {
  Wait wait(deadline);
  while (const int64_t ns = wait.left()) {
    const timespec time = timespec_of(ns);
    const int error = (*real_clock_nanosleep)(CLOCK_MONOTONIC, 0, &time, nullptr);
    if (error == 0 || (error == EINTR && wait.woken())) continue;
    wait.ends_by_event();
    if (left) *left = timespec_of(wait.left());
    return error;
  }
  return 0;
}

// FUTEX_WAIT has the time from now, FUTEX_WAIT_BITSET the time of a clock.
long wait_for_word(long number, const long (&a)[6]) {
  const bool absolute = (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
  const int64_t time = ns_of(*reinterpret_cast<const timespec*>(a[3]));
  return wait_until(absolute ? time : after(time), [&](const timespec& left) {
    const timespec until = absolute ? timespec_of(real_now() + ns_of(left)) : left;
    return (*real_syscall)(number, a[0], a[1], a[2], &until, a[4], a[5]);
  });
}

bool waits_for_word(long number, const long (&a)[6]) {
  if (number != SYS_futex || !a[3] || !Clock::process().in_use()) return false;
  const long command = a[1] & FUTEX_CMD_MASK;
  return command == FUTEX_WAIT || (command == FUTEX_WAIT_BITSET && !(a[1] & FUTEX_CLOCK_REALTIME));
}

}  // namespace

int64_t real_now() {
  timespec time;
  (*real_clock_gettime)(CLOCK_MONOTONIC, &time);
  return ns_of(time);
}

}  // namespace tutti::test::virtual_time

using namespace tutti::test::virtual_time;

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const int error = (*real_clock_gettime)(clock, time);
  if (!error && is_virtual(clock)) *time = timespec_of(ns_of(*time) + Clock::process().offset());
  return error;
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec* left) {
  if (!is_virtual(clock)) return (*real_clock_nanosleep)(clock, flags, time, left);
  const bool absolute = flags & TIMER_ABSTIME;
  return sleep_until(absolute ? ns_of(*time) : after(ns_of(*time)), absolute ? nullptr : left);
}

int nanosleep(const timespec* time, timespec* left) {
  if (!Clock::process().in_use()) return (*real_nanosleep)(time, left);
  const int error = sleep_until(after(ns_of(*time)), left);
  if (!error) return 0;
  errno = error;
  return -1;
}

int ppoll(pollfd* fds, nfds_t n, const timespec* timeout, const sigset_t* mask) {
  const bool waits = !timeout || ns_of(*timeout) > 0;
  if (!waits || !Clock::process().in_use()) return note([&] { return (*real_ppoll)(fds, n, timeout, mask); });
  return wait_until(after(timeout ? ns_of(*timeout) : -1),
                    [&](const timespec& left) { return (*real_ppoll)(fds, n, timeout ? &left : nullptr, mask); });
}

int poll(pollfd* fds, nfds_t n, int timeout_ms) {
  const timespec timeout = timespec_of(int64_t{std::max(timeout_ms, 0)} * 1'000'000);
  return ppoll(fds, n, timeout_ms < 0 ? nullptr : &timeout, nullptr);
}

int epoll_pwait(int epoll, epoll_event* events, int n, int timeout_ms, const sigset_t* mask) {
  if (timeout_ms == 0 || !Clock::process().in_use())
    return note([&] { return (*real_epoll_pwait)(epoll, events, n, timeout_ms, mask); });
  return wait_until(after(timeout_ms < 0 ? -1 : int64_t{timeout_ms} * 1'000'000), [&](const timespec& left) {
    const int64_t left_ms = (ns_of(left) + 999'999) / 1'000'000;
    return (*real_epoll_pwait)(epoll, events, n, timeout_ms < 0 ? -1 : static_cast<int>(left_ms), mask);
  });
}

int epoll_wait(int epoll, epoll_event* events, int n, int timeout_ms) {
  return epoll_pwait(epoll, events, n, timeout_ms, nullptr);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  if (!is_virtual(clock)) return (*real_cond_clockwait)(condition, mutex, clock, until);
  Wait wait(ns_of(*until), condition);
  const timespec real_until = timespec_of(std::max<int64_t>(0, wait.real_deadline()));
  const int error = (*real_cond_clockwait)(condition, mutex, clock, &real_until);
  if (error == ETIMEDOUT || (error == 0 && wait.woken() && wait.left() == 0)) return ETIMEDOUT;
  wait.ends_by_event();
  return error;
}

ssize_t recv(int fd, void* data, size_t bytes, int flags) {
  return note([&] { return (*real_recv)(fd, data, bytes, flags); });
}
ssize_t send(int fd, const void* data, size_t bytes, int flags) {
  return note([&] { return (*real_send)(fd, data, bytes, flags); });
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return note([&] { return (*real_sendmsg)(fd, message, flags); });
}
ssize_t readv(int fd, const iovec* parts, int n) {
  return note([&] { return (*real_readv)(fd, parts, n); });
}
int accept4(int fd, sockaddr* from, socklen_t* bytes, int flags) {
  return note([&] { return (*real_accept4)(fd, from, bytes, flags); });
}

// A thread that yields polls.
int sched_yield() noexcept {
  if (!Clock::process().in_use()) return (*real_sched_yield)();
  sleep_until(after(20'000), nullptr);
  return 0;
}

// It takes six arguments, however many there are, as libc does: past the last one lies whatever the stack has there.
__attribute__((no_sanitize("address"))) long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& one : a) one = va_arg(list, long);
  va_end(list);
  if (waits_for_word(number, a)) return wait_for_word(number, a);
  return (*real_syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

}  // extern "C"
