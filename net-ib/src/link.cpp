// SPDX-License-Identifier: Apache-2.0
//
// The sending half of a link and its transfers; arrivals.cpp has the receiving half, failover.cpp the ends of paths and
// links.
#include "link.hpp"

#include <algorithm>
#include <cstring>

#include "endpoint.hpp"

namespace tutti::ib {
namespace {

// After so many looks at a large SEND without its RECV's announcement the peer is asked: either it is late, or its RECV
// has another size and was never announced.
constexpr uint32_t kPatience = 4096;

const Region* region_of(const tutti_transfer& t) { return t.region ? &sdk::from_handle<Region>(t.region) : nullptr; }

}  // namespace

Link::Link(Endpoint& endpoint, uint32_t peer, std::vector<std::unique_ptr<Path>> paths)
    : endpoint_(endpoint), peer_(peer), lanes_(endpoint.shape().lanes), paths_(std::move(paths)) {
  for (auto& path : paths_) path->link = this;
}

bool Link::start(uint32_t connected) {
  for (auto& path : paths_)
    if (path->is_up() && !(connected >> path->index() & 1)) path->die();
  ready_ = true;
  endpoint_.wants_advance(*this);
  return path_of(0) != nullptr;
}

bool Link::uses(const Rail& rail) const {
  return std::any_of(paths_.begin(), paths_.end(), [&](const auto& p) { return p->is_up() && &p->rail() == &rail; });
}

Path* Link::path_of(uint32_t lane) const {
  const size_t n = paths_.size();
  for (size_t i = 0; i < n; ++i)
    if (Path* path = paths_[(lane + i) % n].get(); path->is_up()) return path;
  return nullptr;
}

// The path over which a piece would arrive first: a slow rail gets less by itself.
Path* Link::path_for_piece(uint32_t lane, uint64_t bytes) const {
  const size_t n = paths_.size();
  Path* best = nullptr;
  for (size_t i = 0; i < n; ++i) {
    Path* path = paths_[(lane + i) % n].get();
    if (!path->is_up() || !path->has_room()) continue;
    if (!best || path->load().is_better_for(bytes, best->load())) best = path;
  }
  return best;
}

Frame Link::frame(FrameKind kind, uint32_t lane, uint32_t sequence) const {
  Frame f{};
  f.kind = kind;
  f.lane = static_cast<uint16_t>(lane);
  f.sequence = sequence;
  f.posted = lanes_[lane].posted;
  return f;
}

void Link::note(const Frame& f, bool urgent) {
  if (urgent)
    notes_.push_front({f, urgent});
  else
    notes_.push_back({f, urgent});
  endpoint_.wants_advance(*this);
}

void Link::make_busy(uint32_t index) {
  Lane& lane = lanes_[index];
  if (lane.busy) return;
  lane.busy = true;
  busy_.push_back(index);
  endpoint_.wants_advance(*this);
}

// Transfers
// ------------------------------------------------------------------------------------------------------------

bool Link::post_send(const tutti_transfer& t) {
  Lane& lane = lanes_[t.lane];
  if (departed_) lose(reason_);
  if (!is_up() || lane.sends.size() >= kQueueDepth) return false;
  const bool first = lane.cursor == lane.sends.size();
  Send send{static_cast<const char*>(t.data), t.bytes, t.cookie, region_of(t)};
  if (t.flags & TUTTI_TRANSFER_INLINE) {  // now or not at all: nothing of it may be kept
    if (!first || !is_settled() || !hand_eager(t.lane, lane.next_send, send)) return false;
    ++lane.next_send;
    if (lane.sends.empty()) return true;
    send.silent = true;
    lane.sends.push(std::move(send));
    ++lane.cursor;
    return true;
  }
  ++lane.next_send;
  lane.sends.push(std::move(send));
  if (first && is_settled()) hand_over(t.lane);
  retire_sends(t.lane);
  if (lane.cursor != lane.sends.size()) make_busy(t.lane);
  return true;
}

bool Link::post_receive(const tutti_transfer& t) {
  Lane& lane = lanes_[t.lane];
  if (departed_ && lane.early.empty()) lose(reason_);
  if (!is_up() || lane.receives.size() >= kQueueDepth) return false;
  lane.receives.push({static_cast<char*>(t.data), t.bytes, t.cookie, region_of(t)});
  const uint32_t sequence = lane.posted++;
  Receive& receive = *receive_of(lane, sequence);
  if (!lane.early.empty()) {
    const Early message = lane.early.pop();
    if (message.bytes != receive.bytes) {
      mismatch(t.lane, receive, message.bytes);
    } else {
      fill(t.lane, receive, 0, message.data.get(), message.bytes);
      if (!is_up()) return true;
      receive.done = true;
    }
  } else if (lane.wanted && lane.want == sequence) {
    lane.wanted = false;
    Frame wanted = frame(FrameKind::kWant, t.lane, sequence);
    wanted.total = lane.want_total;
    on_want(wanted);
  }
  retire_receives(t.lane);
  if (!is_settled() || !tell(t.lane)) make_busy(t.lane);
  return true;
}

bool Link::send_control(std::string_view message) { return endpoint_.send_control(*this, message); }

// Any rail may have brought a part. What a rail wrote that has failed since arrived long before its failure was
// settled.
bool Link::flush(tutti_region* region, const void* data, uint64_t bytes) {
  const Region& memory = sdk::from_handle<Region>(region);
  if (!region || !memory.holds(data, bytes))
    throw endpoint_.error(TUTTI_INVALID_ARGUMENT, "flush of {} bytes that its region does not hold", bytes);
  if (!is_up()) throw endpoint_.error(status_, "flush: rank {} is lost: {}", peer_, reason_);
  for (const auto& path : paths_)
    if (memory.on_device && bytes && path->is_up()) path->rail().placer().flush(memory, static_cast<const char*>(data));
  return true;
}

bool Link::take_control(std::string_view message) {
  Path* path = path_of(0);
  if (!is_settled() || !path || !path->has_room()) return false;
  Frame f = frame(FrameKind::kControl, 0, 0);
  f.bytes = static_cast<uint32_t>(message.size());
  path->send(f, message.data());
  endpoint_.wants_flush(*path);
  return true;
}

// What waits
// -----------------------------------------------------------------------------------------------------------

void Link::advance() {
  if (status_ != TUTTI_OK) {
    busy_.clear();
    return;
  }
  if (!ready_ || !send_notes() || !send_again() || !is_settled() || endpoint_.is_closing()) return;
  size_t kept = 0;
  for (size_t i = 0; i < busy_.size(); ++i) {
    const uint32_t lane = busy_[i];
    if (advance_lane(lane))
      lanes_[lane].busy = false;
    else
      busy_[kept++] = lane;
  }
  busy_.resize(kept);
}

bool Link::advance_lane(uint32_t lane) {
  const bool told = tell(lane);
  const bool handed = hand_over(lane);
  retire_sends(lane);
  return told && handed;
}

bool Link::send_notes() {
  while (!notes_.empty()) {
    const Note& next = notes_.front();
    Path* path = path_of(next.frame.lane);
    if (!path || !path->has_room(next.urgent ? 0 : kReservedCredits)) return false;
    path->send(next.frame, nullptr);
    endpoint_.wants_flush(*path);
    notes_.pop_front();
  }
  return true;
}

// Announces large RECVs one by one; small ones are told of when half of the window waits to be told, if no other frame
// took the count along.
bool Link::tell(uint32_t index) {
  Lane& lane = lanes_[index];
  if (departed_) return true;
  while (lane.announced_to != lane.posted) {
    const Receive* receive = receive_of(lane, lane.announced_to);
    if (receive && !receive->done && receive->bytes > endpoint_.shape().eager_bytes) {
      Path* path = path_of(index);
      if (!path || !path->has_room()) return false;
      Frame f = frame(FrameKind::kAnnounce, index, lane.announced_to);
      f.bytes = sizeof(Announcement);
      f.total = static_cast<uint32_t>(receive->bytes);
      Announcement announcement{};
      if (receive->region) {
        announcement.address = reinterpret_cast<uint64_t>(receive->data);
        for (const auto& p : paths_)
          announcement.keys[p->index()] = endpoint_.domain().registration(*receive->region, p->rail().index()).rkey;
      }
      lane.told = lane.posted;
      path->send(f, &announcement);
      endpoint_.wants_flush(*path);
    }
    ++lane.announced_to;
  }
  if (lane.posted - lane.told < kEagerWindow / 2) return true;
  Path* path = path_of(index);
  if (!path || !path->has_room()) return false;
  lane.told = lane.posted;
  path->send(frame(FrameKind::kPosted, index, 0), nullptr);
  endpoint_.wants_flush(*path);
  return true;
}

bool Link::hand_over(uint32_t index) {
  Lane& lane = lanes_[index];
  while (lane.cursor != lane.sends.size()) {
    Send& send = lane.sends[lane.cursor];
    const bool small = send.bytes <= endpoint_.shape().eager_bytes;
    if (!send.done && !(small ? hand_eager(index, lane.first_send() + lane.cursor, send)
                              : find_target(index, send) && hand_pieces(index, send)))
      return false;
    ++lane.cursor;
  }
  return true;
}

bool Link::hand_eager(uint32_t index, uint32_t sequence, Send& send) {
  Lane& lane = lanes_[index];
  if (static_cast<int32_t>(sequence - lane.peer_posted) >= static_cast<int32_t>(kEagerWindow)) return false;
  Path* path = path_of(index);
  if (!path || !path->has_room()) return false;
  Frame f = frame(FrameKind::kData, index, sequence);
  f.bytes = f.total = static_cast<uint32_t>(send.bytes);
  lane.told = lane.posted;
  const bool stays = send.stays() && send.bytes;
  path->send(f, send.data, stays ? send.region : nullptr);
  endpoint_.wants_flush(*path);
  send.handed = send.bytes;
  send.unacked = stays ? send.bytes : 0;
  send.done = !stays;
  return true;
}

// Has the RECV been announced? A RECV of another size ends the SEND here.
bool Link::find_target(uint32_t index, Send& send) {
  if (send.begun) return true;
  Lane& lane = lanes_[index];
  const uint32_t sequence = lane.first_send() + lane.cursor;
  while (!lane.announced.empty() && lane.announced.front().sequence != sequence) {
    if (static_cast<int32_t>(lane.announced.front().sequence - sequence) > 0) break;
    lane.announced.pop();  // its message was small and has gone already
  }
  if (lane.announced.empty() || lane.announced.front().sequence != sequence) {
    if (!lane.asked && ++lane.idle_polls >= kPatience) {
      Frame f = frame(FrameKind::kWant, index, sequence);
      f.total = static_cast<uint32_t>(send.bytes);
      note(f);
      lane.asked = true;
    }
    return false;
  }
  const Announced announced = lane.announced.pop();
  lane.asked = false;
  lane.idle_polls = 0;
  send.begun = true;
  send.target = announced.target;
  if (announced.total == send.bytes) return true;
  Frame f = frame(FrameKind::kMismatch, index, sequence);
  f.total = static_cast<uint32_t>(send.bytes);
  note(f);
  send.handed = send.bytes;
  return true;
}

bool Link::hand_pieces(uint32_t index, Send& send) {
  Lane& lane = lanes_[index];
  const bool direct = send.target.address != 0;
  const uint64_t stripe = endpoint_.settings().stripe_bytes;
  const bool whole = paths_.size() == 1 || send.bytes < 2 * stripe;
  const uint64_t limit = !direct || !send.region ? endpoint_.shape().eager_bytes : whole ? send.bytes : stripe;
  while (send.handed < send.bytes) {
    Path* path = whole ? path_of(index) : path_for_piece(index, limit);
    if (!path || !path->has_room()) return false;
    const uint64_t n = std::min(limit, send.bytes - send.handed);
    Frame f = frame(FrameKind::kData, index, lane.first_send() + lane.cursor);
    f.bytes = static_cast<uint32_t>(n);
    f.total = static_cast<uint32_t>(send.bytes);
    f.offset = send.handed;
    if (direct) {
      path->write(f, send.target, send.data + send.handed, send.region);
      if (send.region) send.unacked += n;
    } else {
      path->send(f, send.data + send.handed, send.stays() ? send.region : nullptr);
      if (send.stays()) send.unacked += n;
    }
    send.handed += n;
    endpoint_.wants_flush(*path);
  }
  send.done = send.unacked == 0;
  return true;
}

void Link::ask_all() {
  for (const uint32_t index : busy_) {
    Lane& lane = lanes_[index];
    if (lane.cursor != lane.sends.size() && lane.sends[lane.cursor].bytes > endpoint_.shape().eager_bytes)
      lane.idle_polls = kPatience;
  }
}

void Link::on_acked(const Flight& flight) {
  if (!flight.region || status_ != TUTTI_OK) return;
  Lane& lane = lanes_[flight.frame.lane];
  const uint32_t at = flight.frame.sequence - lane.first_send();
  if (at >= lane.sends.size()) return;
  Send& send = lane.sends[at];
  send.unacked -= flight.frame.bytes;
  send.done = send.unacked == 0 && send.handed == send.bytes;
  retire_sends(flight.frame.lane);
}

// Completions come in the order of posting.
void Link::retire_sends(uint32_t index) {
  Lane& lane = lanes_[index];
  while (lane.cursor > 0 && lane.sends.front().done) {
    const Send send = lane.sends.pop();
    --lane.cursor;
    if (!send.silent) endpoint_.completions().transfer(peer_, send.cookie, TUTTI_OK, send.bytes);
  }
}

}  // namespace tutti::ib
