// SPDX-License-Identifier: Apache-2.0
//
// The functions of LinkBase that are not on the hot path. Included by link.hpp.
#pragma once

#include <tutti/sdk/local/link.hpp>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {
namespace local {

template <typename Self>
LinkBase<Self>::LinkBase(Parts parts)
    : parts_(std::move(parts)),
      lanes_(std::make_unique<Lane[]>(parts_.geometry.lanes)),
      peer_doorbell_(&parts_.peer_doorbell.words()),
      reached_by_barriers_(host_barrier_ready() && peer_doorbell_->barriers.load(std::memory_order_relaxed) == 1),
      controls_sent_(parts_.first),
      controls_received_(parts_.first) {
  const uint32_t outward = parts_.rank < parts_.peer ? 0 : 1;
  const Direction out(parts_.segment->data(), parts_.geometry, outward);
  const Direction in(parts_.segment->data(), parts_.geometry, 1 - outward);
  control_out_ = out.control();
  control_in_ = in.control();
  for (uint32_t i = 0; i < parts_.geometry.lanes; i++) {
    Lane& lane = lanes_[i];
    lane.link = &self();
    lane.out = out.lane(i);
    lane.out_slots = out.slots(i);
    lane.in = in.lane(i);
    lane.in_slots = in.slots(i);
    lane.sent = lane.credit = lane.credit_told = lane.received = parts_.first;
  }
}

// ---- view/1

template <typename Self>
const void* LinkBase<Self>::receive_large(Lane& lane, Descriptor& d, uint64_t& bytes, void* room,
                                          uint64_t room_bytes) noexcept {
  const uint32_t size = d.bytes.load(std::memory_order_relaxed);
  const uint32_t kind = d.kind.load(std::memory_order_relaxed);
  if (kind == kData && size <= parts_.geometry.slot_bytes) {
    lane.view = lane.in_slots + lane.in_slot * parts_.geometry.slot_bytes;
    lane.view_in_slot = true;
  } else if (kind == kReference && size <= parts_.geometry.slot_bytes) {
    const auto number = static_cast<uint32_t>(&lane - lanes_.get());
    const Reference found = self().find(d.payload, size, number, size <= room_bytes ? room : nullptr);
    lane.view = found.data;
    lane.referred = found.views;
  } else {
    corrupt("its ring is corrupt: a message of an impossible kind or size");
  }
  lane.view_bytes = bytes = size;
  return lane.view;
}

template <typename Self>
void* LinkBase<Self>::reserve_large(Lane& lane, uint64_t bytes) noexcept {
  if (bytes > parts_.geometry.slot_bytes || !has_room(lane, true)) return nullptr;
  lane.reservation = lane.out_slots + lane.next_slot * parts_.geometry.slot_bytes;
  lane.reserved_bytes = bytes;
  return lane.reservation;
}

template <typename Self>
void LinkBase<Self>::refuse_commit(Lane& lane) noexcept {
  lane.reservation = nullptr;
  end(TUTTI_PEER_FAILED, "this rank committed a message that it had not reserved", true);
}

template <typename Self>
uint64_t LinkBase<Self>::read_credit(Lane& lane) noexcept {
  const uint64_t value = lane.out->released.load(std::memory_order_seq_cst);
  if (value < lane.credit || value > lane.sent) {
    corrupt("its ring is corrupt: it released messages that were never sent");
    return lane.credit;
  }
  return lane.credit = value;
}

template <typename Self>
uint64_t LinkBase<Self>::released(uint32_t lane_number) noexcept {
  if (state_ != kOpen) return tell_of_end(), UINT64_MAX;
  if (lane_number >= parts_.geometry.lanes) return 0;
  Lane& lane = lanes_[lane_number];
  const uint64_t value = read_credit(lane);
  if (value < lane.sent) wait_for_credit(lane);
  return state_ == kOpen ? value : UINT64_MAX;
}

template <typename Self>
void LinkBase<Self>::ring_peer() noexcept {
  if (peer_doorbell_->sleeps.exchange(0, std::memory_order_seq_cst) == 0) return;
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the peer is awake anyhow.
  [[maybe_unused]] const ssize_t written = write(parts_.peer_doorbell.eventfd->get(), &one, sizeof one);
}

// ---- posted transfers

template <typename Self>
void LinkBase<Self>::activate(Lane& lane) {
  if (lane.active) return;
  parts_.attention->active.push_back(&lane);
  lane.active = true;
  active_lanes_++;
}

template <typename Self>
bool LinkBase<Self>::write_posted(Lane& lane, const PostedTransfer& send) noexcept {
  void* room = reserve_in(lane, send.bytes);
  if (!room) return false;
  if (send.bytes >= parts_.stream_bytes && send.bytes > kInlineBytes)
    stream_copy(static_cast<uint8_t*>(room), static_cast<const uint8_t*>(send.data), send.bytes);
  else if (send.bytes > 0)
    std::memcpy(room, send.data, send.bytes);
  commit_reservation(lane, send.bytes, send.mark);
  return true;
}

template <typename Self>
bool LinkBase<Self>::post(const tutti_transfer& transfer) {
  Lane& lane = lanes_[transfer.lane];
  const PostedTransfer posted{transfer.data, transfer.bytes, transfer.cookie, transfer.mark};
  if (transfer.kind == TUTTI_TRANSFER_RECV) {
    if (lane.receives.size() == kPostDepth) return false;
    activate(lane);
    lane.receives.push(posted);
    return true;
  }
  const bool first = lane.copied_sends == lane.sends.size();
  if (transfer.flags & TUTTI_TRANSFER_INLINE) return first && write_posted(lane, posted);
  if (lane.sends.size() == kPostDepth) return false;
  activate(lane);
  lane.sends.push(posted);
  if (first && write_posted(lane, posted)) lane.copied_sends++;
  return true;
}

template <typename Self>
uint32_t LinkBase<Self>::advance(Lane& lane, tutti_completion* completions, uint32_t capacity) {
  uint32_t n = 0;
  while (lane.copied_sends < lane.sends.size() && write_posted(lane, lane.sends[lane.copied_sends]))
    lane.copied_sends++;
  for (; n < capacity && lane.copied_sends > 0; lane.copied_sends--, lane.sends.pop())
    completions[n++] = completion(lane.sends[0], TUTTI_OK, lane.sends[0].bytes);
  while (n < capacity && !lane.receives.empty()) {
    const PostedTransfer& posted = lane.receives[0];
    uint64_t bytes;
    const void* message = receive_from(lane, bytes, posted.data, posted.bytes);
    if (!message) break;
    const bool fits = bytes == posted.bytes && lane.view_mark == posted.mark;
    if (fits && bytes > 0 && message != posted.data) std::memcpy(posted.data, message, bytes);
    release_view(lane);
    completions[n++] = completion(posted, fits ? TUTTI_OK : TUTTI_MISMATCH, bytes, lane.view_mark);
    lane.receives.pop();
  }
  if (state_ != kOpen) n += end_posted(lane, completions + n, capacity - n);
  if (lane.sends.empty() && lane.receives.empty()) {
    lane.active = false;
    active_lanes_--;
  }
  return n;
}

// Ends transfers that can never match. Sends that are copied have their completions first.
template <typename Self>
uint32_t LinkBase<Self>::end_posted(Lane& lane, tutti_completion* completions, uint32_t capacity) {
  uint32_t n = 0;
  for (; n < capacity && lane.copied_sends == 0 && !lane.sends.empty(); lane.sends.pop())
    completions[n++] = completion(lane.sends[0], end_status_, 0);
  for (; n < capacity && !lane.receives.empty(); lane.receives.pop())
    completions[n++] = completion(lane.receives[0], end_status_, 0);
  return n;
}

// ---- control messages

template <typename Self>
bool LinkBase<Self>::send_control(std::string_view message) {
  if (told_)
    throw error(end_status_, "{}: the link to rank {} has ended: {}", Self::format.transport, parts_.peer, why_);
  if (message.size() > kControlBytes)
    throw error(TUTTI_INVALID_ARGUMENT, "{}: a control message of {} bytes; at most {}", Self::format.transport,
                message.size(), kControlBytes);
  if (!has_control_room()) {
    waits_for_control_room_ = true;
    if (state_ == kGone) tell_of_end();  // there will be none
    return false;
  }
  ControlSlot& slot = control_out_->slots[controls_sent_ % kControlDepth];
  if (!message.empty()) std::memcpy(slot.data, message.data(), message.size());
  slot.bytes.store(static_cast<uint32_t>(message.size()), std::memory_order_relaxed);
  slot.sequence.store(static_cast<uint32_t>(++controls_sent_), std::memory_order_release);
  peer_doorbell_->control(parts_.rank / 64).fetch_or(uint64_t{1} << parts_.rank % 64, std::memory_order_seq_cst);
  wake_peer();
  return true;
}

template <typename Self>
bool LinkBase<Self>::has_control_room() noexcept {
  const uint64_t released = control_out_->released.load(std::memory_order_seq_cst);
  if (released > controls_sent_) corrupt("its ring is corrupt: it released control messages that were never sent");
  return state_ != kEnded && controls_sent_ - released < kControlDepth;
}

template <typename Self>
bool LinkBase<Self>::receive_control(uint8_t* to, uint64_t& bytes) {
  if (state_ == kEnded) return false;
  ControlSlot& slot = control_in_->slots[controls_received_ % kControlDepth];
  if (slot.sequence.load(std::memory_order_acquire) != static_cast<uint32_t>(controls_received_ + 1)) return false;
  bytes = slot.bytes.load(std::memory_order_relaxed);
  if (bytes > kControlBytes) {
    corrupt("its ring is corrupt: a control message of an impossible size");
    return false;
  }
  std::memcpy(to, slot.data, bytes);
  control_in_->released.store(++controls_received_, std::memory_order_seq_cst);
  wake_peer();
  return true;
}

// ---- sleeping

template <typename Self>
bool LinkBase<Self>::has_news() noexcept {
  if (state_ == kEnded) return active_lanes_ > 0;
  if (self().waits_for_line() || (state_ == kGone && active_lanes_ > 0)) return true;
  bool news = waits_for_control_room_ && has_control_room();
  if (news) waits_for_control_room_ = false;
  for (uint32_t i = 0; i < parts_.geometry.lanes; i++) {
    Lane& lane = lanes_[i];
    if (lane.copied_sends > 0) return true;
    // A message that no receive takes yet, for example an early one of a later operation, is reported once: else the
    // caller could not sleep until it is taken.
    if (!lane.view && (lane.told != lane.received + 1 || !lane.receives.empty()) &&
        lane.in->descriptors[lane.received % kDepth].sequence.load(std::memory_order_seq_cst) ==
            static_cast<uint32_t>(lane.received + 1)) {
      lane.told = lane.received + 1;
      news = true;
    }
    if (lane.waits_for_credit && lane.out->released.load(std::memory_order_seq_cst) != lane.credit_told) {
      // Room is also reported once, until the caller asks again and finds none.
      lane.waits_for_credit = false;
      news = true;
    }
    if (lane.sends.size() > 0 && has_room(lane, lane.sends[0].bytes > kInlineBytes)) return true;
  }
  return news;
}

// ---- the line, and the end

template <typename Self>
void LinkBase<Self>::read_line() noexcept {
  try {
    while (parts_.line) {
      Packet packet = parts_.line.receive();
      if (packet.outcome == Packet::kNothing) return;
      take(packet);
    }
  } catch (const std::exception& e) {
    end(TUTTI_PEER_FAILED, e.what(), true);
  }
}

template <typename Self>
void LinkBase<Self>::take(Packet& packet) {
  if (packet.outcome == Packet::kClosed) {
    parts_.line.close();
    let_go_ = true;
    return peer_gone("its process has ended or closed the connection", true);
  }
  packet.check_whole();
  if (const auto goodbye = packet.as<Goodbye>()) {
    if (goodbye->gave_up) return peer_gone("it gave this rank up", true);
    let_go_ = true;
    // An orderly end is reported only where the caller still expects something.
    return peer_gone("it has closed its endpoint", active_lanes_ > 0);
  }
  if (!self().handle(packet))
    throw error(TUTTI_MISMATCH, "it sent a packet that no rank sends ({} bytes)", packet.bytes);
}

template <typename Self>
void LinkBase<Self>::write_line() noexcept {
  if (goodbye_waits_) goodbye_waits_ = parts_.line.send(Goodbye{.gave_up = 1}) == Socket::kFull;
  self().flush();
}

template <typename Self>
void LinkBase<Self>::peer_gone(std::string_view why, bool tell) noexcept {
  if (state_ != kOpen) return;
  state_ = kGone;
  try {
    why_ = why;
  } catch (...) {
    why_.clear();
  }
  if (tell) tell_of_end();
}

template <typename Self>
void LinkBase<Self>::tell_of_end() noexcept {
  if (failing_ || told_) return;
  failing_ = true;
  parts_.attention->failing.push_back(&self());  // has room for every link
}

template <typename Self>
void LinkBase<Self>::end(tutti_status status, std::string_view why, bool tell) noexcept {
  if (state_ == kEnded) return;
  state_ = kEnded;
  end_status_ = status;
  try {
    why_ = why;
  } catch (...) {
    why_.clear();
  }
  if (status == TUTTI_PEER_FAILED && parts_.line)
    goodbye_waits_ = parts_.line.send(Goodbye{.gave_up = 1}) == Socket::kFull;
  if (tell)
    tell_of_end();
  else
    told_ = true;
}

}  // namespace local
}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
