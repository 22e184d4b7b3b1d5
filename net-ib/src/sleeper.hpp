// SPDX-License-Identifier: Apache-2.0
//
// One epoll descriptor over the completion channels and a timer: what wait_fd hands out to sleep on.
#pragma once

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <tutti/sdk/plugin.hpp>

namespace tutti::ib {

class Sleeper {
 public:
  Sleeper()
      : epoll_(epoll_create1(EPOLL_CLOEXEC)), timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
    if (epoll_ < 0 || timer_ < 0) {
      const int error = errno;
      shut();
      throw sdk::system_error("cannot create an epoll and a timer descriptor", error);
    }
    watch(timer_);
  }
  ~Sleeper() { shut(); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  int descriptor() const { return epoll_; }
  void watch(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0)
      throw sdk::system_error("cannot watch a completion channel (epoll_ctl)", errno);
  }
  // The descriptor becomes readable after `delay` (zero or less: never).
  void wake_after(std::chrono::nanoseconds delay) {
    if (delay.count() <= 0 && !timer_set_) return;
    timer_set_ = delay.count() > 0;
    itimerspec when{};
    if (timer_set_) when.it_value = {delay.count() / 1'000'000'000, delay.count() % 1'000'000'000};
    timerfd_settime(timer_, 0, &when, nullptr);
  }

 private:
  void shut() {
    if (epoll_ >= 0) ::close(epoll_);
    if (timer_ >= 0) ::close(timer_);
  }
  int epoll_;
  int timer_;
  bool timer_set_ = false;
};

}  // namespace tutti::ib
