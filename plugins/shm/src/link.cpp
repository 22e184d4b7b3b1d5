// SPDX-License-Identifier: Apache-2.0
#include "link.hpp"

#include <sys/eventfd.h>

#include <algorithm>
#include <tutti/sdk/plugin.hpp>

namespace tutti::shm {

Link::Link(Parts parts)
    : geometry_(parts.geometry),
      lanes_(std::make_unique<Lane[]>(parts.geometry.lanes)),
      peer_doorbell_(&parts.peer_doorbell->words()),
      rank_(parts.rank),
      peer_(parts.peer),
      stream_bytes_(parts.stream_bytes),
      segment_(std::move(parts.segment)),
      shared_doorbell_(std::move(parts.peer_doorbell)),
      socket_(std::move(parts.socket)),
      domain_(parts.domain),
      attention_(parts.attention),
      removals_seen_(domain_->removals()) {
  const uint32_t outward = rank_ < peer_ ? 0 : 1;
  const Direction out(segment_->data(), geometry_, outward), in(segment_->data(), geometry_, 1 - outward);
  control_out_ = out.control();
  control_in_ = in.control();
  for (uint32_t i = 0; i < geometry_.lanes; i++) {
    Lane& lane = lanes_[i];
    lane.link = this;
    lane.out = out.lane(i);
    lane.out_slots = out.slots(i);
    lane.in = in.lane(i);
    lane.in_slots = in.slots(i);
  }
}

Link::~Link() = default;

// ---- view/1, away from the hot path

const void* Link::receive_large(Lane& lane, Descriptor& d, uint64_t& bytes) noexcept {
  const uint64_t size = d.bytes.load(std::memory_order_relaxed);
  const uint32_t kind = d.kind.load(std::memory_order_relaxed);
  if (kind == kData && size <= geometry_.slot_bytes) {
    lane.view = lane.in_slots + lane.in_slot * geometry_.slot_bytes;
    lane.view_in_slot = true;
  } else if (kind == kRegion && size <= geometry_.slot_bytes) {
    lane.view = receive_region(lane, d, size);
  } else {
    end(TUTTI_PEER_FAILED, "its ring is corrupt: a message of an impossible kind or size", true);
  }
  lane.view_bytes = bytes = size;
  return lane.view;
}

const void* Link::receive_region(Lane& lane, const Descriptor& d, uint64_t size) noexcept {
  RegionReference reference;
  std::memcpy(&reference, d.payload, sizeof reference);
  ImportedRegions::Import* import = imports_.find(reference.id, reference.generation);
  if (!import) {  // the offer was sent before the message, so it is in the socket
    read_socket();
    import = imports_.find(reference.id, reference.generation);
  }
  if (!import || size > import->mapping->bytes() || reference.offset > import->mapping->bytes() - size) {
    end(TUTTI_PEER_FAILED, "its ring is corrupt: a message outside of every region that it offered", true);
    return nullptr;
  }
  import->views++;
  lane.view_region = import;
  return import->mapping->data() + reference.offset;
}

void* Link::reserve_large(Lane& lane, uint64_t bytes) noexcept {
  if (bytes > geometry_.slot_bytes || !has_room(lane, true)) return nullptr;
  lane.reservation = lane.out_slots + lane.next_slot * geometry_.slot_bytes;
  lane.reserved_bytes = bytes;
  return lane.reservation;
}

void Link::refuse_commit(Lane& lane) noexcept {
  lane.reservation = nullptr;
  end(TUTTI_PEER_FAILED, "this rank committed a message that it had not reserved", true);
}

uint64_t Link::read_credit(Lane& lane) noexcept {
  const uint64_t value = lane.out->released.load(std::memory_order_seq_cst);
  if (value < lane.credit || value > lane.sent) {
    end(TUTTI_PEER_FAILED, "its ring is corrupt: it released messages that were never sent", true);
    return lane.credit;
  }
  return lane.credit = value;
}

tutti_status Link::send_region(uint32_t lane_number, tutti_region* handle, uint64_t offset, uint64_t bytes,
                               uint64_t& ticket) noexcept {
  if (lane_number >= geometry_.lanes || !handle) return TUTTI_INVALID_ARGUMENT;
  Lane& lane = lanes_[lane_number];
  const Region& region = *reinterpret_cast<const Region*>(handle);
  if (!region.file) return TUTTI_NOT_SUPPORTED;
  if (bytes > geometry_.slot_bytes || bytes > region.bytes || offset > region.bytes - bytes || lane.reservation)
    return TUTTI_INVALID_ARGUMENT;
  if (!has_room(lane, false)) return state_ == kOpen ? TUTTI_AGAIN : end_status_;
  if ((region.id >= offered_.size() || offered_[region.id] != region.generation) && !offer_region(region))
    return state_ == kOpen ? TUTTI_AGAIN : end_status_;
  Descriptor& d = lane.out->descriptors[lane.sent % kDepth];
  const RegionReference reference{region.id, region.generation, offset};
  std::memcpy(d.payload, &reference, sizeof reference);
  d.bytes.store(bytes, std::memory_order_relaxed);
  d.kind.store(kRegion, std::memory_order_relaxed);
  order_stores();
  ticket = lane.sent;
  wait_for_credit(lane);
  publish(lane, d);
  return TUTTI_OK;
}

bool Link::offer_region(const Region& region) noexcept {
  try {
    if (region.id >= offered_.size()) offered_.resize(region.id + 1);
  } catch (const std::bad_alloc&) {
    return false;
  }
  RegionOffer offer;
  offer.id = region.id;
  offer.generation = region.generation;
  offer.offset = region.file_offset;
  offer.bytes = region.bytes;
  const Socket::Sent sent = socket_.send(offer, {region.file.get()});
  socket_full_ = sent == Socket::kFull;
  if (sent == Socket::kGone) attention_->sockets = true;  // its end of file is there to be read
  if (sent == Socket::kSent) offered_[region.id] = region.generation;
  return sent == Socket::kSent;
}

void Link::withdraw_regions() noexcept {
  const uint64_t removals = domain_->removals();
  if (removals == removals_seen_ || state_ != kOpen) return;
  for (uint32_t id = 0; id < offered_.size(); id++) {
    if (offered_[id] == 0 || domain_->generation(id) == offered_[id]) continue;
    RegionGone gone;
    gone.id = id;
    gone.generation = offered_[id];
    if (socket_.send(gone) == Socket::kFull) return;  // the rest at the next call
    offered_[id] = 0;
  }
  removals_seen_ = removals;
}

uint64_t Link::released(uint32_t lane_number) noexcept {
  if (state_ != kOpen) return tell_of_end(), UINT64_MAX;
  if (lane_number >= geometry_.lanes) return 0;
  Lane& lane = lanes_[lane_number];
  const uint64_t value = read_credit(lane);
  if (value < lane.sent) wait_for_credit(lane);
  return state_ == kOpen ? value : UINT64_MAX;
}

void Link::ring_peer() noexcept {
  if (peer_doorbell_->sleeps.exchange(0, std::memory_order_seq_cst) == 0) return;
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the peer is awake anyhow.
  [[maybe_unused]] const ssize_t written = write(shared_doorbell_->eventfd.get(), &one, sizeof one);
}

// ---- posted transfers

void Link::activate(Lane& lane) {
  if (lane.active) return;
  attention_->active.push_back(&lane);
  lane.active = true;
  active_lanes_++;
}

bool Link::write_posted(Lane& lane, const PostedTransfer& send) noexcept {
  void* room = reserve_in(lane, send.bytes);
  if (!room) return false;
  if (send.bytes >= stream_bytes_ && send.bytes > kInlineBytes)
    stream_copy(static_cast<uint8_t*>(room), static_cast<const uint8_t*>(send.data), send.bytes);
  else if (send.bytes > 0)
    std::memcpy(room, send.data, send.bytes);
  commit_reservation(lane, send.bytes);
  return true;
}

bool Link::post(const tutti_transfer& transfer) {
  Lane& lane = lanes_[transfer.lane];
  const PostedTransfer posted{transfer.data, transfer.bytes, transfer.cookie};
  if (transfer.kind == TUTTI_TRANSFER_RECV) {
    if (lane.receives.full()) return false;
    activate(lane);
    lane.receives.push(posted);
    return true;
  }
  const bool first = lane.copied_sends == lane.sends.size();
  if (transfer.flags & TUTTI_TRANSFER_INLINE) return first && write_posted(lane, posted);
  if (lane.sends.full()) return false;
  activate(lane);
  lane.sends.push(posted);
  if (first && write_posted(lane, posted)) lane.copied_sends++;
  return true;
}

namespace {
tutti_completion transfer_completion(uint32_t peer, const PostedTransfer& posted, tutti_status status, uint64_t bytes) {
  tutti_completion completion{};
  completion.kind = TUTTI_COMPLETION_TRANSFER;
  completion.status = status;
  completion.peer = peer;
  completion.cookie = posted.cookie;
  completion.bytes = bytes;
  return completion;
}
}  // namespace

uint32_t Link::advance(Lane& lane, tutti_completion* completions, uint32_t capacity) {
  uint32_t n = 0;
  while (lane.copied_sends < lane.sends.size() && write_posted(lane, lane.sends[lane.copied_sends]))
    lane.copied_sends++;
  for (; n < capacity && lane.copied_sends > 0; lane.copied_sends--, lane.sends.pop())
    completions[n++] = transfer_completion(peer_, lane.sends[0], TUTTI_OK, lane.sends[0].bytes);
  while (n < capacity && !lane.receives.empty()) {
    const PostedTransfer& posted = lane.receives[0];
    uint64_t bytes;
    const void* message = receive_from(lane, bytes);
    if (!message) break;
    const bool fits = bytes == posted.bytes;
    if (fits && bytes > 0) std::memcpy(posted.data, message, bytes);
    release_view(lane);
    completions[n++] = transfer_completion(peer_, posted, fits ? TUTTI_OK : TUTTI_MISMATCH, bytes);
    lane.receives.pop();
  }
  if (state_ != kOpen) {
    // What is left can never be met. (The copied sends were told above, unless there was no room for all.)
    for (; n < capacity && lane.copied_sends == 0 && !lane.sends.empty(); lane.sends.pop())
      completions[n++] = transfer_completion(peer_, lane.sends[0], end_status_, 0);
    for (; n < capacity && !lane.receives.empty(); lane.receives.pop())
      completions[n++] = transfer_completion(peer_, lane.receives[0], end_status_, 0);
  }
  if (lane.sends.empty() && lane.receives.empty()) {
    lane.active = false;
    active_lanes_--;
  }
  return n;
}

// ---- control messages

bool Link::send_control(std::string_view message) {
  if (state_ != kOpen)
    throw sdk::Error(end_status_, "shm: the link to rank " + std::to_string(peer_) + " has ended: " + why_);
  if (message.size() > kControlBytes)
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, "shm: a control message of " + std::to_string(message.size()) +
                                                 " bytes; at most " + std::to_string(kControlBytes));
  const uint64_t released = control_out_->released.load(std::memory_order_acquire);
  if (released > controls_sent_) {
    end(TUTTI_PEER_FAILED, "its ring is corrupt: it released control messages that were never sent", true);
    throw sdk::Error(TUTTI_PEER_FAILED, "shm: rank " + std::to_string(peer_) + ": " + why_);
  }
  if (controls_sent_ - released >= kControlDepth) return false;
  ControlSlot& slot = control_out_->slots[controls_sent_ % kControlDepth];
  if (!message.empty()) std::memcpy(slot.data, message.data(), message.size());
  slot.bytes.store(static_cast<uint32_t>(message.size()), std::memory_order_relaxed);
  slot.sequence.store(static_cast<uint32_t>(++controls_sent_), std::memory_order_release);
  peer_doorbell_->control(rank_ / 64).fetch_or(uint64_t{1} << rank_ % 64, std::memory_order_seq_cst);
  wake_peer();
  return true;
}

