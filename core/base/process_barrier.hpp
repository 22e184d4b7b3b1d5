// SPDX-License-Identifier: Apache-2.0
//
// A memory barrier on every running thread of this process, made by the thread that rarely needs one so that those that
// often would need none (membarrier(2)).
#pragma once

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tutti::core {

// Whether process_barrier works here; asks the kernel once.
inline bool process_barrier_ready() {
  static const bool ready = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  return ready;
}

inline void process_barrier() {
  if (process_barrier_ready()) syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

}  // namespace tutti::core
