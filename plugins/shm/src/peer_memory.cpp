// SPDX-License-Identifier: Apache-2.0
#include "peer_memory.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

namespace tutti::shm {
namespace {

iovec piece(uint64_t address, uint64_t bytes) { return {reinterpret_cast<void*>(address), bytes}; }

}  // namespace

PeerMemory::PeerMemory(pid_t process, uint32_t lanes, uint64_t most)
    : process_(process), own_(process == getpid()), most_(most), rooms_(lanes) {}

bool PeerMemory::read(void* to, uint64_t address, uint64_t bytes) const noexcept {
  if (process_ <= 0) return errno = ESRCH, false;
  const iovec here{to, bytes}, there = piece(address, bytes);
  const ssize_t got = process_vm_readv(process_, &here, 1, &there, 1, 0);
  if (got >= 0 && static_cast<uint64_t>(got) < bytes) errno = EFAULT;
  return got >= 0 && static_cast<uint64_t>(got) == bytes;
}

bool PeerMemory::has(uint64_t address, uint64_t value) const noexcept {
  uint64_t word = ~value;
  if (!read(&word, address, sizeof word)) return false;
  if (word != value) errno = ESRCH;  // here its number is that of another process
  return word == value;
}

const void* PeerMemory::fetch(uint32_t lane, uint64_t address, uint64_t bytes, void* room) noexcept {
  if (own_) return reinterpret_cast<const void*>(address);
  if (!room) {
    std::unique_ptr<uint8_t[]>& own_room = rooms_[lane];
    if (!own_room) own_room.reset(new (std::nothrow) uint8_t[most_]);
    if (!own_room) return errno = ENOMEM, nullptr;
    room = own_room.get();
  }
  return read(room, address, bytes) ? room : nullptr;
}

bool can_be_fetched(uint64_t address, uint64_t bytes) noexcept {
  uint8_t ends[2];
  const iovec here{ends, sizeof ends};
  const iovec there[] = {piece(address, 1), piece(address + bytes - 1, 1)};
  return process_vm_readv(getpid(), &here, 1, there, 2, 0) == sizeof ends;
}

}  // namespace tutti::shm
