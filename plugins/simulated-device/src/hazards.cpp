// SPDX-License-Identifier: Apache-2.0
#include "hazards.hpp"

#include <array>
#include <bitset>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <tutti/sdk/plugin.hpp>

#include "memory.hpp"
#include "stream.hpp"

namespace tutti::simulated {
namespace {

constexpr size_t hazards = static_cast<size_t>(Hazard::count);
using Set = std::bitset<hazards>;
constexpr std::array<std::string_view, hazards> names{"alloc",   "free",   "register",       "import",
                                                      "launch",  "query",  "default-stream", "handles",
                                                      "managed", "ranges", "capture",        "exit"};

Set parse(std::string_view text) {
  Set set;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (word == "all") {
      set.set();
      continue;
    }
    size_t at = 0;
    while (at < hazards && names[at] != word) ++at;
    if (at == hazards) {
      std::string known = "all";
      for (const std::string_view name : names) known.append(", ").append(name);
      throw sdk::Error(TUTTI_INVALID_ARGUMENT,
                       "TUTTI_SIMULATED_HAZARDS: there is no hazard \"" + std::string(word) + "\"; there are " + known);
    }
    set.set(at);
  }
  return set;
}

// The lock that a driver holds while a call waits for a device.
std::mutex& driver_lock(uint32_t device) {
  static auto& locks = *new std::array<std::mutex, 64>();
  return locks[device];
}

struct Loaded {
  std::mutex mutex;
  std::set<uint32_t> all;                                                // devices that prepare() was called for
  std::set<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>> by_kind;  // device, kind, type, operator
};
Loaded& loaded() {
  static auto& one = *new Loaded();
  return one;
}

}  // namespace

bool has(Hazard hazard) {
  static const Set on = parse(sdk::config("TUTTI_SIMULATED_HAZARDS").value_or(""));
  return on[static_cast<size_t>(hazard)];
}

void require(Hazard hazard, const char* what) {
  if (has(hazard)) return;
  throw sdk::Error(TUTTI_NOT_SUPPORTED, std::string(what) + ": TUTTI_SIMULATED_HAZARDS does not name \"" +
                                            std::string(names[static_cast<size_t>(hazard)]) + "\"");
}

void synchronise(Hazard hazard, uint32_t device) {
  count_synchronisation();
  if (!has(hazard) || driver_is_gone()) return;
  for (uint32_t each = 0; each < device_count(); ++each) {
    if (device != all_devices && device != each) continue;
    const std::lock_guard lock(driver_lock(each));
    drain(each);
  }
}

void await_driver(uint32_t device) {
  if (has(Hazard::query) && !driver_is_gone()) const std::lock_guard lock(driver_lock(device));
}

void load_all(uint32_t device) {
  synchronise(Hazard::launch, device);
  const std::lock_guard lock(loaded().mutex);
  loaded().all.insert(device);
}

void load(uint32_t device, uint32_t kind, uint32_t dtype, uint32_t op) {
  if (!has(Hazard::launch)) return;
  {
    const std::lock_guard lock(loaded().mutex);
    if (loaded().all.contains(device) || !loaded().by_kind.insert({device, kind, dtype, op}).second) return;
  }
  synchronise(Hazard::launch, device);
}

bool driver_is_gone() {
  static std::atomic<bool> gone{false};
  static const int watched = has(Hazard::exit) ? std::atexit([] { gone.store(true); }) : 0;
  (void)watched;
  return gone.load(std::memory_order_relaxed);
}

}  // namespace tutti::simulated
