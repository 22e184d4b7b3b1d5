// SPDX-License-Identifier: Apache-2.0
#include "engine/direct_buffers.hpp"

#include <fmt/format.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <thread>

#include "bootstrap/failure.hpp"

namespace tutti::core {
namespace {

tutti_pointer classify(const DeviceTables& tables, const void* address) {
  tutti_pointer pointer{};
  pointer.struct_size = sizeof pointer;
  if (const tutti_status status = tables.memory->classify(tables.memory->self, address, &pointer); status < 0)
    throw Failure(status, fmt::format("device {}: {}", tables.memory->name, take_plugin_error()));
  return pointer;
}

}  // namespace

DirectBuffers& DirectBuffers::process() {
  static auto* buffers = new DirectBuffers();
  return *buffers;
}

void DirectBuffers::add(const DeviceTables& tables, void* address, uint64_t bytes) {
  const tutti_pointer pointer = classify(tables, address);
  auto* first = static_cast<std::byte*>(address);
  const auto offset = static_cast<uint64_t>(first - static_cast<std::byte*>(pointer.base));
  if (!bytes || bytes > pointer.bytes - offset)
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  fmt::format("tutti_mem_register: {} bytes at {}: expected at least one, and at most the {} that its "
                              "allocation on device {} has from there on",
                              bytes, address, pointer.bytes - offset, tables.memory->name));
  const std::lock_guard lock(mutex_);
  const auto next = ranges_.upper_bound(first);
  const bool after = next != ranges_.end() && next->first < first + bytes;
  const bool before = next != ranges_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > first;
  if (after || before)
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  fmt::format("tutti_mem_register: [{}, +{}) overlaps device memory that is registered already, or "
                              "whose tutti_mem_deregister has not succeeded",
                              address, bytes));
  ranges_[first] = {tables, bytes, pointer.buffer_id};
}

DirectBuffers::Place DirectBuffers::find(const DeviceTables& tables, const void* address, uint64_t bytes) const {
  const tutti_pointer pointer = classify(tables, address);
  auto* first = static_cast<std::byte*>(const_cast<void*>(address));
  const std::lock_guard lock(mutex_);
  const auto next = ranges_.upper_bound(first);
  const bool below = next != ranges_.begin();
  const auto offset = below ? static_cast<uint64_t>(first - std::prev(next)->first) : 0;
  if (!below || offset >= std::prev(next)->second.bytes || bytes > std::prev(next)->second.bytes - offset ||
      std::prev(next)->second.withdrawn)
    throw Failure(TUTTI_NOT_FOUND, fmt::format("a buffer of {} bytes is not registered (tutti_mem_register)", bytes));
  const Range& range = std::prev(next)->second;
  if (range.tables.memory != tables.memory || range.buffer_id != pointer.buffer_id)
    throw Failure(TUTTI_NOT_FOUND,
                  fmt::format("a buffer of {} bytes is other memory than was registered at its address: it was freed "
                              "before tutti_mem_deregister",
                              bytes));
  // Who unmaps it must not be handed it at the same time.
  if (std::ranges::any_of(ranges_, [&](const auto& entry) {
        return entry.second.withdrawn && entry.second.tables.memory == tables.memory &&
               entry.second.buffer_id == pointer.buffer_id;
      }))
    throw Failure(
        TUTTI_NOT_FOUND,
        fmt::format("a buffer of {} bytes lies in an allocation of which a part is being deregistered", bytes));
  return {pointer.buffer_id, static_cast<uint64_t>(first - static_cast<std::byte*>(pointer.base))};
}

void DirectBuffers::given(const DeviceTables& tables, uint64_t buffer_id, std::shared_ptr<DirectBoard> board) {
  const std::lock_guard lock(mutex_);
  auto& boards = given_[{tables.memory, buffer_id}];
  if (!std::ranges::count(boards, board)) boards.push_back(std::move(board));
}

bool DirectBuffers::remove(void* address, std::chrono::milliseconds patience) {
  auto* first = static_cast<std::byte*>(address);
  std::unique_lock lock(mutex_);
  const auto found = ranges_.find(first);
  if (found == ranges_.end()) return false;
  found->second.withdrawn = true;
  const Buffer buffer{found->second.tables.memory, found->second.buffer_id};
  const bool kept = std::ranges::any_of(ranges_, [&](const auto& entry) {
    const Range& range = entry.second;
    return !range.withdrawn && Buffer{range.tables.memory, range.buffer_id} == buffer;
  });
  if (!kept) {
    const auto boards = given_[buffer];
    lock.unlock();
    std::string holders;
    const auto limit = std::chrono::steady_clock::now() + patience;
    for (const auto& board : boards) {
      bool mapped = false;
      while ((mapped = !board->withdraw(buffer.second)) && std::chrono::steady_clock::now() < limit)
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      if (mapped) holders += (holders.empty() ? "" : "; ") + board->holders();
    }
    if (!holders.empty())
      throw Failure(TUTTI_TIMEOUT,
                    fmt::format("tutti_mem_deregister: {} is still mapped by the processes of ranks {}, whose streams "
                                "have work pending that may have to wait for this process: do not free it, let those "
                                "operations end, and call again",
                                address, holders));
    lock.lock();
    given_.erase(buffer);
  }
  ranges_.erase(first);
  return true;
}

}  // namespace tutti::core
