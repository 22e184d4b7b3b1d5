// SPDX-License-Identifier: Apache-2.0
//
// One rank's connection to one peer: its lanes, its control ring, and the socket that tells when the peer is gone.
// Link's functions of view/1 are the hot path: no lock, clock, system call or error store.
#pragma once

#include <tutti/plugin/transport.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nontemporal.hpp"
#include "peer_doorbell.hpp"
#include "region.hpp"
#include "ring.hpp"
#include "wire.hpp"

namespace tutti::shm {

class Link;

inline constexpr uint32_t kPostDepth = 64;  // posted sends and posted receives per lane, each

// A bounded queue in posting order; its memory comes with the first use.
template <typename T, uint32_t Capacity>
class PostQueue {
 public:
  bool empty() const { return first_ == last_; }
  bool full() const { return last_ - first_ == Capacity; }
  uint32_t size() const { return last_ - first_; }
  T& operator[](uint32_t i) { return items_[(first_ + i) % Capacity]; }
  void push(const T& item) {
    if (!items_) items_ = std::make_unique<T[]>(Capacity);
    items_[last_++ % Capacity] = item;
  }
  void pop() { first_++; }

 private:
  std::unique_ptr<T[]> items_;
  uint32_t first_ = 0, last_ = 0;
  static_assert((Capacity & (Capacity - 1)) == 0);
};

struct PostedTransfer {
  void* data;
  uint64_t bytes;
  uint64_t cookie;
};

// This rank's private half of a lane.
struct alignas(64) Lane {
  // Sending.
  LaneRing* out = nullptr;
  uint64_t sent = 0;
  uint64_t credit = 0;  // the peer's `released`, as last read
  uint8_t* reservation = nullptr;
  uint64_t reserved_bytes = 0;
  uint32_t next_slot = 0;
  bool waits_for_credit = false;          // the caller was told "no room", or may wait for released()
  uint64_t credit_told = 0;               // ... and `credit` at that time
  uint64_t slot_free_at[kMaxSlots] = {};  // the value of `released` with which the slot's last message is done
  uint8_t* out_slots = nullptr;
  alignas(16) uint8_t staging[kInlineBytes];  // a small message until commit, which then touches the shared line once

  // Receiving.
  LaneRing* in = nullptr;
  uint64_t received = 0;  // messages released to the peer
  const void* view = nullptr;
  uint64_t view_bytes = 0;
  ImportedRegions::Import* view_region = nullptr;
  uint32_t in_slot = 0;
  bool view_in_slot = false;
  uint8_t* in_slots = nullptr;
  uint64_t told = 0;  // arm() has spoken of this message

  // Posted.
  Link* link = nullptr;
  bool active = false;        // in Attention::active
  uint32_t copied_sends = 0;  // so many of the first posted sends are on their way; their completions are to be told
  PostQueue<PostedTransfer, kPostDepth> sends;
  PostQueue<PostedTransfer, kPostDepth> receives;
};

// What an endpoint's progress must look at; its links add themselves.
struct Attention {
  std::vector<Lane*> active;   // lanes with posted transfers
  std::vector<Link*> failing;  // links whose end was not told yet; has room for all
  bool sockets = false;        // look at the sockets in the next progress
};

class Link {
 public:
  enum State : uint8_t {
    kOpen,
    kGone,  // the peer writes no more; what it has sent can still be received
    kEnded  // nothing moves any more: given up, aborted or found corrupt
  };
  struct Parts {
    uint32_t rank, peer;
    Geometry geometry;
    uint64_t stream_bytes;
    std::shared_ptr<Mapping> segment;
    std::shared_ptr<PeerDoorbell> peer_doorbell;
    Socket socket;
    Domain* domain;
    Attention* attention;
  };
  explicit Link(Parts parts);
  ~Link();

