// SPDX-License-Identifier: Apache-2.0
#include "memory_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <string>
#include <tutti/sdk/plugin.hpp>

#include "ring.hpp"

namespace tutti::shm {

FileDescriptor make_memory_file(const char* label, uint64_t bytes) {
  rlimit largest{};  // making a file larger than this would end the process by SIGXFSZ
  if (getrlimit(RLIMIT_FSIZE, &largest) == 0 && bytes > largest.rlim_cur)
    throw sdk::Error(TUTTI_NO_RESOURCES,
                     "shm: " + std::to_string(bytes) +
                         " bytes of shared memory are more than the largest file that this process may "
                         "make, " +
                         std::to_string(largest.rlim_cur) + " bytes (ulimit -f)");
  FileDescriptor file(memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) throw sdk::system_error("shm: memfd_create", errno);
  if (fchmod(file.get(), S_IRUSR | S_IWUSR) != 0) throw sdk::system_error("shm: fchmod", errno);
  if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    throw sdk::system_error("shm: a memory file of " + std::to_string(bytes) + " bytes", errno);
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw sdk::system_error("shm: sealing a memory file", errno);
  return file;
}

void check_memory_file(int fd, uint64_t bytes, const char* what) {
  struct stat status{};
  if (fstat(fd, &status) != 0) throw sdk::system_error(std::string("shm: ") + what, errno);
  if (status.st_size < 0 || static_cast<uint64_t>(status.st_size) < bytes)
    throw sdk::Error(TUTTI_MISMATCH, std::string("shm: ") + what + " has " + std::to_string(status.st_size) +
                                         " bytes where " + std::to_string(bytes) + " are needed");
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK))
    throw sdk::Error(TUTTI_MISMATCH, std::string("shm: ") + what + " is no memfd that is sealed against shrinking");
}

Mapping::Mapping(int fd, uint64_t offset, uint64_t bytes, bool writable) : bytes_(bytes) {
  const uint64_t start = offset / kPage * kPage;
  length_ = offset - start + bytes;
  base_ =
      mmap(nullptr, length_, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, static_cast<off_t>(start));
  if (base_ == MAP_FAILED) throw sdk::system_error("shm: mapping " + std::to_string(length_) + " bytes", errno);
  data_ = static_cast<uint8_t*>(base_) + (offset - start);
}

Mapping::~Mapping() { munmap(base_, length_); }

std::shared_ptr<Mapping> map_shared(int fd, uint64_t bytes) {
  static std::mutex mutex;
  static std::map<std::pair<dev_t, ino_t>, std::weak_ptr<Mapping>> mappings;
  struct stat status{};
  if (fstat(fd, &status) != 0) throw sdk::system_error("shm: a memory file", errno);
  const std::lock_guard lock(mutex);
  std::erase_if(mappings, [](const auto& entry) { return entry.second.expired(); });
  auto& known = mappings[{status.st_dev, status.st_ino}];
  // A file's number may be used again only when nobody has it open or mapped, so a live mapping is of this very file.
  if (auto mapping = known.lock(); mapping && mapping->bytes() == bytes) return mapping;
  auto mapping = std::make_shared<Mapping>(fd, 0, bytes, true);
  known = mapping;
  return mapping;
}

}  // namespace tutti::shm
