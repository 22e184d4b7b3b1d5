// SPDX-License-Identifier: Apache-2.0
#include "region.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <tutti/sdk/words.hpp>

namespace tutti::shm {

sdk::local::Settings read_settings() {
  sdk::local::Settings settings{};
  settings.slot_bytes = sdk::config_number("TUTTI_SHM_SLOT_BYTES", 64 << 10, 4096, 16 << 20);
  if (settings.slot_bytes % 64 != 0)
    throw sdk::error(TUTTI_INVALID_ARGUMENT, "TUTTI_SHM_SLOT_BYTES={} is not a multiple of 64", settings.slot_bytes);
  settings.slots = static_cast<uint32_t>(sdk::config_number("TUTTI_SHM_SLOTS", 4, 1, sdk::local::kMaxSlots));
  settings.stream_bytes = sdk::config_number("TUTTI_SHM_STREAM_BYTES", 32 << 10, 0, UINT64_MAX);
  settings.first = sdk::config_number("TUTTI_SHM_TEST_FIRST", 0, 0, sdk::local::kLastFirst);
  return settings;
}

Domain::Domain() : settings_(read_settings()), copies_directly_(sdk::config_number("TUTTI_SHM_DIRECT_COPY", 1, 0, 1)) {}

tutti_region* Domain::register_memory(const tutti_memory& memory) {
  if (memory.kind != TUTTI_MEMORY_HOST)
    throw sdk::error(TUTTI_NOT_SUPPORTED, "shm: memory of kind {}; only host memory can be registered", memory.kind);
  const bool all = !memory.address && memory.bytes == UINT64_MAX;
  if (all && !copies_directly_) throw sdk::Error(TUTTI_NOT_SUPPORTED, "shm: TUTTI_SHM_DIRECT_COPY=0");
  if ((!memory.address && !all) || memory.bytes == 0)
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, "shm: registering no memory (address NULL or 0 bytes)");
  sdk::FileDescriptor file;
  if (memory.fd >= 0) {
    if (memory.fd_offset > UINT64_MAX - memory.bytes)
      throw sdk::Error(TUTTI_INVALID_ARGUMENT, "shm: fd_offset + bytes of the memory overflows");
    file = sdk::FileDescriptor(fcntl(memory.fd, F_DUPFD_CLOEXEC, 3));
    if (!file) throw sdk::system_error(errno, "shm: duplicating descriptor {}", memory.fd);
    // Peers map only what cannot shrink under them.
    const int seals = fcntl(file.get(), F_GET_SEALS);
    if (seals >= 0 && !(seals & F_SEAL_SHRINK) && fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0)
      sdk::log(TUTTI_LOG_DEBUG, "a registered memory file could not be sealed against shrinking");
    sdk::local::check_memory_file(file.get(), memory.fd_offset + memory.bytes, "the memory file that is registered");
  }
  const std::lock_guard lock(mutex_);
  if (free_ids_.empty()) {
    if (entries_.size() >= kMaxRegions)
      throw sdk::error(TUTTI_NO_RESOURCES, "shm: {} regions are registered already", kMaxRegions);
    entries_.emplace_back();
    free_ids_.reserve(entries_.size());
    free_ids_.push_back(static_cast<uint32_t>(entries_.size() - 1));
  }
  const uint32_t id = free_ids_.back();
  Entry& entry = entries_[id];
  uint32_t generation = entry.last_generation + 1;
  if (generation == 0) generation = 1;
  entry.region = std::make_unique<Region>(Region{id, generation, std::move(file), memory.fd_offset, memory.bytes, all});
  entry.last_generation = generation;
  free_ids_.pop_back();
  return reinterpret_cast<tutti_region*>(entry.region.get());
}

void Domain::deregister_memory(tutti_region* handle) {
  const auto* region = reinterpret_cast<const Region*>(handle);
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) {
    if (!handle || entry.region.get() != region) continue;
    free_ids_.push_back(region->id);
    entry.region.reset();
    removals_.fetch_add(1, std::memory_order_release);
    return;
  }
  throw sdk::Error(TUTTI_INVALID_ARGUMENT, "shm: deregistering a region that is not registered");
}

uint32_t Domain::generation(uint32_t id) {
  const std::lock_guard lock(mutex_);
  return id < entries_.size() && entries_[id].region ? entries_[id].region->generation : 0;
}

void ImportedRegions::add(uint32_t id, uint32_t generation, const sdk::FileDescriptor& file, uint64_t offset,
                          uint64_t bytes) {
  if (id >= kMaxRegions || generation == 0 || bytes == 0 || offset > INT64_MAX - bytes)
    throw sdk::Error(TUTTI_MISMATCH, "it offered an invalid region");
  sdk::local::check_memory_file(file.get(), offset + bytes, "the region that it offered");
  while (id >= imports_.size()) imports_.emplace_back();
  drop(imports_[id]);
  imports_[id].mapping.emplace(file.get(), offset, bytes, false);
  imports_[id].generation = generation;
}

void ImportedRegions::remove(uint32_t id, uint32_t generation) {
  if (Import* import = find(id, generation)) drop(*import);
}

void ImportedRegions::drop(Import& import) {
  if (import.views != 0) throw sdk::Error(TUTTI_MISMATCH, "it withdrew a region while a message in it was being read");
  import.mapping.reset();
  import.generation = 0;
}

}  // namespace tutti::shm
