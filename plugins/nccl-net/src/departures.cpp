// SPDX-License-Identifier: Apache-2.0
#include "departures.hpp"

#include <array>
#include <atomic>
#include <mutex>
#include <vector>

namespace tutti::nccl {
namespace {

struct Departures {
  std::mutex mutex;
  std::vector<Departure> all;
  std::atomic<size_t> count = 0;
};

Departures& departures() {
  static auto* made = new Departures();  // never freed: plugins may be gone before static destruction
  return *made;
}

}  // namespace

bool Departure::advance() {
  std::array<int, kSizes> sizes{};
  while (!requests_.empty()) {
    try {
      if (!comm_.network().test(requests_.front(), sizes.data(), "test")) return false;
    } catch (const sdk::Error&) {
      // It is over as well.
    }
    requests_.pop_front();
  }
  comm_.close();
  return true;
}

void leave_behind(Departure departure) {
  if (departure.advance()) return;
  Departures& d = departures();
  const std::lock_guard lock(d.mutex);
  d.all.push_back(std::move(departure));
  d.count = d.all.size();
}

void settle_departures() {
  constexpr int kRounds = 256;
  for (int i = 0; i < kRounds && departures().count.load(std::memory_order_relaxed) > 0; ++i) advance_departures();
}

void advance_departures() {
  Departures& d = departures();
  if (d.count.load(std::memory_order_relaxed) == 0) return;
  const std::unique_lock lock(d.mutex, std::try_to_lock);
  if (!lock) return;
  std::erase_if(d.all, [](Departure& departure) { return departure.advance(); });
  d.count = d.all.size();
}

}  // namespace tutti::nccl
