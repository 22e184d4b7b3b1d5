// SPDX-License-Identifier: Apache-2.0
//
// One epoll descriptor over everything that an endpoint may wait for. It finds ready sockets when there are many, and
// it is what wait_fd hands out to sleep on: level-triggered, so it is readable exactly while there is something to do.
#pragma once

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <span>
#include <tutti/sdk/plugin.hpp>

namespace tutti::tcp {

enum class Watched : uint64_t { kListener = 1, kHandshake = 2, kConnection = 3, kTimer = 4 };

class Poller {
 public:
  Poller() : epoll_(epoll_create1(EPOLL_CLOEXEC)), timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
    if (epoll_ < 0 || timer_ < 0) {
      const int error = errno;
      shut();
      throw sdk::system_error("cannot create an epoll and a timer descriptor", error);
    }
    watch(timer_, EPOLLIN, Watched::kTimer, 0);
  }
  ~Poller() { shut(); }
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  int descriptor() const { return epoll_; }
  void watch(int fd, uint32_t events, Watched kind, uint64_t id) { control(EPOLL_CTL_ADD, fd, events, kind, id); }
  void change(int fd, uint32_t events, Watched kind, uint64_t id) { control(EPOLL_CTL_MOD, fd, events, kind, id); }
  void forget(int fd) { epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr); }
  // What is ready now; never waits.
  std::span<const epoll_event> ready() {
    const int n = epoll_wait(epoll_, events_.data(), static_cast<int>(events_.size()), 0);
    return {events_.data(), n > 0 ? static_cast<size_t>(n) : 0};
  }
  // The descriptor becomes readable after `delay` (zero or less: never).
  void wake_after(std::chrono::nanoseconds delay) {
    if (delay.count() <= 0 && !timer_set_) return;
    timer_set_ = delay.count() > 0;
    itimerspec when{};
    if (timer_set_) when.it_value = {delay.count() / 1'000'000'000, delay.count() % 1'000'000'000};
    timerfd_settime(timer_, 0, &when, nullptr);
  }
  static Watched kind(const epoll_event& e) { return static_cast<Watched>(e.data.u64 >> 56); }
  static uint64_t id(const epoll_event& e) { return e.data.u64 & ((uint64_t{1} << 56) - 1); }

 private:
  void control(int operation, int fd, uint32_t events, Watched kind, uint64_t id) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = static_cast<uint64_t>(kind) << 56 | id;
    if (epoll_ctl(epoll_, operation, fd, &event) != 0)
      throw sdk::system_error("cannot watch a socket (epoll_ctl)", errno);
  }
  void shut() {
    if (epoll_ >= 0) ::close(epoll_);
    if (timer_ >= 0) ::close(timer_);
  }

  int epoll_;
  int timer_;
  bool timer_set_ = false;
  std::array<epoll_event, 64> events_;
};

}  // namespace tutti::tcp