bool Link::receive_control(uint8_t* to, uint64_t& bytes) {
  if (state_ == kEnded) return false;
  ControlSlot& slot = control_in_->slots[controls_received_ % kControlDepth];
  if (slot.sequence.load(std::memory_order_acquire) != static_cast<uint32_t>(controls_received_ + 1)) return false;
  bytes = slot.bytes.load(std::memory_order_relaxed);
  if (bytes > kControlBytes) {
    end(TUTTI_PEER_FAILED, "its ring is corrupt: a control message of an impossible size", true);
    return false;
  }
  std::memcpy(to, slot.data, bytes);
  control_in_->released.store(++controls_received_, std::memory_order_seq_cst);
  wake_peer();
  return true;
}

// ---- sleeping

bool Link::has_news() noexcept {
  if (state_ == kEnded) return active_lanes_ > 0;
  if (socket_full_ || (state_ == kGone && active_lanes_ > 0)) return true;
  bool news = false;
  for (uint32_t i = 0; i < geometry_.lanes; i++) {
    Lane& lane = lanes_[i];
    if (lane.copied_sends > 0) return true;
    // A message that nobody asks for, an early one of a later operation say, is told of once: else nobody could sleep
    // before it is taken.
    if (!lane.view && (lane.told != lane.received + 1 || !lane.receives.empty()) &&
        lane.in->descriptors[lane.received % kDepth].sequence.load(std::memory_order_seq_cst) ==
            static_cast<uint32_t>(lane.received + 1)) {
      lane.told = lane.received + 1;
      news = true;
    }
    if (lane.waits_for_credit && lane.out->released.load(std::memory_order_seq_cst) != lane.credit_told) {
      // Likewise: told once, until somebody asks again and finds no room.
      lane.waits_for_credit = false;
      news = true;
    }
    if (lane.sends.size() > 0 && has_room(lane, lane.sends[0].bytes > kInlineBytes)) return true;
  }
  return news;
}

