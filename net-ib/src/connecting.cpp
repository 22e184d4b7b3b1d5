// SPDX-License-Identifier: Apache-2.0
//
// Connecting links, by the pair messages that wire.hpp describes.
#include <algorithm>

#include "endpoint.hpp"

namespace tutti::ib {

Link* Endpoint::reach(uint32_t index) {
  exchange_.connect(index);
  Link* link = link_of(index);
  if (!link) return nullptr;
  link->check_not_lost();
  return link->is_ready() ? link : nullptr;
}

Offer Endpoint::make_offer(uint32_t index) {
  Offer offer;
  offer.settings = {nranks(), lanes(), settings().credits, settings().eager_bytes, settings().fragment_bytes,
                    settings().queue_pairs};
  for (const auto& rail : rails_) {
    OfferedRail& offered = offer.rails[offer.n_rails++] = rail->port().offer(settings());
    for (uint32_t q = 0; q < settings().queue_pairs; ++q) {
      peers_[index].offered.push_back(std::make_unique<Path>(*rail, paths_));
      offered.queue_pairs[q] = peers_[index].offered.back()->offer().queue_pairs[0];
    }
  }
  return offer;
}

void Endpoint::receive_pair(uint32_t index, std::string_view bytes) {
  check_peer(index);
  const auto message = exchange_.receive(index, bytes);
  if (!message) return;
  try {
    Link* const link = link_of(index);
    if (message->kind == kReady) return on_ready(index, kPairFormat.body_of<uint32_t>(*message));
    if (message->kind == kPathIsDown || message->kind == kRejoin) {
      if (!link || !link->is_up()) return;
      return message->kind == kRejoin ? link->on_rejoin(kPairFormat.body_of<Rejoin>(*message))
                                      : link->on_path_down(kPairFormat.body_of<PathDown>(*message));
    }
    if (message->kind != exchange_.kCard)
      throw kPairFormat.refuse(bytes.size(), fmt::format("unknown kind {}", message->kind));
    link_of(index)->lose("it could not connect: " + kPairFormat.text_of(*message));
  } catch (const sdk::Error& why) {
    throw exchange_.impossible(index, why);
  }
}

void Endpoint::on_offer(uint32_t index, const Offer& offer) {
  Peer& peer = peers_[index];
  uint32_t connected = 0;
  std::vector<std::unique_ptr<Path>> paths;
  std::string why;
  std::vector<OfferedRail> own;
  for (const auto& rail : rails_) own.push_back(rail->port().offer(settings()));
  const auto pairs = pairs_with(index, own, {offer.rails.begin(), offer.rails.begin() + offer.n_rails});
  for (uint32_t q = 0; q < settings().queue_pairs; ++q)
    for (uint32_t p = 0; p < pairs.size(); ++p) {
      const Pairing& pair = pairs[p];
      const OfferedRail& theirs = offer.rails[pair.peer.rail];
      const auto place = static_cast<uint32_t>(paths.size());
      paths.push_back(std::move(peer.offered[pair.own.rail * settings().queue_pairs + q]));
      log(TUTTI_LOG_DEBUG, "to rank {}: {} {} -> {} ({})", index, paths.back()->rail().port().name(),
          gid_text(pair.own.gid.raw), gid_text(pair.peer.gid.raw), pair.why);
      if (paths.back()->connect({place, p}, pair, theirs, theirs.queue_pairs[q], &why))
        connected |= 1u << place;
      else
        log(TUTTI_LOG_WARN, "to rank {} without this rail: {}", index, why);
    }
  if (!connected) throw ib::error(TUTTI_SYSTEM, "{}", why);
  peer.offered.clear();
  peer.link = std::make_unique<Link>(*this, index, std::move(paths));
  exchange_.send(index, kPairFormat.encode(kReady, connected));
}

void Endpoint::on_ready(uint32_t index, uint32_t connected) {
  Peer& peer = peers_[index];
  if (is_aborted() || exchange_.error(index)) return;
  if (!peer.link) throw ib::error(TUTTI_INVALID_ARGUMENT, "it is ready before its offer");
  if (peer.link->is_ready()) return peer.link->on_reconnected(connected);
  if (!peer.link->start(connected))
    return exchange_.fail(index, TUTTI_SYSTEM, "no pair of rails works at both ends; the log of both says why");
  exchange_.linked(index);
  for (const auto& rail : rails_) {
    if (told_idle_[rail->index()] || peer.link->uses(*rail)) continue;
    told_idle_[rail->index()] = true;  // warns for one peer only: the others are mostly set up alike
    log(TUTTI_LOG_WARN,
        "rail {} ({} Gb/s) carries nothing to rank {}: no free rail of that rank shares a subnet with it, and routed "
        "addresses are tried only for rails faster than all that share one. Compare `tutti-info --net` on both hosts; "
        "TUTTI_IB_HCA says which rails are used",
        rail->port().name(), rail->port().megabits / 1000, index);
  }
}

void Endpoint::drop(uint32_t index) {
  Peer& peer = peers_[index];
  if (peer.link) peer.link->end(exchange_.error(index)->status(), exchange_.error(index)->what());
  peer.offered.clear();
}

std::vector<Pairing> Endpoint::pairs_with(uint32_t peer, const std::vector<OfferedRail>& own,
                                          const std::vector<OfferedRail>& theirs) const {
  std::vector<Pairing> pairs = rank() < peer ? pair_rails(own, theirs) : pair_rails(theirs, own);
  if (rank() > peer)
    for (Pairing& pair : pairs) std::swap(pair.own, pair.peer);
  if (pairs.empty())
    throw ib::error(TUTTI_MISMATCH,
                    "no GID of this rank's rails ({}) suits any of the peer's ({}): they need one link layer and one "
                    "address family{}",
                    gids_in_words(own), gids_in_words(theirs),
                    settings().gid_index ? "; TUTTI_IB_GID_INDEX leaves only one to choose from" : "");
  return pairs;
}

}  // namespace tutti::ib
