// SPDX-License-Identifier: Apache-2.0
//
// How paths and links end: failures are settled over the paths that are left, or lose the peer.
#include <algorithm>
#include <tutti/sdk/plugin.hpp>

#include "endpoint.hpp"
#include "link.hpp"

namespace tutti::ib {

bool Link::is_settled() const {
  return again_.empty() && std::none_of(paths_.begin(), paths_.end(),
                                        [](const auto& p) { return p->failing || p->state() == Path::State::kFailed; });
}

void Link::on_path_failed(Path& path) {
  path.failing = false;
  path.set_state(Path::State::kFailed);
  if (status_ != TUTTI_OK) return;
  const auto left = std::count_if(paths_.begin(), paths_.end(), [](const auto& p) { return p->is_up(); });
  const std::string which = "rail " + path.rail().port().name() + ": " + path.failure;
  if (departed_) return;
  if (left == 0) return lose(which + (paths_.size() > 1 ? "; no other rail is left" : ""));
  endpoint_.log(TUTTI_LOG_WARN, "to rank " + std::to_string(peer_) + ": " + which + "; going on with the " +
                                    std::to_string(left) + " left");
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
  if (path.peer_taken - path.acked() > path.sent() - path.acked())
    return broken("it took more frames from a path than were sent");
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
    if (flight.write || (kind != FrameKind::kCredit && kind != FrameKind::kReady)) {
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

tutti_status Link::usable(uint32_t lane, uint16_t kind) const {
  if (status_ != TUTTI_OK || !departed_) return status_;
  return kind == TUTTI_TRANSFER_RECV && !lanes_[lane].early.empty() ? TUTTI_OK : TUTTI_PEER_FAILED;
}

void Link::end(tutti_status status, const std::string& reason) {
  if (status_ != TUTTI_OK) return;
  status_ = status;
  reason_ = reason;
  for (auto& path : paths_) {
    path->set_state(Path::State::kDead);
    path->halt();
    path->reset();  // from here on nothing touches the transfers' memory
  }
  for (Lane& lane : lanes_) {
    while (!lane.sends.empty())
      if (const Send send = lane.sends.pop(); !send.silent) endpoint_.complete(peer_, send.cookie, status, 0);
    while (!lane.receives.empty()) endpoint_.complete(peer_, lane.receives.pop().cookie, status, 0);
    lane.early.clear();
    lane.cursor = 0;
  }
  notes_.clear();
  again_.clear();
}

void Link::lose(const std::string& reason) {
  if (status_ != TUTTI_OK) return;
  end(TUTTI_PEER_FAILED, reason);
  endpoint_.report_lost(peer_, reason);
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
  return notes_.empty() && again_.empty() && std::all_of(paths_.begin(), paths_.end(), [](const auto& p) {
           return !p->is_up() || p->sent() == p->acked();
         });
}

}  // namespace tutti::ib