  // view/1.
  const void* try_receive(uint32_t lane, uint64_t& bytes) noexcept {
    if (lane >= geometry_.lanes) [[unlikely]]
      return nullptr;
    return receive_from(lanes_[lane], bytes);
  }
  void release(uint32_t lane) noexcept {
    if (lane < geometry_.lanes) release_view(lanes_[lane]);
  }
  void* try_reserve(uint32_t lane, uint64_t bytes) noexcept {
    if (lane >= geometry_.lanes) [[unlikely]]
      return nullptr;
    return reserve_in(lanes_[lane], bytes);
  }
  void commit(uint32_t lane, uint64_t bytes) noexcept {
    if (lane < geometry_.lanes) commit_reservation(lanes_[lane], bytes);
  }
  tutti_status send_region(uint32_t lane, tutti_region* region, uint64_t offset, uint64_t bytes,
                           uint64_t& ticket) noexcept;
  uint64_t released(uint32_t lane) noexcept;

  // transport/1. false: no room now. Throws sdk::Error when the link has ended.
  bool send_control(std::string_view message);
  // Takes a checked transfer into its lane; false: refused now.
  bool post(const tutti_transfer& transfer);
  // Advances a lane's posted transfers; how many completions were written. Takes the lane off `active` by clearing its
  // flag.
  uint32_t advance(Lane& lane, tutti_completion* completions, uint32_t capacity);
  // The next control message, copied to `to`: false: none.
  bool receive_control(uint8_t* to, uint64_t& bytes);
  // Is there something of this link that the caller was not told of? For arm(), after the doorbell's word was set.
  bool has_news() noexcept;

  // Reads the socket to its end for now.
  void read_socket() noexcept;
  // Tells the peer of deregistered regions.
  void withdraw_regions() noexcept;
  // Ends the link. A static text says why; TUTTI_ABORTED and a peer given up by the caller are not told as events.
  void end(tutti_status status, const char* why, bool tell) noexcept;
  void say_goodbye(bool gave_up) noexcept;

  uint32_t peer() const { return peer_; }
  State state() const { return state_; }
  tutti_status end_status() const { return end_status_; }
  const char* why() const { return why_.c_str(); }
  bool told() const { return told_; }
  void set_told() { told_ = true; }
  uint32_t active_lanes() const { return active_lanes_; }
  int socket() const { return socket_.get(); }
  const Geometry& geometry() const { return geometry_; }

 private:
  const void* receive_from(Lane& lane, uint64_t& bytes) noexcept {
    if (lane.view) {
      bytes = lane.view_bytes;
      return lane.view;
    }
    if (state_ == kEnded) [[unlikely]]
      return nullptr;
    Descriptor& d = lane.in->descriptors[lane.received % kDepth];
    if (d.sequence.load(std::memory_order_acquire) != static_cast<uint32_t>(lane.received + 1)) {
      if (state_ == kGone) [[unlikely]]
        tell_of_end();
      return nullptr;
    }
    const uint64_t size = d.bytes.load(std::memory_order_relaxed);
    if (d.kind.load(std::memory_order_relaxed) == kInline && size <= kInlineBytes) [[likely]] {
      lane.view = d.payload;
      lane.view_bytes = bytes = size;
      return lane.view;
    }
    return receive_large(lane, d, bytes);
  }

  void release_view(Lane& lane) noexcept {
    if (!lane.view) [[unlikely]]
      return;
    lane.view = nullptr;
    if (lane.view_region) {
      lane.view_region->views--;
      lane.view_region = nullptr;
    } else if (lane.view_in_slot) {
      lane.view_in_slot = false;
      lane.in_slot = lane.in_slot + 1 == geometry_.slots ? 0 : lane.in_slot + 1;
    }
    lane.in->released.store(++lane.received, std::memory_order_seq_cst);
    wake_peer();
  }

  void* reserve_in(Lane& lane, uint64_t bytes) noexcept {
    if (lane.reservation) return lane.reservation;
    if (bytes <= kInlineBytes) [[likely]] {
      if (!has_room(lane, false)) return nullptr;
      lane.reservation = lane.staging;
      lane.reserved_bytes = bytes;
      return lane.reservation;
    }
    return reserve_large(lane, bytes);
  }

