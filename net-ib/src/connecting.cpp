// SPDX-License-Identifier: Apache-2.0
//
// Connecting links, by the pair messages that wire.hpp describes.
#include <algorithm>

#include "endpoint.hpp"

namespace tutti::ib {

Link* Endpoint::reach(uint32_t index) {
  Peer& peer = peers_[index];
  if (!peer.error && !peer.has_offer) try {
      offer_to(index);
    } catch (const sdk::Error& why) {
      fail_connecting(index, why.status(), why.what());
    }
  if (peer.error) throw *peer.error;
  if (!peer.link) return nullptr;
  peer.link->check_not_lost();
  return peer.link->is_ready() ? peer.link.get() : nullptr;
}

void Endpoint::offer_to(uint32_t index) {
  Peer& peer = peers_[index];
  PairMessage offer{.kind = PairKind::kOffer, .shape = shape_};
  for (const auto& rail : rails_) {
    peer.offered.push_back(std::make_unique<Path>(*rail, paths_, shape_));
    offer.rails.push_back(peer.offered.back()->offer());
  }
  peer.has_offer = true;
  pairs_.send(index, offer.encode());
}

void Endpoint::receive_pair(uint32_t index, std::string_view bytes) {
  check_peer(index);
  Peer& peer = peers_[index];
  try {
    const PairMessage message = PairMessage::decode(bytes);
    switch (message.kind) {
      case PairKind::kOffer:
        return on_offer(index, message);
      case PairKind::kReady:
        return on_ready(index, message);
      case PairKind::kRefusal:
        if (!peer.error && !is_aborted()) fail_connecting(index, message.status, "it has refused: " + message.text);
    }
  } catch (const sdk::Error& why) {
    if (why.status() == TUTTI_MISMATCH && !peer.has_offer && !is_aborted())
      offer_to(index);  // it must see the mismatch, too
    throw error(why.status(), "from rank {}: {}", index, why.what());
  }
}

void Endpoint::on_offer(uint32_t index, const PairMessage& offer) {
  Peer& peer = peers_[index];
  if (is_aborted()) return refuse(index, TUTTI_PEER_FAILED, "it has aborted the communicator");
  if (peer.error) return refuse(index, peer.error->status(), peer.error->what());
  if (peer.link) throw ib::error(TUTTI_INVALID_ARGUMENT, "a second offer");
  try {
    if (!peer.has_offer) offer_to(index);
    const Shape& theirs = offer.shape;
    if (theirs != shape_)
      throw sdk::Error(TUTTI_MISMATCH,
                       sdk::differences(rank(), index,
                                        {{"the number of ranks", shape_.nranks, theirs.nranks},
                                         {"the number of lanes", shape_.lanes, theirs.lanes},
                                         {"TUTTI_IB_CREDITS", shape_.credits, theirs.credits},
                                         {"TUTTI_IB_EAGER_BYTES", shape_.eager_bytes, theirs.eager_bytes},
                                         {"TUTTI_IB_FRAGMENT_BYTES", shape_.fragment_bytes, theirs.fragment_bytes}}));
    PairMessage ready{.kind = PairKind::kReady};
    std::vector<std::unique_ptr<Path>> paths;
    std::string why;
    for (const Pairing& pair : pairs_with(index, offer.rails)) {
      const auto place = static_cast<uint32_t>(paths.size());
      paths.push_back(std::move(peer.offered[pair.own.rail]));
      log(TUTTI_LOG_DEBUG, "to rank {}: {} {} -> {} ({})", index, paths.back()->rail().port().name(),
          gid_text(pair.own.gid.raw), gid_text(pair.peer.gid.raw), pair.why);
      if (paths.back()->connect(place, pair, offer.rails[pair.peer.rail], &why))
        ready.connected |= 1u << place;
      else
        log(TUTTI_LOG_WARN, "to rank {} without this rail: {}", index, why);
    }
    if (!ready.connected) throw ib::error(TUTTI_SYSTEM, "{}", why);
    peer.offered.clear();
    peer.link = std::make_unique<Link>(*this, index, std::move(paths));
    pairs_.send(index, ready.encode());
  } catch (const sdk::Error& why) {
    fail_connecting(index, why.status(), why.what());
  }
}

void Endpoint::on_ready(uint32_t index, const PairMessage& ready) {
  Peer& peer = peers_[index];
  if (is_aborted() || peer.error) return;
  if (!peer.link || peer.link->is_ready())
    throw ib::error(TUTTI_INVALID_ARGUMENT, "it is ready before its offer, or twice");
  if (!peer.link->start(ready.connected))
    return fail_connecting(index, TUTTI_SYSTEM, "no pair of rails works at both ends; the log of both says why");
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

void Endpoint::refuse(uint32_t index, tutti_status status, const std::string& text) {
  PairMessage refusal{.kind = PairKind::kRefusal, .status = status, .text = text};
  pairs_.send(index, refusal.encode());
}

// There will be no link. The next connect reports it, and so does the peer's.
void Endpoint::fail_connecting(uint32_t index, tutti_status status, const std::string& text) {
  Peer& peer = peers_[index];
  if (peer.link) peer.link->end(status, text);
  peer.offered.clear();
  peer.error = error(status, "connect to rank {}: {}", index, text);
  log(TUTTI_LOG_ERROR, "connect to rank {}: {}", index, text);
  refuse(index, status, text);
}

std::vector<Pairing> Endpoint::pairs_with(uint32_t peer, const std::vector<OfferedRail>& theirs) const {
  std::vector<OfferedRail> own;
  for (const auto& rail : rails_) own.push_back(rail->port().offer(settings()));
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
