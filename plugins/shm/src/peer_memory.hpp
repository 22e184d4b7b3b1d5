// SPDX-License-Identifier: Apache-2.0
//
// The memory of the process at the other end of a link, read without its help: as the kernel allows it
// (process_vm_readv(2), which ptrace rules, containers and other users' processes may refuse), or directly where it is
// this process itself.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace tutti::shm {

class PeerMemory {
 public:
  // `process`: of the peer; 0: it is not known here. `most`: bytes of the largest fetch; `lanes` of them at a time.
  PeerMemory(pid_t process, uint32_t lanes, uint64_t most);
  bool is_own() const { return own_; }
  // Does the word at an address have this value? False, and errno: why it cannot be read.
  bool has(uint64_t address, uint64_t value) const noexcept;
  // The bytes at an address: there, or copied to `room`, or where it is nullptr to memory of the lane, until its next
  // fetch. nullptr, and errno: they cannot be read.
  const void* fetch(uint32_t lane, uint64_t address, uint64_t bytes, void* room) noexcept;

 private:
  bool read(void* to, uint64_t address, uint64_t bytes) const noexcept;
  const pid_t process_;  // 0: not known here
  const bool own_;
  const uint64_t most_;
  std::vector<std::unique_ptr<uint8_t[]>> rooms_;  // by lane; nullptr until needed
};

// Can the kernel read this memory for another process? That of devices may be out of its reach.
bool can_be_fetched(uint64_t address, uint64_t bytes) noexcept;

}  // namespace tutti::shm
