// SPDX-License-Identifier: Apache-2.0
#include "child_descriptors.hpp"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <set>

namespace tutti::core {
namespace {

struct Registry {
  std::mutex mutex;  // held across a fork, so that the child finds the set whole
  std::set<int> fds;
};

Registry& registry() {
  static Registry& all = *new Registry;
  return all;
}

void watch_forks() {
  [[maybe_unused]] static const int once =
      ::pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                       [] {
                         for (const int fd : registry().fds) ::close(fd);
                         registry().fds.clear();
                         registry().mutex.unlock();
                       });
}

}  // namespace

void close_in_children(int fd) {
  watch_forks();
  const std::lock_guard lock(registry().mutex);
  registry().fds.insert(fd);
}

void forget_in_children(int fd) {
  const std::lock_guard lock(registry().mutex);
  registry().fds.erase(fd);
}

}  // namespace tutti::core
