// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <tutti/tutti.hpp>

namespace perf {
namespace {
constexpr uint64_t page = 4096;
}

Memory::Memory(uint64_t bytes, bool registered) : registered_(registered) {
  const uint64_t size = (bytes + guard_bytes + page - 1) / page * page;
  void* address = nullptr;
  if (registered) {
    const tutti_status status = tutti_mem_alloc(size, &address);
    if (status < 0)
      throw tutti::Error(
          status, "cannot get " + std::to_string(size) + " bytes of registered memory: " + tutti_status_text(status));
  } else {
    address = std::aligned_alloc(page, size);
    if (!address)
      throw tutti::Error(TUTTI_NO_RESOURCES,
                         "cannot get " + std::to_string(size) + " bytes of memory; use a smaller -e");
  }
  data_ = static_cast<char*>(address);
}

Memory::~Memory() {
  if (registered_)
    tutti_mem_free(data_);
  else
    std::free(data_);
}

void Memory::poison(uint64_t bytes) const { std::memset(data_, poison_byte, bytes + guard_bytes); }

uint64_t Memory::guards_lost(uint64_t bytes) const {
  const auto* guard = reinterpret_cast<const unsigned char*>(data_) + bytes;
  return guard_bytes - static_cast<uint64_t>(std::count(guard, guard + guard_bytes, poison_byte));
}

}  // namespace perf
