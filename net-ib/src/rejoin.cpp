// SPDX-License-Identifier: Apache-2.0
//
// Rails that come back. A path that both ends have settled is connected again by pair messages, with a new queue pair.
// It carries a frame about credit first; only when that is acknowledged does the path count as one that works.
//
// Then lanes may use it. Messages of a lane must not overtake each other, so lanes pause: every path that works sends a
// fence, and the peer answers once it has taken in everything before it.
//
// A link without any path waits for one: as long as this rank's own ports are down or the peer says that it lives, at
// most TUTTI_IB_RECOVERY seconds.
#include <algorithm>

#include "endpoint.hpp"

namespace tutti::ib {

bool Link::is_kept() const { return endpoint().settings().recovery.count() > 0 && !endpoint().is_closing(); }

void Link::on_rail_changed(const Rail& rail) {
  if (!is_up() || !ready_) return;
  for (auto& path : paths_) {
    if (&path->rail() != &rail) continue;
    returns_[path->index()].not_before = {};
    returns_[path->index()].pause = kFirstPause;
    if (path->is_halted()) continue;
    if (const std::string fault = path->fault(); !fault.empty()) endpoint().path_failed(*path, fault);
  }
  rejoin();
}

void Link::rejoin() {
  if (!is_up() || !ready_ || has_departed_ || !is_kept()) return;
  for (auto& path : paths_) {
    Return& back = returns_[path->index()];
    if (path->state() != Path::State::kDead || path->is_unused || back.fresh || Clock::now() < back.not_before ||
        !path->rail().is_usable())
      continue;
    // A path that worked is tried at once when it fails, one that did not after a pause.
    back.pause = path->acked() ? kFirstPause : std::min(2 * back.pause, kLongestPause);
    back.not_before = Clock::now() + back.pause;
    try {
      back.fresh = std::make_unique<Path>(path->rail(), endpoint().paths());
    } catch (const sdk::Error& why) {
      path->is_unused = true;
      endpoint().log(TUTTI_LOG_WARN, "to rank {} without rail {}: {}", peer(), path->rail().port().name(), why.what());
      continue;
    }
    back.fresh->link = this;
    endpoint().send_pair(peer(),
                         kPairFormat.encode(kRejoin, Rejoin{path->index(), path->generation + 1, back.fresh->offer()}));
    connect_again(path->index());
  }
}

void Link::on_rejoin(const Rejoin& offer) {
  if (!is_up() || has_departed_) return;
  if (offer.path >= paths_.size() || offer.generation != paths_[offer.path]->generation + 1)
    return broken("it connects an unknown path again");
  if (const std::string flaw = offer.rail.flaw(); !flaw.empty()) return broken(flaw);
  peer_told_ = Clock::now();
  returns_[offer.path].theirs = offer.rail;
  connect_again(offer.path);
}

void Link::connect_again(uint32_t index) {
  Return& back = returns_[index];
  if (!back.fresh || !back.theirs) return;
  std::unique_ptr<Path> fresh = std::move(back.fresh);
  const OfferedRail theirs = *std::exchange(back.theirs, std::nullopt);
  std::unique_ptr<Path>& old = paths_[index];
  std::string why;
  try {
    const Pairing pairing = endpoint().pairs_with(peer(), {fresh->offer()}, {theirs}).front();
    fresh->connect(old->place(), pairing, theirs, theirs.queue_pairs[0], &why);
  } catch (const sdk::Error& unsuitable) {
    why = unsuitable.what();
  }
  if (!why.empty()) {
    old->is_unused = true;
    ++old->generation;
    endpoint().send_pair(peer(), kPairFormat.encode(kPathIsDown, PathDown{index, 0, old->generation}));
    return endpoint().log(TUTTI_LOG_WARN, "to rank {} without rail {}: {}", peer(), fresh->rail().port().name(), why);
  }
  fresh->generation = old->generation + 1;
  fresh->is_fast = old->is_fast;
  fresh->is_joined = false;
  fresh->set_state(Path::State::kConnected);
  retired_.push_back(std::exchange(old, std::move(fresh)));
  endpoint().send_pair(peer(), kPairFormat.encode(kReady, 1u << index));
}

void Link::on_reconnected(uint32_t connected) {
  if (!is_up()) return;
  for (auto& path : paths_) {
    if (!(connected >> path->index() & 1) || path->state() != Path::State::kConnected) continue;
    path->set_state(Path::State::kUp);
    path->tell_credit();
    endpoint().wants_flush(*path);
  }
  endpoint().wants_advance(*this);
}

// Keeps retired_ until all this is done: has_work() is true as long.
void Link::join_lanes() {
  fencing_ = false;
  if (retired_.empty()) return;
  const auto is_waiting = [](const auto& p) { return p->is_up() && !p->is_joined && p->acked(); };
  const auto is_carrying = [](const auto& p) { return p->is_up() && p->is_joined; };
  const auto is_open = [](const auto& p) {
    return p->failing || p->state() == Path::State::kFailed || p->state() == Path::State::kConnected ||
           (p->is_up() && !p->is_joined);
  };
  const bool is_settling = std::any_of(paths_.begin(), paths_.end(), [](const auto& p) {
    return p->failing || p->state() == Path::State::kFailed;
  });
  if (std::any_of(paths_.begin(), paths_.end(), is_waiting) && !is_settling) {
    bool is_answered = true;
    for (auto& path : paths_) {
      if (!is_carrying(path)) continue;
      fencing_ = true;
      if (!path->fence && path->has_room(0)) {
        path->send(frame(FrameKind::kFence, 0, 0), nullptr);
        path->fence = path->sent();
        endpoint().wants_flush(*path);
      }
      is_answered &= path->fence && static_cast<int32_t>(path->freed() - *path->fence) >= 0;
    }
    if (!is_answered) return;
    fencing_ = false;
    for (auto& path : paths_) {
      path->fence.reset();
      if (!is_waiting(path)) continue;
      path->is_joined = true;
      returns_[path->index()].pause = kFirstPause;
      endpoint().log(TUTTI_LOG_INFO, "to rank {}: rail {} is used again", peer(), path->rail().port().name());
    }
    down_since_.reset();
  }
  if (again_.empty() && std::none_of(paths_.begin(), paths_.end(), is_open) &&
      std::none_of(retired_.begin(), retired_.end(), [](const auto& p) { return p->in_unflushed; }))
    retired_.clear();
}

void Link::check_recovery() {
  if (!down_since_) return;
  const auto down = Clock::now() - *down_since_;
  const bool is_ours = std::any_of(paths_.begin(), paths_.end(), [](const auto& p) { return !p->rail().is_usable(); });
  if (down > endpoint().settings().recovery)
    return lose(fmt::format("{}; no rail came back within {} s (TUTTI_IB_RECOVERY)", last_failure_,
                            endpoint().settings().recovery.count()));
  if (down > kSilenceLimit && !is_ours && peer_told_ < *down_since_ - kSilenceLimit)
    lose(last_failure_ + "; the peer has given no sign of life since");
}

}  // namespace tutti::ib
