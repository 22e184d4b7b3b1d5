// SPDX-License-Identifier: Apache-2.0
//
// Memory without a name: sealed memfds and their mappings. A file that can shrink would turn a read into SIGBUS, so
// only files sealed against that are mapped, and only after their size was checked. Needs fmt (words.hpp).
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <tutti/base/unnamed_file.hpp>
#include <tutti/sdk/descriptors.hpp>
#include <tutti/sdk/local/segment.hpp>
#include <tutti/sdk/local/shared_by_key.hpp>
#include <tutti/sdk/words.hpp>
#include <utility>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {
namespace local {

// Throws Error (TUTTI_NO_RESOURCES) where this process may not make a file of so many bytes: it would be ended by
// SIGXFSZ.
inline void check_file_limit(uint64_t bytes) {
  rlimit largest{};
  if (getrlimit(RLIMIT_FSIZE, &largest) == 0 && bytes > largest.rlim_cur)
    throw error(TUTTI_NO_RESOURCES,
                "{}: {} bytes of shared memory are more than the largest file that this process may make, {} bytes "
                "(ulimit -f)",
                plugin_id, bytes, largest.rlim_cur);
}

inline void resize_memory_file(int fd, uint64_t bytes) {
  check_file_limit(bytes);
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0)
    throw system_error(errno, "{}: a memory file of {} bytes", plugin_id, bytes);
}

// A new memfd of `bytes` zeroes that cannot shrink, and grows only where `grows`. /proc/PID/maps shows the label.
// Throws Error.
inline FileDescriptor make_memory_file(const std::string& label, uint64_t bytes, bool grows = false) {
  FileDescriptor file(make_unnamed_file(label.c_str()));
  if (!file) throw system_error(errno, "{}: memfd_create", plugin_id);
  if (fchmod(file.get(), S_IRUSR | S_IWUSR) != 0) throw system_error(errno, "{}: fchmod", plugin_id);
  resize_memory_file(file.get(), bytes);
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | (grows ? 0 : F_SEAL_GROW) | F_SEAL_SEAL) != 0)
    throw system_error(errno, "{}: sealing a memory file", plugin_id);
  return file;
}

// Throws Error (TUTTI_MISMATCH) unless `fd` is a memfd of at least `bytes` that cannot shrink. `what` names the file.
inline void check_memory_file(int fd, uint64_t bytes, const char* what) {
  struct stat status {};
  if (fstat(fd, &status) != 0) throw system_error(errno, "{}: {}", plugin_id, what);
  if (status.st_size < 0 || static_cast<uint64_t>(status.st_size) < bytes)
    throw error(TUTTI_MISMATCH, "{}: {} has {} bytes where {} are needed", plugin_id, what, status.st_size, bytes);
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK))
    throw error(TUTTI_MISMATCH, "{}: {} is not a memfd that is sealed against shrinking", plugin_id, what);
}

// The bytes [offset, offset + bytes) of a memory file in this process; unmapped with the object.
class Mapping {
 public:
  // offset need not be at a page's start. Throws Error.
  Mapping(int fd, uint64_t offset, uint64_t bytes, bool writable) : bytes_(bytes) {
    const uint64_t start = offset / kPage * kPage;
    length_ = offset - start + bytes;
    base_ = mmap(nullptr, length_, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd,
                 static_cast<off_t>(start));
    if (base_ == MAP_FAILED) throw system_error(errno, "{}: mapping {} bytes", plugin_id, length_);
    data_ = static_cast<uint8_t*>(base_) + (offset - start);
  }
  ~Mapping() { munmap(base_, length_); }
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

// Maps a part of a memory file, from a page's start on, for reading and writing. All of this process's ranks get one
// mapping of one part: then also tools that watch addresses, such as thread sanitizers, see that they synchronise.
// [any thread]
inline std::shared_ptr<Mapping> map_shared(int fd, uint64_t offset, uint64_t bytes) {
  using Part = std::tuple<dev_t, ino_t, uint64_t>;
  static auto& mappings = *new SharedByKey<Part, Mapping>;  // threads may outlive static destruction
  struct stat status {};
  if (fstat(fd, &status) != 0) throw system_error(errno, "{}: a memory file", plugin_id);
  // A file's number may be used again only when nobody has it open or mapped, so a live mapping is of this very file.
  return mappings.get(
      {status.st_dev, status.st_ino, offset}, [&](const Mapping& mapping) { return mapping.bytes() == bytes; },
      [&] { return std::make_unique<Mapping>(fd, offset, bytes, true); });
}

}  // namespace local
}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
