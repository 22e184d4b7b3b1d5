// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace tutti {

// A new descriptor, at another number if it is 0, 1 or 2: an application that has closed its standard output may still
// print, and must not print into it. Takes `fd` and gives the one to use, or -1 with errno; a negative `fd` is handed
// on.
inline int above_standard_descriptors(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(fd);
  errno = error;
  return moved;
}

// Owns one descriptor and closes it.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  // A new descriptor, or the -1 of whoever could not make one: then, and where it cannot be moved above the standard
  // ones, this is empty, and errno tells why.
  explicit FileDescriptor(int fd) : fd_(above_standard_descriptors(fd)) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~FileDescriptor() { reset(); }

  int get() const { return fd_; }
  // Hands the descriptor over; it is no longer closed here.
  int release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }
  void reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace tutti