  void commit_reservation(Lane& lane, uint64_t bytes) noexcept {
    if (!lane.reservation || bytes > lane.reserved_bytes) [[unlikely]]
      return refuse_commit(lane);
    Descriptor& d = lane.out->descriptors[lane.sent % kDepth];
    d.bytes.store(bytes, std::memory_order_relaxed);
    if (lane.reservation == lane.staging) [[likely]] {
      d.kind.store(kInline, std::memory_order_relaxed);
      std::memcpy(d.payload, lane.staging, kInlineBytes);
    } else {
      order_stores();
      d.kind.store(kData, std::memory_order_relaxed);
      lane.slot_free_at[lane.next_slot] = lane.sent + 1;
      lane.next_slot = lane.next_slot + 1 == geometry_.slots ? 0 : lane.next_slot + 1;
    }
    lane.reservation = nullptr;
    publish(lane, d);
  }

  // Sequentially consistent, hence on x86 a locked instruction: it also orders non-temporal stores of the caller to
  // other memory.
  void publish(Lane& lane, Descriptor& d) noexcept {
    d.sequence.store(static_cast<uint32_t>(++lane.sent), std::memory_order_seq_cst);
    wake_peer();
  }

  bool has_room(Lane& lane, bool in_slot) noexcept {
    if (state_ != kOpen) [[unlikely]]
      return tell_of_end(), false;
    uint64_t needed = lane.sent < kDepth ? 0 : lane.sent - kDepth + 1;
    if (in_slot && lane.slot_free_at[lane.next_slot] > needed) needed = lane.slot_free_at[lane.next_slot];
    return lane.credit >= needed || read_credit(lane) >= needed || (wait_for_credit(lane), false);
  }

  void wake_peer() noexcept {
    if (peer_doorbell_->sleeps.load(std::memory_order_seq_cst)) [[unlikely]]
      ring_peer();
  }

  static void wait_for_credit(Lane& lane) noexcept {
    if (lane.waits_for_credit) return;
    lane.waits_for_credit = true;
    lane.credit_told = lane.credit;
  }

  const void* receive_large(Lane& lane, Descriptor& d, uint64_t& bytes) noexcept;
  const void* receive_region(Lane& lane, const Descriptor& d, uint64_t size) noexcept;
  void* reserve_large(Lane& lane, uint64_t bytes) noexcept;
  void refuse_commit(Lane& lane) noexcept;
  uint64_t read_credit(Lane& lane) noexcept;
  bool offer_region(const Region& region) noexcept;
  void ring_peer() noexcept;
  void tell_of_end() noexcept;
  void peer_gone(std::string why, bool tell);
  void handle(Packet& packet);
  void activate(Lane& lane);
  bool write_posted(Lane& lane, const PostedTransfer& send) noexcept;

  // Hot.
  State state_ = kOpen;
  Geometry geometry_;
  std::unique_ptr<Lane[]> lanes_;
  Doorbell* peer_doorbell_;  // in shared_doorbell_

  uint32_t rank_, peer_;
  uint64_t stream_bytes_;
  std::shared_ptr<Mapping> segment_;
  std::shared_ptr<PeerDoorbell> shared_doorbell_;
  Socket socket_;
  Domain* domain_;
  Attention* attention_;
  ControlRing* control_out_;
  ControlRing* control_in_;
  uint64_t controls_sent_ = 0, controls_received_ = 0;
  uint32_t active_lanes_ = 0;
  tutti_status end_status_ = TUTTI_PEER_FAILED;
  std::string why_;
  bool failing_ = false;           // in Attention::failing
  bool told_ = false;              // the end was told, or is not to be
  bool socket_full_ = false;       // an offer waits for the peer to read its socket
  std::vector<uint32_t> offered_;  // by region id: the generation that the peer knows, 0 none
  uint64_t removals_seen_ = 0;
  ImportedRegions imports_;
};

}  // namespace tutti::shm
