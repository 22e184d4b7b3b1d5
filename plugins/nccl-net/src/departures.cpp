// SPDX-License-Identifier: Apache-2.0
#include "departures.hpp"

#include <array>

namespace tutti::nccl {

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
  if (!departure.advance()) Departures::of_process().add(std::move(departure));
}

void settle_departures() {
  constexpr int kRounds = 256;
  Departures& all = Departures::of_process();
  for (int i = 0; i < kRounds && !all.empty(); ++i) all.advance();
}

}  // namespace tutti::nccl
