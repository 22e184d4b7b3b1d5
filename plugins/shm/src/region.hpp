// SPDX-License-Identifier: Apache-2.0
//
// Registered memory. Region is the owner's side, ImportedRegions the reader's: a link's table of the peer's regions
// that were offered over its line. Both name a region by {id, generation}: ids are small and used again, each time
// under a new generation.
#pragma once

#include <tutti/plugin/transport.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <tutti/sdk/local/endpoint.hpp>
#include <vector>

namespace tutti::shm {

inline constexpr uint32_t kMaxRegions = 1u << 16;

// The settings of a domain (README.md has the table). Throws sdk::Error.
sdk::local::Settings read_settings();

struct Region {
  uint32_t id;
  uint32_t generation;
  sdk::FileDescriptor file;  // none: the memory cannot be mapped by peers
  uint64_t file_offset;
  uint64_t bytes;
  bool all;  // memory of the process, which peers read out of it (peer_memory.hpp)
};

// The registrations of one process. [any thread]
class Domain {
 public:
  Domain();
  const sdk::local::Settings& settings() const { return settings_; }
  // TUTTI_SHM_DIRECT_COPY
  bool copies_directly() const { return copies_directly_; }
  std::vector<sdk::local::EqualValue> equal_values() const {
    return {{"TUTTI_SHM_SLOTS", settings_.slots},
            {"TUTTI_SHM_SLOT_BYTES", settings_.slot_bytes},
            {"TUTTI_SHM_TEST_FIRST", settings_.first}};
  }
  tutti_region* register_memory(const tutti_memory& memory);
  void deregister_memory(tutti_region* region);

  // Changes with each deregistration.
  uint64_t removals() const { return removals_.load(std::memory_order_acquire); }
  // The generation under which `id` is registered now; 0: it is not.
  uint32_t generation(uint32_t id);

 private:
  struct Entry {
    std::unique_ptr<Region> region;
    uint32_t last_generation = 0;
  };
  const sdk::local::Settings settings_;
  const bool copies_directly_;
  std::mutex mutex_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_ids_;
  std::atomic<uint64_t> removals_{0};
};

// The regions of one peer, mapped read-only.
class ImportedRegions {
 public:
  struct Import {
    uint32_t generation = 0;
    uint32_t views = 0;  // messages in it that are being read
    std::optional<sdk::local::Mapping> mapping;
  };
  // Maps what the peer offers; the file was not checked yet. Throws sdk::Error.
  void add(uint32_t id, uint32_t generation, const sdk::FileDescriptor& file, uint64_t offset, uint64_t bytes);
  // Unmaps. Throws sdk::Error when a message in it is being read.
  void remove(uint32_t id, uint32_t generation);
  // The region, or nullptr.
  Import* find(uint32_t id, uint32_t generation) noexcept {
    if (id >= imports_.size() || imports_[id].generation != generation || !imports_[id].mapping) return nullptr;
    return &imports_[id];
  }

 private:
  void drop(Import& import);
  std::deque<Import> imports_;  // its elements never move: lanes point to them
};

}  // namespace tutti::shm
