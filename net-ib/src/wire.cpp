// SPDX-License-Identifier: Apache-2.0
#include "wire.hpp"

#include <algorithm>

namespace tutti::ib {

std::string OfferedRail::flaw() const {
  const auto is_right = [](const OfferedGid& gid) { return gid.index <= 255 && gid.prefix <= 128; };
  if (infiniband <= 1 && mtu >= 1 && mtu <= 5 && n_gids <= kMaxGids &&
      std::all_of(gids.begin(), gids.begin() + n_gids, is_right))
    return "";
  return fmt::format("it offers a rail with MTU code {}, {} GIDs and link layer {}", mtu, n_gids, infiniband);
}

std::string Offer::flaw() const {
  if (n_rails == 0 || n_rails > kMaxRails)
    return fmt::format("it offers {} rails, expected 1 to {}", n_rails, kMaxRails);
  for (const OfferedRail& rail : std::span(rails).first(n_rails))
    if (const std::string flaw = rail.flaw(); !flaw.empty()) return flaw;
  return "";
}

}  // namespace tutti::ib
