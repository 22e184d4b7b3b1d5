// SPDX-License-Identifier: Apache-2.0
#include "fabric/scratch.hpp"

#include <algorithm>
#include <iterator>

#include "fabric/memory.hpp"

namespace tutti::core {
namespace {

constexpr uint64_t part_alignment = 4096;
// A new file is as large as all before it, up to this: few files, and at most half of their bytes are unused.
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
  const uint64_t size = std::max(part, std::min(total_, largest_shared_file));
  auto* const base = static_cast<std::byte*>(Memory::process().allocate(size));
  files_[base] = {size, {{0, part}}};
  total_ += size;
  return base;
}

void Scratch::give_back(std::byte* address) {
  const std::lock_guard lock(mutex_);
  const auto found = std::prev(files_.upper_bound(address));
  auto& [base, file] = *found;
  file.taken.erase(static_cast<uint64_t>(address - base));
  if (!file.taken.empty()) return;
  total_ -= file.bytes;
  Memory::process().release(base);
  files_.erase(found);
}

}  // namespace tutti::core
