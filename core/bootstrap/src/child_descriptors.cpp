// SPDX-License-Identifier: Apache-2.0
#include "child_descriptors.hpp"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <set>

namespace tutti::core {
namespace {

struct DescriptorSet {
  std::mutex mutex;  // held across a fork, so that the child finds the set whole
  std::set<int> fds;
};

DescriptorSet& descriptors() {
  static DescriptorSet& all = *new DescriptorSet;
  return all;
}

void watch_forks() {
  [[maybe_unused]] static const int once =
      ::pthread_atfork([] { descriptors().mutex.lock(); }, [] { descriptors().mutex.unlock(); },
                       [] {
                         for (const int fd : descriptors().fds) ::close(fd);
                         descriptors().fds.clear();
                         descriptors().mutex.unlock();
                       });
}

}  // namespace

void close_in_children(int fd) {
  watch_forks();
  const std::lock_guard lock(descriptors().mutex);
  descriptors().fds.insert(fd);
}

void forget_in_children(int fd) {
  const std::lock_guard lock(descriptors().mutex);
  descriptors().fds.erase(fd);
}

}  // namespace tutti::core
