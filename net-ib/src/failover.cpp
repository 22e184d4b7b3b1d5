// SPDX-License-Identifier: Apache-2.0
//
// How paths and links end: failures are settled over the paths that are left, or lose the peer.
#include <algorithm>

#include "endpoint.hpp"

namespace tutti::ib {
namespace {

std::string failure_of(Path& path) { return fmt::format("rail {}: {}", path.rail().port().name(), path.failure); }

}  // namespace

bool Link::is_settled() const {
  return again_.empty() && std::none_of(paths_.begin(), paths_.end(),
                                        [](const auto& p) { return p->failing || p->state() == Path::State::kFailed; });
}

void Link::on_path_failed(Path& path) {
  path.halt();
  if (departed_) {  // what it has not taken by now it never will
    const auto pending = [](const Lane& lane) { return !lane.sends.empty() || !lane.receives.empty(); };
    if (std::any_of(lanes_.begin(), lanes_.end(), pending)) lose(reason_);
    return;
  }
  const auto left = std::count_if(paths_.begin(), paths_.end(), [](const auto& p) { return p->is_up(); });
  if (left == 0) return lose(failure_of(path) + (paths_.size() > 1 ? "; no other rail is left" : ""));
  endpoint_.log(TUTTI_LOG_WARN, "to rank {}: {}; going on with the {} left", peer_, failure_of(path), left);
}

// Whether its frames arrived, or still write to memory, cannot be known.
void Link::on_path_stuck(Path& path, const std::string& why) {
  path.failing = false;
  path.set_state(Path::State::kDead);
  if (!departed_) lose(failure_of(path) + "; then " + why);
}

void Link::on_path_drained(Path& path) {
  path.failing = false;
  path.set_state(departed_ ? Path::State::kDead : Path::State::kFailed);
  if (departed_) return;
  Frame f = frame(FrameKind::kPathDown, 0, path.index());
  f.total = path.taken();
  note(f, true);
  if (path.peer_told) settle(path);
}

void Link::on_path_down(const Frame& f) {
  if (f.sequence >= paths_.size() || paths_[f.sequence]->peer_told) return broken("a note about an unknown path");
  Path& path = *paths_[f.sequence];
  path.peer_told = true;
  path.peer_taken = f.total;
  if (path.state() == Path::State::kFailed) return settle(path);
  endpoint_.path_failed(path, "the peer has stopped using it");
}

// The peer took `peer_taken` frames: those arrived, acknowledged or not; the others go out again.
void Link::settle(Path& path) {
  path.set_state(Path::State::kDead);
  const auto ahead = [](uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) > 0; };
  if (ahead(path.peer_taken, path.sent())) return broken("it took more frames from a path than were sent");
  // They cannot be sent again: a frame that was acknowledged is kept no longer.
  if (ahead(path.acked(), path.peer_taken))
    return lose(fmt::format("{}; then its adapter lost {} frames that it had acknowledged", failure_of(path),
                            path.acked() - path.peer_taken));
  std::deque<Again> missing;
  for (uint32_t i = path.acked(); i != path.sent(); ++i) {
    if (static_cast<int32_t>(i - path.peer_taken) < 0)
      on_acked(path.flight(i));
    else
      missing.push_back({&path, i});
  }
  // Whatever still waits from an earlier failure was to follow these.
  again_.insert(again_.begin(), missing.begin(), missing.end());
  endpoint_.wants_advance(*this);
}

bool Link::send_again() {
  while (!again_.empty()) {
    Path& old = *again_.front().path;
    const uint32_t i = again_.front().index;
    const Flight& flight = old.flight(i);
    const FrameKind kind = flight.frame.kind;
    if (flight.write || kind != FrameKind::kCredit) {
      Path* path = path_of(flight.frame.lane);
      if (!path || !path->has_room(kind == FrameKind::kPathDown ? 0 : kReservedCredits)) return false;
      if (!flight.write)
        path->send(flight.frame, flight.region ? flight.local : old.payload(i), flight.region);
      else
        path->write(flight.frame, flight.target, flight.region ? flight.local : old.payload(i), flight.region);
      endpoint_.wants_flush(*path);
    }
    again_.pop_front();
  }
  return true;
}

void Link::end(tutti_status status, const std::string& reason) {
  if (status_ != TUTTI_OK) return;
  status_ = status;
  reason_ = reason;
  is_told_ = true;
  for (auto& path : paths_) path->die();  // no completion counts any more
  for (Lane& lane : lanes_) {
    while (!lane.sends.empty())
      if (const Send send = lane.sends.pop(); !send.silent)
        endpoint_.completions().transfer(peer_, send.cookie, status, 0);
    while (!lane.receives.empty()) endpoint_.completions().transfer(peer_, lane.receives.pop().cookie, status, 0);
    lane.early.clear();
    lane.cursor = 0;
  }
  notes_.clear();
  again_.clear();
}

void Link::lose(const std::string& reason) {
  if (status_ != TUTTI_OK) return;
  end(TUTTI_PEER_FAILED, reason);
  is_told_ = false;
  endpoint_.report_lost(peer_, reason_);
}

// What the peer sent before is here already: frames of one path come in order, and it waited for the others' to be
// acknowledged.
void Link::on_goodbye() {
  departed_ = true;
  reason_ = "it has closed its endpoint";
  const bool pending = std::any_of(lanes_.begin(), lanes_.end(),
                                   [](const Lane& l) { return l.cursor != l.sends.size() || !l.receives.empty(); });
  if (pending) lose(reason_ + " while transfers with it were pending");
}

void Link::heartbeat() {
  if (status_ != TUTTI_OK || departed_ || !ready_) return;
  for (auto& path : paths_) {
    std::string why;
    if (path->is_up() && !path->heartbeat(&why)) endpoint_.path_failed(*path, why);
  }
}

void Link::ask_for_acknowledgement() {
  if (status_ != TUTTI_OK || departed_ || !ready_) return;
  for (auto& path : paths_) {
    if (!path->is_up() || path->sent() == path->acked()) continue;
    path->tell_credit();
    endpoint_.wants_flush(*path);
  }
}

void Link::say_goodbye() {
  if (status_ == TUTTI_OK && !departed_ && ready_) note(frame(FrameKind::kBye, 0, 0));
}

bool Link::is_drained() const {
  if (status_ != TUTTI_OK || departed_ || !ready_) return true;
  return notes_.empty() && is_settled() && std::all_of(paths_.begin(), paths_.end(), [](const auto& p) {
           return !p->is_up() || p->sent() == p->acked();
         });
}

}  // namespace tutti::ib
