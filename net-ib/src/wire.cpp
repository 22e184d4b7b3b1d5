// SPDX-License-Identifier: Apache-2.0
#include "wire.hpp"

#include <algorithm>

namespace tutti::ib {

std::string Offer::flaw() const {
  if (n_rails == 0 || n_rails > kMaxRails)
    return fmt::format("it offers {} rails, expected 1 to {}", n_rails, kMaxRails);
  for (const OfferedRail& rail : std::span(rails).first(n_rails)) {
    const auto is_right = [](const OfferedGid& gid) { return gid.index <= 255 && gid.prefix <= 128; };
    if (rail.infiniband > 1 || rail.mtu < 1 || rail.mtu > 5 || rail.n_gids > kMaxGids ||
        !std::all_of(rail.gids.begin(), rail.gids.begin() + rail.n_gids, is_right))
      return fmt::format("it offers a rail with MTU code {}, {} GIDs and link layer {}", rail.mtu, rail.n_gids,
                         rail.infiniband);
  }
  return "";
}

}  // namespace tutti::ib
