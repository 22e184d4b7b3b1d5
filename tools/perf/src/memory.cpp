// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <tutti/tutti.hpp>

#include "device.hpp"

namespace perf {
namespace {
constexpr uint64_t page = 4096;
}  // namespace

Memory::Memory(uint64_t bytes, bool registered, const Device* device) : registered_(registered), device_(device) {
  size_ = (bytes + guard_bytes + page - 1) / page * page;
  void* address = nullptr;
  if (registered && !device) {
    const tutti_status status = tutti_mem_alloc(size_, &address);
    if (status < 0)
      throw tutti::Error(
          status, "cannot get " + std::to_string(size_) + " bytes of registered memory: " + tutti_status_text(status));
  } else {
    address = std::aligned_alloc(page, size_);
    if (!address)
      throw tutti::Error(TUTTI_NO_RESOURCES,
                         "cannot get " + std::to_string(size_) + " bytes of memory; use a smaller -e");
  }
  data_ = host_ = static_cast<char*>(address);
  if (!device_) return;
  try {
    seen_ = static_cast<char*>(device_->map(host_, size_));
    data_ = static_cast<char*>(device_->allocate(size_));
  } catch (...) {
    if (seen_) device_->unmap(host_);
    std::free(host_);
    throw;
  }
}

Memory::~Memory() {
  if (device_) {
    device_->release(data_);
    device_->unmap(host_);
  }
  if (registered_ && !device_)
    tutti_mem_free(host_);
  else
    std::free(host_);
}

void Memory::upload(uint64_t bytes) const {
  if (device_) device_->copy(data_, seen_, bytes + guard_bytes);
}

void Memory::download(uint64_t bytes) const {
  if (device_) device_->copy(seen_, data_, bytes + guard_bytes);
}

void Memory::poison(uint64_t bytes) const { std::memset(host_, poison_byte, bytes + guard_bytes); }

uint64_t Memory::guards_lost(uint64_t bytes) const {
  const auto* guard = reinterpret_cast<const unsigned char*>(host_) + bytes;
  return guard_bytes - static_cast<uint64_t>(std::count(guard, guard + guard_bytes, poison_byte));
}

}  // namespace perf
