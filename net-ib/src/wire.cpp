// SPDX-License-Identifier: Apache-2.0
#include "wire.hpp"

#include <algorithm>

namespace tutti::ib {
namespace {

constexpr sdk::PairFormat kFormat{.transport = "ib", .magic = 0x4249'5454, .version = 3};  // "TTIB"

struct Offer {
  Shape shape;
  uint32_t n_rails;
  uint32_t reserved;
  std::array<OfferedRail, kMaxRails> rails;
};

void check(const OfferedRail& rail) {
  bool is_right = rail.infiniband <= 1 && rail.mtu >= 1 && rail.mtu <= 5 && rail.n_gids <= kMaxGids;
  for (uint32_t i = 0; is_right && i < rail.n_gids; ++i)
    is_right = rail.gids[i].index <= 255 && rail.gids[i].prefix <= 128;
  if (!is_right)
    throw error(TUTTI_INVALID_ARGUMENT, "an offer has a rail with MTU code {}, {} GIDs and link layer {}", rail.mtu,
                rail.n_gids, rail.infiniband);
}

}  // namespace

std::string PairMessage::encode() const {
  const auto number = static_cast<uint32_t>(kind);
  if (kind == PairKind::kReady) return kFormat.encode(number, connected);
  if (kind != PairKind::kOffer) return kFormat.encode(number, status, text);
  Offer offer{shape, static_cast<uint32_t>(rails.size()), 0, {}};
  std::copy_n(rails.begin(), std::min<size_t>(rails.size(), kMaxRails), offer.rails.begin());
  return kFormat.encode(number, offer);
}

PairMessage PairMessage::decode(std::string_view bytes) {
  const sdk::PairFormat::Message found = kFormat.decode(bytes);
  PairMessage message{.kind = static_cast<PairKind>(found.kind), .status = found.status};
  if (message.kind == PairKind::kReady) {
    message.connected = kFormat.body_of<uint32_t>(found);
  } else if (message.kind == PairKind::kRefusal) {
    message.text = kFormat.text_of(found);
  } else if (message.kind == PairKind::kOffer) {
    const auto offer = kFormat.body_of<Offer>(found);
    if (offer.n_rails == 0 || offer.n_rails > kMaxRails)
      throw error(TUTTI_INVALID_ARGUMENT, "an offer has {} rails, expected 1 to {}", offer.n_rails, kMaxRails);
    message.shape = offer.shape;
    message.rails.assign(offer.rails.begin(), offer.rails.begin() + offer.n_rails);
    for (const OfferedRail& rail : message.rails) check(rail);
  } else {
    throw kFormat.refuse(bytes.size(), fmt::format("unknown kind {}", found.kind));
  }
  return message;
}

}  // namespace tutti::ib
