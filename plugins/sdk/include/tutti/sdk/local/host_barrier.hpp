// SPDX-License-Identifier: Apache-2.0
//
// A memory barrier on every thread that runs on this host now, of the processes that have asked for it (membarrier(2)).
// A rank that is about to sleep makes one. So a rank that wakes others needs none of its own between its store and its
// look at whether they sleep: that is on the path of every message.
#pragma once

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {
namespace local {

inline void host_barrier() { syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0); }

// Do barriers reach this process, and can it make them? Asks the kernel once. An old kernel, or a container's filter of
// system calls, may refuse either.
inline bool host_barrier_ready() {
  static const bool ready = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0 &&
                            syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
  return ready;
}

}  // namespace local
}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
