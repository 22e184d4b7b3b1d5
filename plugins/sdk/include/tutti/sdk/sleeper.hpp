// SPDX-License-Identifier: Apache-2.0
//
// One epoll descriptor over all that an endpoint may wait for, and a timer: what wait_fd hands out to sleep on. It is
// level-triggered: it stays readable until what woke it has been dealt with or is no longer watched. Each descriptor is
// watched under a mark of the caller's, which ready() hands back. Not thread-safe.
#pragma once

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <span>
#include <tutti/base/file_descriptor.hpp>
#include <tutti/sdk/plugin.hpp>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {

class Sleeper {
 public:
  // The timer's mark.
  static constexpr uint64_t kTimer = UINT64_MAX;
  // The most descriptors that one ready() returns.
  static constexpr size_t kMost = 64;

  // Throws Error{TUTTI_SYSTEM}, as do watch and change.
  Sleeper()
      : epoll_(epoll_create1(EPOLL_CLOEXEC)), timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
    if (!epoll_ || !timer_) throw system_error("cannot create an epoll and a timer descriptor", errno);
    watch(timer_.get(), EPOLLIN, kTimer);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  int descriptor() const { return epoll_.get(); }
  void watch(int fd, uint32_t events = EPOLLIN, uint64_t mark = 0) { control(EPOLL_CTL_ADD, fd, events, mark); }
  void change(int fd, uint32_t events, uint64_t mark) { control(EPOLL_CTL_MOD, fd, events, mark); }
  void forget(int fd) noexcept { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }
  // The descriptors that are ready now, with data.u64 the mark; never waits. An expired timer is among them once.
  std::span<const epoll_event> ready() {
    const int n = epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()), 0);
    const std::span<const epoll_event> found(events_.data(), n > 0 ? static_cast<size_t>(n) : 0);
    for (const epoll_event& event : found)
      if (event.data.u64 == kTimer) wake_after({});
    return found;
  }
  // The descriptor becomes readable after `delay`, and stays so until the next call; zero or less: never.
  void wake_after(std::chrono::nanoseconds delay) noexcept {
    if (delay.count() <= 0 && !timer_set_) return;
    timer_set_ = delay.count() > 0;
    itimerspec when{};
    if (timer_set_) when.it_value = {delay.count() / 1'000'000'000, delay.count() % 1'000'000'000};
    timerfd_settime(timer_.get(), 0, &when, nullptr);
  }

 private:
  void control(int operation, int fd, uint32_t events, uint64_t mark) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = mark;
    if (epoll_ctl(epoll_.get(), operation, fd, &event) != 0)
      throw system_error("cannot watch a descriptor (epoll_ctl)", errno);
  }

  FileDescriptor epoll_;
  FileDescriptor timer_;
  bool timer_set_ = false;
  std::array<epoll_event, kMost> events_;
};

}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
