// SPDX-License-Identifier: Apache-2.0
#include "stream/mapped_memory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <tutti/tutti.h>

#include <cerrno>
#include <system_error>

#include "base/failure.hpp"

namespace tutti::core {
namespace {

constexpr uint64_t page = 4096;

}  // namespace

MappedMemory::MappedMemory(const DeviceTables& device, uint64_t bytes)
    : tables_(device), bytes_((bytes + page - 1) / page * page) {
  void* made = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED)
    throw Failure(TUTTI_NO_RESOURCES,
                  fmt::format("no host memory of {} bytes: {}", bytes_, std::generic_category().message(errno)));
  host_ = static_cast<std::byte*>(made);
  // After a fork the first write would give this process other pages than the device has.
  madvise(made, bytes_, MADV_DONTFORK);
  void* seen = nullptr;
  if (const tutti_status status = tables_.memory->map_host(tables_.memory->self, host_, bytes_, &seen); status < 0) {
    munmap(host_, bytes_);
    throw Failure(status, fmt::format("device {}: host memory cannot be made visible to it: {}", tables_.memory->name,
                                      take_plugin_error()));
  }
  device_ = static_cast<std::byte*>(seen);
}

MappedMemory::~MappedMemory() {
  tables_.memory->unmap_host(tables_.memory->self, host_);
  munmap(host_, bytes_);
}

}  // namespace tutti::core