// ---- the socket, and the end

void Link::read_socket() noexcept {
  try {
    while (socket_) {
      Packet packet = socket_.receive();
      if (packet.outcome == Packet::kNothing) return;
      handle(packet);
    }
  } catch (const std::exception& e) {
    socket_.close();
    try {
      why_ = e.what();
    } catch (...) {
      why_.clear();
    }
    end(TUTTI_PEER_FAILED, nullptr, true);
  }
}

void Link::handle(Packet& packet) {
  if (packet.outcome == Packet::kClosed) return peer_gone("its process has ended or closed the connection", true);
  if (const auto offer = packet.as<RegionOffer>(1))
    return imports_.add(offer->id, offer->generation, packet.descriptors[0], offer->offset, offer->bytes);
  if (const auto gone = packet.as<RegionGone>()) return imports_.remove(gone->id, gone->generation);
  if (const auto goodbye = packet.as<Goodbye>()) {
    if (goodbye->gave_up) return peer_gone("it gave this rank up", true);
    // An orderly end is told only to who still expects something.
    return peer_gone("it has closed its endpoint", active_lanes_ > 0);
  }
  throw sdk::Error(TUTTI_MISMATCH, "it sent a packet that no rank sends (" + std::to_string(packet.bytes) + " bytes)");
}

void Link::peer_gone(std::string why, bool tell) {
  socket_.close();
  if (state_ != kOpen) return;
  state_ = kGone;
  why_ = std::move(why);
  if (tell) tell_of_end();
}

void Link::tell_of_end() noexcept {
  if (failing_ || told_) return;
  failing_ = true;
  attention_->failing.push_back(this);  // has room for every link
}

void Link::end(tutti_status status, const char* why, bool tell) noexcept {
  if (state_ == kEnded) return;
  state_ = kEnded;
  end_status_ = status;
  try {
    if (why) why_ = why;
  } catch (...) {
    why_.clear();
  }
  if (tell)
    tell_of_end();
  else
    told_ = true;
}

void Link::say_goodbye(bool gave_up) noexcept {
  if (!socket_) return;
  Goodbye goodbye;
  goodbye.gave_up = gave_up;
  socket_.send(goodbye);
  socket_.close();
}

}  // namespace tutti::shm
