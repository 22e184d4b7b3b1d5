// SPDX-License-Identifier: Apache-2.0
//
// Memory without a name: sealed memfds and their mappings. A file that can shrink would turn a read into SIGBUS, so
// only files sealed against that are mapped, and only after their size was checked.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "file_descriptor.hpp"

namespace tutti::shm {

// A new memfd of `bytes` zeroes that can neither shrink nor grow. Throws sdk::Error.
FileDescriptor make_memory_file(const char* label, uint64_t bytes);

// Throws sdk::Error (TUTTI_MISMATCH) unless `fd` is a memfd of at least `bytes` that cannot shrink. `what` says whose.
void check_memory_file(int fd, uint64_t bytes, const char* what);

// The bytes [offset, offset + bytes) of a memory file in this process; unmapped with the object.
class Mapping {
 public:
  // offset need not be at a page's start. Throws sdk::Error.
  Mapping(int fd, uint64_t offset, uint64_t bytes, bool writable);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  void* base_;
  uint64_t length_;
  uint8_t* data_;
  uint64_t bytes_;
};

// Maps a whole memory file for reading and writing. All of this process's ranks get one mapping of one file: then also
// tools that watch addresses, such as thread sanitizers, see that they synchronise. [any thread]
std::shared_ptr<Mapping> map_shared(int fd, uint64_t bytes);

}  // namespace tutti::shm
