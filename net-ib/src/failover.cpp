// SPDX-License-Identifier: Apache-2.0
//
// The ends of paths and links. A failure is settled over the paths that are left; without any the peer is lost.
#include <algorithm>

#include "endpoint.hpp"

namespace tutti::ib {
namespace {

std::string failure_of(Path& path) { return fmt::format("rail {}: {}", path.rail().port().name(), path.failure); }

}  // namespace

bool Link::is_settled() const {
  return again_.empty() && !fencing_ && std::none_of(paths_.begin(), paths_.end(),
                                        [](const auto& p) { return p->failing || p->state() == Path::State::kFailed; });
}

void Link::on_path_failed(Path& path) {
  path.halt();
  if (has_departed_) {  // it takes nothing more
    const auto pending = [](const Lane& lane) { return !lane.sends.empty() || !lane.receives.empty(); };
    if (std::any_of(lanes_.begin(), lanes_.end(), pending)) lose(kClosed);
    return;
  }
  const auto left = std::count_if(paths_.begin(), paths_.end(), [](const auto& p) { return p->is_up(); });
  if (left == 0) {
    last_failure_ = failure_of(path) + (paths_.size() > 1 ? "; no other rail is left" : "");
    if (!is_kept()) return lose(last_failure_);
    if (!down_since_) down_since_ = Clock::now();
    return endpoint().log(TUTTI_LOG_WARN, "to rank {}: {}; waiting up to {} s for a rail to come back", peer(), last_failure_,
                          endpoint().settings().recovery.count());
  }
  endpoint().log(TUTTI_LOG_WARN, "to rank {}: {}; going on with the {} left", peer(), failure_of(path), left);
}

// It is unknown whether the path's frames arrived, or still write to memory.
void Link::on_path_stuck(Path& path, const std::string& why) {
  path.failing = false;
  path.set_state(Path::State::kDead);
  if (!has_departed_) lose(failure_of(path) + "; then " + why);
}

void Link::on_path_drained(Path& path) {
  path.failing = false;
  if (has_departed_) return path.die();
  path.set_state(Path::State::kFailed);
  Frame f = frame(FrameKind::kPathDown, 0, path.index(), path.taken());
  f.offset = path.generation;
  if (path_of(0)) note(f, true);
  if (!endpoint().is_closing())
    endpoint().send_pair(peer(), kPairFormat.encode(kPathIsDown, PathDown{path.index(), path.taken(), path.generation}));
  if (path.peer_taken) settle(path);
}

void Link::on_path_down(const PathDown& down) {
  if (down.path >= paths_.size()) return broken("a note about an unknown path");
  Path& path = *paths_[down.path];
  peer_told_ = Clock::now();
  if (down.generation != path.generation || path.peer_taken) return;  // it comes twice, by frame and by pair message
  path.peer_taken = down.taken;
  if (path.state() == Path::State::kFailed) return settle(path);
  endpoint().path_failed(path, "the peer has stopped using it");
}

// The frames that the peer took have arrived, acknowledged or not. The others are sent again.
void Link::settle(Path& path) {
  path.die();
  const auto ahead = [](uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) > 0; };
  const uint32_t taken = *path.peer_taken;
  if (ahead(taken, path.sent())) return broken("it took more frames from a path than were sent");
  // A frame that was acknowledged is no longer kept, so it cannot be sent again.
  if (ahead(path.acked(), taken))
    return lose(fmt::format("{}; then its adapter lost {} frames that it had acknowledged", failure_of(path),
                            path.acked() - taken));
  std::deque<Again> missing;
  for (uint32_t i = path.acked(); i != path.sent(); ++i) {
    if (ahead(taken, i))
      on_acked(path.flight(i));
    else
      missing.push_back({&path, i});
  }
  // Frames that wait from an earlier failure follow these.
  again_.insert(again_.begin(), missing.begin(), missing.end());
  endpoint().wants_advance(*this);
  rejoin();
}

bool Link::send_again() {
  while (!again_.empty()) {
    Path& old = *again_.front().path;
    const uint32_t i = again_.front().index;
    const Flight& flight = old.flight(i);
    const FrameKind kind = flight.frame.kind;
    if (flight.write || (kind != FrameKind::kCredit && kind != FrameKind::kFence)) {
      Path* path = path_of(flight.frame.lane);
      if (!path || !path->has_room(kind == FrameKind::kPathDown ? 0 : kReservedCredits)) return false;
      const char* payload = flight.region ? flight.local : old.payload(i);
      if (flight.write)
        path->write(flight.frame, flight.target, payload, flight.region);
      else
        path->send(flight.frame, payload, flight.region);
      endpoint().wants_flush(*path);
    }
    again_.pop_front();
  }
  return true;
}

void Link::drop_transfers(tutti_status status) {
  for (auto& path : paths_) path->die();  // from here on no completion counts
  for (Lane& lane : lanes_) {
    while (!lane.sends.empty())
      if (const Send send = lane.sends.pop(); !send.silent) complete(send.cookie, status, 0);
    while (!lane.receives.empty()) complete(lane.receives.pop().cookie, status, 0);
    lane.early.clear();
    lane.cursor = 0;
  }
  for (Return& back : returns_) back.fresh.reset();
  notes_.clear();
  again_.clear();
}

// Everything that the peer sent before has arrived: frames of one path arrive in order, and the peer waited until those
// of the other paths were acknowledged.
void Link::on_goodbye() {
  has_departed_ = true;
  const bool pending = std::any_of(lanes_.begin(), lanes_.end(),
                                   [](const Lane& l) { return l.cursor != l.sends.size() || !l.receives.empty(); });
  if (pending) lose(kClosed + std::string(" while transfers with it were pending"));
}

void Link::heartbeat() {
  if (!is_up() || has_departed_ || !ready_) return;
  check_recovery();
  rejoin();
  for (auto& path : paths_) {
    std::string why;
    if (path->is_up() && !path->heartbeat(&why)) endpoint().path_failed(*path, why);
  }
}

void Link::ask_for_acknowledgement() {
  if (!is_up() || has_departed_ || !ready_) return;
  for (auto& path : paths_) {
    if (!path->is_up() || path->sent() == path->acked()) continue;
    path->tell_credit();
    endpoint().wants_flush(*path);
  }
}

void Link::say_goodbye() {
  if (is_up() && !has_departed_ && ready_) note(frame(FrameKind::kBye, 0, 0));
}

bool Link::is_drained() const {
  if (!is_up() || has_departed_ || !ready_) return true;
  return notes_.empty() && is_settled() && std::all_of(paths_.begin(), paths_.end(), [](const auto& p) {
           return !p->is_up() || p->sent() == p->acked();
         });
}

}  // namespace tutti::ib
