// SPDX-License-Identifier: Apache-2.0
//
// The sending half of a link, and its transfers. arrivals.cpp has the receiving half, failover.cpp the ends of paths
// and links.
#include "link.hpp"

#include <algorithm>
#include <cstring>

#include "endpoint.hpp"

namespace tutti::ib {
namespace {

// After so many polls of a large SEND without an announcement the peer is asked: it may be late, or its RECV is small
// and was never announced.
constexpr uint32_t kPatience = 4096;

const Region* region_of(const tutti_transfer& t) { return t.region ? &sdk::from_handle<Region>(t.region) : nullptr; }

}  // namespace

Link::Link(Endpoint& endpoint, uint32_t peer, std::vector<std::unique_ptr<Path>> paths)
    : NetworkLink(endpoint, peer), lanes_(endpoint.lanes()), paths_(std::move(paths)) {
  double fastest = 0;
  for (const auto& path : paths_) fastest = std::max(fastest, path->load().weight);
  returns_.resize(paths_.size());
  for (auto& path : paths_) {
    path->link = this;
    path->is_fast = 2 * path->load().weight >= fastest;
  }
}

bool Link::start(uint32_t connected) {
  for (auto& path : paths_) {
    if (path->is_up() && !(connected >> path->index() & 1)) path->die();
    path->is_unused = !path->is_up();
  }
  ready_ = true;
  endpoint().wants_advance(*this);
  return path_of(0) != nullptr;
}

bool Link::uses(const Rail& rail) const {
  return std::any_of(paths_.begin(), paths_.end(), [&](const auto& p) { return p->is_up() && &p->rail() == &rail; });
}

Path* Link::path_of(uint32_t lane) const {
  const size_t n = paths_.size();
  Path* slow = nullptr;
  for (size_t i = 0; i < n; ++i) {
    Path* path = paths_[(lane + i) % n].get();
    if (!path->is_up() || !path->is_joined) continue;
    if (path->is_fast) return path;
    if (!slow) slow = path;
  }
  return slow;
}

// The path over which a piece would arrive first, so a slow rail gets less.
Path* Link::path_for_piece(uint32_t lane, uint64_t bytes) const {
  const size_t n = paths_.size();
  Path* best = nullptr;
  for (size_t i = 0; i < n; ++i) {
    Path* path = paths_[(lane + i) % n].get();
    if (!path->is_up() || !path->is_joined || !path->has_room()) continue;
    if (!best || path->load().is_better_for(bytes, best->load())) best = path;
  }
  return best;
}

Frame Link::frame(FrameKind kind, uint32_t lane, uint32_t sequence, uint64_t total, uint64_t bytes,
                  uint32_t mark) const {
  Frame f{};
  f.kind = kind;
  f.lane = static_cast<uint16_t>(lane);
  f.sequence = sequence;
  f.posted = lanes_[lane].posted;
  f.total = static_cast<uint32_t>(total);
  f.bytes = static_cast<uint32_t>(bytes);
  f.mark = mark;
  return f;
}

bool Link::send(const Frame& f, const void* payload, const Region* region, uint32_t reserved) {
  Path* path = path_of(f.lane);
  if (!path || !path->has_room(reserved)) return false;
  path->send(f, payload, region);
  endpoint().wants_flush(*path);
  return true;
}

void Link::note(const Frame& f, bool urgent) {
  notes_.insert(urgent ? notes_.begin() : notes_.end(), {f, urgent});
  endpoint().wants_advance(*this);
}

void Link::make_busy(uint32_t index) {
  Lane& lane = lanes_[index];
  if (lane.busy) return;
  lane.busy = true;
  busy_.push_back(index);
  endpoint().wants_advance(*this);
}

// ---- Transfers

bool Link::post_send(const tutti_transfer& t) {
  Lane& lane = lanes_[t.lane];
  if (has_departed_) lose(kClosed);
  if (!is_up() || lane.sends.size() >= kQueueDepth) return false;
  const bool first = lane.cursor == lane.sends.size();
  Send send{static_cast<const char*>(t.data), t.bytes, t.cookie, region_of(t), t.mark};
  if (t.flags & TUTTI_TRANSFER_INLINE) {  // now or not at all: its memory may not be kept
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
  if (has_departed_ && lane.early.empty()) lose(kClosed);
  if (!is_up() || lane.receives.size() >= kQueueDepth) return false;
  lane.receives.push({static_cast<char*>(t.data), t.bytes, t.cookie, region_of(t), t.mark});
  const uint32_t sequence = lane.posted++;
  Receive& receive = *receive_of(lane, sequence);
  if (!lane.early.empty()) {
    const Early message = lane.early.pop();
    if (!receive.fits(message.bytes, message.mark)) {
      mismatch(t.lane, receive, message.bytes, message.mark);
    } else {
      fill(t.lane, receive, 0, message.data.get(), message.bytes);
      if (!is_up()) return true;
      receive.done = true;
    }
  } else if (lane.want && lane.want->sequence == sequence) {
    on_want(*std::exchange(lane.want, std::nullopt));
  }
  retire_receives(t.lane);
  if (!is_settled() || !tell(t.lane)) make_busy(t.lane);
  return true;
}

// Any rail may have written a part. Writes of a rail that has failed arrived before its failure was settled.
bool Link::flush(tutti_region* region, const void* data, uint64_t bytes) {
  const Region& memory = sdk::from_handle<Region>(region);
  if (!region || !memory.holds(data, bytes))
    throw endpoint().error(TUTTI_INVALID_ARGUMENT, "flush of {} bytes that its region does not hold", bytes);
  if (!is_up()) throw endpoint().error(status(), "flush: rank {} is lost: {}", peer(), reason());
  for (const auto& path : paths_)
    if (memory.on_device && bytes && path->is_up()) path->rail().placer().flush(memory, static_cast<const char*>(data));
  return true;
}

bool Link::take_control(std::string_view message) {
  const auto send_it = [&] {
    return is_settled() && send(frame(FrameKind::kControl, 0, 0, 0, message.size()), message.data());
  };
  bool sent = send_it();
  if (!sent && endpoint().completions().empty()) {  // the peer may have made room since the last progress
    endpoint().advance();
    sent = has_departed_ || send_it();
  }
  endpoint().flush();
  return sent;
}

// ---- Waiting sends and notes

void Link::advance() {
  if (!is_up()) return busy_.clear();
  join_lanes();
  if (!ready_ || fencing_ || !send_notes() || !send_again() || !is_settled() || endpoint().is_closing()) return;
  size_t kept = 0;
  for (size_t i = 0; i < busy_.size(); ++i) {
    const uint32_t lane = busy_[i];
    const bool told = tell(lane), handed = hand_over(lane);
    retire_sends(lane);
    lanes_[lane].busy = !told || !handed;
    if (lanes_[lane].busy) busy_[kept++] = lane;
  }
  busy_.resize(kept);
}

bool Link::send_notes() {
  while (!notes_.empty()) {
    const Note& next = notes_.front();
    if (!send(next.frame, nullptr, nullptr, next.urgent ? 0 : kReservedCredits)) return false;
    notes_.pop_front();
  }
  return true;
}

// Announces large RECVs one by one. A frame of its own reports small ones once half of the window is used up, if no
// other frame has carried the count.
bool Link::tell(uint32_t index) {
  Lane& lane = lanes_[index];
  if (has_departed_) return true;
  while (lane.announced_to != lane.posted) {
    const Receive* receive = receive_of(lane, lane.announced_to);
    if (receive && !receive->done && receive->bytes > endpoint().settings().eager_bytes) {
      Announcement announcement{};
      if (receive->region) {
        announcement.address = reinterpret_cast<uint64_t>(receive->data);
        for (const auto& p : paths_)
          announcement.keys[p->place().pair] = endpoint().domain().registration(*receive->region, p->rail().index()).rkey;
      }
      const Frame f =
          frame(FrameKind::kAnnounce, index, lane.announced_to, receive->bytes, sizeof announcement, receive->mark);
      if (!send(f, &announcement)) return false;
      lane.told = lane.posted;
    }
    ++lane.announced_to;
  }
  if (lane.posted - lane.told < kEagerWindow / 2) return true;
  if (!send(frame(FrameKind::kPosted, index, 0))) return false;
  lane.told = lane.posted;
  return true;
}

bool Link::hand_over(uint32_t index) {
  Lane& lane = lanes_[index];
  while (lane.cursor != lane.sends.size()) {
    Send& send = lane.sends[lane.cursor];
    const bool small = send.bytes <= endpoint().settings().eager_bytes;
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
  const bool stays = send.stays() && send.bytes;
  const Frame f = frame(FrameKind::kData, index, sequence, send.bytes, send.bytes, send.mark);
  if (!this->send(f, send.data, stays ? send.region : nullptr)) return false;
  lane.told = lane.posted;
  send.handed = send.bytes;
  send.unacked = stays ? send.bytes : 0;
  send.done = !stays;
  return true;
}

// Is the RECV announced? A RECV of another size or mark ends the SEND.
bool Link::find_target(uint32_t index, Send& send) {
  if (send.begun) return true;
  Lane& lane = lanes_[index];
  const uint32_t sequence = lane.first_send() + lane.cursor;
  while (!lane.announced.empty() && lane.announced.front().sequence != sequence) {
    if (static_cast<int32_t>(lane.announced.front().sequence - sequence) > 0) break;
    lane.announced.pop();  // its message was small and has left already
  }
  if (lane.announced.empty() || lane.announced.front().sequence != sequence) {
    if (!lane.asked && ++lane.idle_polls >= kPatience) {
      note(frame(FrameKind::kWant, index, sequence, send.bytes, 0, send.mark));
      lane.asked = true;
    }
    return false;
  }
  const Announced announced = lane.announced.pop();
  lane.asked = false;
  lane.idle_polls = 0;
  send.begun = true;
  send.target = announced.target;
  if (announced.total == send.bytes && announced.mark == send.mark) return true;
  note(frame(FrameKind::kMismatch, index, sequence, send.bytes, 0, send.mark));
  send.handed = send.bytes;
  return true;
}

bool Link::hand_pieces(uint32_t index, Send& send) {
  Lane& lane = lanes_[index];
  const bool direct = send.target.address != 0;
  const uint64_t stripe = endpoint().settings().stripe_bytes;
  const bool whole = paths_.size() == 1 || send.bytes < 2 * stripe;
  const uint64_t limit = !direct || !send.region ? endpoint().settings().eager_bytes : whole ? send.bytes : stripe;
  while (send.handed < send.bytes) {
    Path* path = whole ? path_of(index) : path_for_piece(index, limit);
    if (!path || !path->has_room()) return false;
    const uint64_t n = std::min(limit, send.bytes - send.handed);
    Frame f = frame(FrameKind::kData, index, lane.first_send() + lane.cursor, send.bytes, n, send.mark);
    f.offset = static_cast<uint32_t>(send.handed);
    const Region* from = direct || send.stays() ? send.region : nullptr;
    if (direct)
      path->write(f, send.target, send.data + send.handed, from);
    else
      path->send(f, send.data + send.handed, from);
    if (from) send.unacked += n;
    send.handed += n;
    endpoint().wants_flush(*path);
  }
  send.done = send.unacked == 0;
  return true;
}

void Link::ask_all() {
  for (const uint32_t index : busy_) {
    Lane& lane = lanes_[index];
    if (lane.cursor != lane.sends.size() && lane.sends[lane.cursor].bytes > endpoint().settings().eager_bytes)
      lane.idle_polls = kPatience;
  }
}

void Link::on_acked(const Flight& flight) {
  if (!flight.region || !is_up()) return;
  Lane& lane = lanes_[flight.frame.lane];
  const uint32_t at = flight.frame.sequence - lane.first_send();
  if (at >= lane.sends.size()) return;
  Send& send = lane.sends[at];
  send.unacked -= flight.frame.bytes;
  send.done = send.unacked == 0 && send.handed == send.bytes;
  retire_sends(flight.frame.lane);
}

// Completions keep the order of posting.
void Link::retire_sends(uint32_t index) {
  Lane& lane = lanes_[index];
  while (lane.cursor > 0 && lane.sends.front().done) {
    const Send send = lane.sends.pop();
    --lane.cursor;
    if (!send.silent) complete(send.cookie, TUTTI_OK, send.bytes);
  }
}

}  // namespace tutti::ib
