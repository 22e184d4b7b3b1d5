// SPDX-License-Identifier: Apache-2.0
//
// rma/1 for ranks that are threads of one process: a key is a number, under which the exporter's region is found. Every
// operation is done at once, and its completion is told by the next progress.
#include <tutti/plugin/rma.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <tutti/sdk/plugin.hpp>

namespace {

using tutti::sdk::Error;

struct Region {
  char* address = nullptr;
  uint64_t bytes = 0, key = 0, communicator = 0;
  uint32_t rank = 0;
  std::atomic<uint64_t> signals{0};
};
struct Space {
  tutti_space_config config{};
  std::deque<tutti_rma_completion> completions;
  bool aborted = false;
};
struct Remote {
  Space* space;
  std::shared_ptr<Region> region;
};

std::mutex mutex;
uint64_t last_key = 0;
std::map<uint64_t, std::shared_ptr<Region>>& regions() {
  static auto& all = *new std::map<uint64_t, std::shared_ptr<Region>>();
  return all;
}

Space& of(tutti_space* space) { return *reinterpret_cast<Space*>(space); }
Remote& of(tutti_remote* remote) { return *reinterpret_cast<Remote*>(remote); }
Region& of(tutti_rma_region* region) { return *reinterpret_cast<Region*>(region); }

void export_region(Space& space, const tutti_memory& memory, tutti_rma_region** region, void* key, uint64_t* bytes) {
  if (memory.kind != TUTTI_MEMORY_HOST) throw Error(TUTTI_NOT_SUPPORTED, "only host memory can be exported");
  if (*bytes < sizeof(uint64_t)) {
    *bytes = sizeof(uint64_t);
    throw Error(TUTTI_NO_RESOURCES, "a key has 8 bytes");
  }
  auto made = std::make_shared<Region>();
  made->address = static_cast<char*>(memory.address);
  made->bytes = memory.bytes;
  made->communicator = space.config.communicator_id;
  made->rank = space.config.rank;
  const std::lock_guard lock(mutex);
  made->key = ++last_key;
  regions()[made->key] = made;
  *bytes = sizeof made->key;
  std::memcpy(key, &made->key, sizeof made->key);
  *region = reinterpret_cast<tutti_rma_region*>(made.get());
}

std::unique_ptr<Remote> import_region(Space& space, uint32_t peer, const void* key, uint64_t bytes) {
  uint64_t number = 0;
  if (bytes == sizeof number) std::memcpy(&number, key, sizeof number);
  const std::lock_guard lock(mutex);
  const auto found = regions().find(number);
  if (found == regions().end() || found->second->rank != peer ||
      found->second->communicator != space.config.communicator_id)
    throw Error(TUTTI_INVALID_ARGUMENT, "this is not a key of a region that rank " + std::to_string(peer) + " exports");
  return std::make_unique<Remote>(Remote{&space, found->second});
}

// Moves bytes between `own` and the region, either way, and remembers the completion.
tutti_status move(tutti_remote* handle, uint64_t offset, void* own, uint64_t bytes, uint64_t cookie, bool out) {
  return tutti::sdk::guard([&] {
    Remote& remote = of(handle);
    if (remote.space->aborted) throw Error(TUTTI_ABORTED, "the space has been aborted");
    if (offset > remote.region->bytes || bytes > remote.region->bytes - offset)
      throw Error(TUTTI_INVALID_ARGUMENT, std::to_string(bytes) + " bytes at " + std::to_string(offset) +
                                              " do not lie in a region of " + std::to_string(remote.region->bytes));
    char* const theirs = remote.region->address + offset;
    std::memcpy(out ? theirs : own, out ? own : theirs, bytes);
    remote.space->completions.push_back({cookie, TUTTI_OK, remote.region->rank, {}});
  });
}

constexpr tutti_rma rma{
    sizeof(tutti_rma),
    TUTTI_RMA_STAMP,
    nullptr,
    "toy",
    "memory of threads of one process",
    [](void*, const tutti_space_config* config, tutti_space** space) {
      return tutti::sdk::guard([&] {
        auto made = std::make_unique<Space>();
        made->config = tutti::sdk::accepted(config);
        *space = reinterpret_cast<tutti_space*>(made.release());
      });
    },
    [](tutti_space* space) { delete &of(space); },
    [](tutti_space* space, const tutti_memory* memory, tutti_rma_region** region, void* key, uint64_t* bytes) {
      return tutti::sdk::guard([&] { export_region(of(space), tutti::sdk::accepted(memory), region, key, bytes); });
    },
    [](tutti_space*, tutti_rma_region* region) {
      return tutti::sdk::guard([&] {
        const std::lock_guard lock(mutex);
        regions().erase(of(region).key);
      });
    },
    [](tutti_space* space, uint32_t peer, const void* key, uint64_t bytes, tutti_remote** remote) {
      return tutti::sdk::guard(
          [&] { *remote = reinterpret_cast<tutti_remote*>(import_region(of(space), peer, key, bytes).release()); });
    },
    [](tutti_space*, tutti_remote* remote) {
      delete &of(remote);
      return tutti_status{TUTTI_OK};
    },
    [](tutti_remote* remote, uint64_t offset, const void* from, uint64_t bytes, uint64_t cookie) {
      return move(remote, offset, const_cast<void*>(from), bytes, cookie, true);
    },
    [](tutti_remote* remote, uint64_t offset, void* to, uint64_t bytes, uint64_t cookie) {
      return move(remote, offset, to, bytes, cookie, false);
    },
    [](tutti_remote* remote, uint64_t value) {
      return tutti::sdk::guard([&] {
        if (of(remote).space->aborted) throw Error(TUTTI_ABORTED, "the space has been aborted");
        of(remote).region->signals.fetch_add(value, std::memory_order_release);
      });
    },
    [](tutti_rma_region* region, uint64_t* value) {
      *value = of(region).signals.load(std::memory_order_acquire);
      return tutti_status{TUTTI_OK};
    },
    [](tutti_space* space, tutti_rma_completion* completions, uint32_t capacity, uint32_t* n) {
      auto& all = of(space).completions;
      *n = static_cast<uint32_t>(std::min<size_t>(capacity, all.size()));
      std::copy_n(all.begin(), *n, completions);
      all.erase(all.begin(), all.begin() + *n);
      return tutti_status{TUTTI_OK};
    },
    [](tutti_space* space) {
      of(space).aborted = true;
      return tutti_status{TUTTI_OK};
    }};

}  // namespace

TUTTI_PLUGIN(toy_rma, "toy-rma", "0.1.0", "Tutti", "Apache-2.0", "a sample of rma/1", {TUTTI_RMA_ID, &rma});
