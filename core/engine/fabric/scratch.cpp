// SPDX-License-Identifier: Apache-2.0
#include "engine/fabric/scratch.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <iterator>

#include "base/failure.hpp"
#include "engine/fabric/memory.hpp"

namespace tutti::core {
namespace {

constexpr uint64_t part_alignment = 4096;
// A new file is as large as all others together, up to this: few files, which ask for at most twice what is needed.
constexpr uint64_t largest_shared_file = uint64_t{64} << 20;

}  // namespace

Scratch& Scratch::process() {
  static auto* scratch = new Scratch();  // never destroyed: communicators may outlive static destruction
  return *scratch;
}

uint64_t Scratch::File::gap(uint64_t part) const {
  uint64_t begin = 0;
  for (const auto& [offset, size] : taken) {
    if (offset - begin >= part) return begin;
    begin = offset + size;
  }
  return bytes - begin >= part ? begin : bytes;
}

std::byte* Scratch::take(uint64_t bytes) {
  const uint64_t part = std::max(part_alignment, (bytes + part_alignment - 1) / part_alignment * part_alignment);
  const std::lock_guard lock(mutex_);
  for (auto& [base, file] : files_)
    if (const uint64_t offset = file.gap(part); offset < file.bytes) {
      file.taken[offset] = part;
      return base + offset;
    }
  uint64_t size = 0;
  std::byte* const base = allocate(part, &size);
  files_[base] = {size, {{0, part}}};
  total_ += size;
  return base;
}

// A file for a part and others to come, or where there may be no such file, for this one.
std::byte* Scratch::allocate(uint64_t part, uint64_t* size) const {
  rlimit largest{};
  getrlimit(RLIMIT_FSIZE, &largest);
  const uint64_t shared = std::min<uint64_t>({total_, largest_shared_file, largest.rlim_cur});
  if (shared > part) try {
      *size = shared;
      return static_cast<std::byte*>(Memory::process().allocate(shared));
    } catch (const Failure&) {
    }
  *size = part;
  return static_cast<std::byte*>(Memory::process().allocate(part));
}

void Scratch::give_back(std::byte* address, bool lent) {
  const std::lock_guard lock(mutex_);
  const auto found = std::prev(files_.upper_bound(address));
  auto& [base, file] = *found;
  if (lent)
    ++file.lent;
  else
    file.taken.erase(static_cast<uint64_t>(address - base));
  if (file.taken.size() > file.lent) return;  // who has mapped the file keeps its bytes
  total_ -= file.bytes;
  Memory::process().release(base);
  files_.erase(found);
}

}  // namespace tutti::core
