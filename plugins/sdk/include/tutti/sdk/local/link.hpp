// SPDX-License-Identifier: Apache-2.0
//
// One rank's connection to one peer over a segment (segment.hpp): its lanes, its control ring, and the line that
// tells when the peer is gone. A transport derives its class from this one:
//
//   class Link : public LinkBase<Link> {
//     using Domain = ...;                            // endpoint.hpp says what it has
//     static constexpr PairFormat format{"mine", 0x454e494d, 1};
//     Link(Parts parts, Domain& domain);
//     bool handle(Packet& packet);                   // a packet of the transport's own; false: it knows no such packet
//     void flush() noexcept;                         // sends what waits for room on the line
//     bool waits_for_line() const;                   // does something wait?
//     // Optional: memory of a kReference message, readable until its release. Bytes that are fetched go to `room`,
//     // unless it is nullptr.
//     Reference find(const uint8_t* payload, uint64_t bytes, uint32_t lane, void* room) noexcept;
//   };
//
// The functions of view/1 are the hot path: no lock, clock, system call, indirect call or error store.
#pragma once

#include <sys/eventfd.h>
#include <tutti/plugin/transport.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <tutti/sdk/descriptors.hpp>
#include <tutti/sdk/local/host_barrier.hpp>
#include <tutti/sdk/local/memory_file.hpp>
#include <tutti/sdk/local/nontemporal.hpp>
#include <tutti/sdk/local/segment.hpp>
#include <tutti/sdk/local/shared_by_key.hpp>
#include <tutti/sdk/local/station.hpp>
#include <tutti/sdk/pair_messages.hpp>
#include <tutti/sdk/ring.hpp>
#include <tutti/sdk/words.hpp>
#include <vector>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {
namespace local {

inline constexpr uint32_t kPostDepth = 64;  // posted sends and posted receives per lane, each

// Packets from a link's end to the other. The numbers of a transport's own packets begin behind it.
struct Goodbye {
  static constexpr uint32_t number = 2;
  uint32_t kind = number;
  uint32_t gave_up = 0;  // 0: the endpoint is closed; 1: the speaker gave the listener up
};
inline constexpr uint32_t kFirstOwnPacket = 16;

// A peer's doorbell as this process sees it: its page, and its station's eventfd that wakes it.
struct PeerDoorbell {
  std::shared_ptr<Mapping> page;
  std::shared_ptr<FileDescriptor> eventfd;
  Doorbell& words() const { return *reinterpret_cast<Doorbell*>(page->data()); }
};
// All of this process's ranks share one eventfd of a station: n ranks of a process that all know each other hold n
// eventfds, not n * n. The first that came from a station is kept. [any thread]
inline std::shared_ptr<FileDescriptor> share_eventfd(const Token& station, FileDescriptor eventfd) {
  static auto& eventfds = *new SharedByKey<Token, FileDescriptor>;  // threads may outlive static destruction
  return eventfds.get(
      station, [](const FileDescriptor&) { return true; },
      [&] { return std::make_unique<FileDescriptor>(std::move(eventfd)); });
}

struct PostedTransfer {
  void* data;
  uint64_t bytes;
  uint64_t cookie;
  uint32_t mark;
};

// Where the bytes of a kReference message are, and the count that its release decreases.
struct Reference {
  const void* data = nullptr;  // nullptr: the link has ended
  uint32_t* views = nullptr;   // messages there that are being read; nullptr: nobody counts
};

// This rank's private half of a lane.
template <typename Link>
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
  uint32_t mark = 0;                      // of what the caller sends by view
  uint64_t slot_free_at[kMaxSlots] = {};  // the value of `released` with which the slot's last message is done
  uint8_t* out_slots = nullptr;
  alignas(16) uint8_t staging[kInlineBytes];  // a small message until commit, which then touches the shared line once

  // Receiving.
  LaneRing* in = nullptr;
  uint64_t received = 0;  // messages released to the peer
  const void* view = nullptr;
  uint64_t view_bytes = 0;
  uint32_t view_mark = 0;
  uint32_t* referred = nullptr;  // of a kReference message: Reference::views
  uint32_t in_slot = 0;
  bool view_in_slot = false;
  uint8_t* in_slots = nullptr;
  uint64_t told = 0;  // arm() has spoken of this message

  // Posted, at most kPostDepth each.
  Link* link = nullptr;
  bool active = false;        // in Attention::active
  uint32_t copied_sends = 0;  // so many of the first posted sends are on their way; their completions are to be told
  Ring<PostedTransfer> sends;
  Ring<PostedTransfer> receives;
};

// The links that an endpoint's progress must look at; its links add themselves.
template <typename Link>
struct Attention {
  std::vector<Lane<Link>*> active;  // lanes with posted transfers
  std::vector<Link*> failing;       // links whose end was not told yet; has room for all
  bool lines = false;               // look at the lines in the next progress
};

template <typename Self>
class LinkBase {
 public:
  using Lane = local::Lane<Self>;
  enum State : uint8_t {
    kOpen,
    kGone,  // the peer writes no more; what it has sent can still be received
    kEnded  // nothing moves any more: given up, aborted or found corrupt
  };
  struct Parts {
    Geometry geometry;
    uint32_t rank, peer;
    uint64_t stream_bytes;  // posted sends of at least so many bytes are copied with non-temporal stores
    uint64_t first;         // the number of the first message of each lane, and of the first control message
    std::shared_ptr<Mapping> segment;
    PeerDoorbell peer_doorbell;
    Line line;
    Attention<Self>* attention;
  };

  // view/1.
  const void* try_receive(uint32_t lane, uint64_t& bytes) noexcept {
    if (lane >= parts_.geometry.lanes) [[unlikely]]
      return nullptr;
    return receive_from(lanes_[lane], bytes);
  }
  const void* try_receive_into(uint32_t lane, void* room, uint64_t& bytes) noexcept {
    if (lane >= parts_.geometry.lanes) [[unlikely]]
      return nullptr;
    return receive_from(lanes_[lane], bytes, room, bytes);
  }
  void release(uint32_t lane) noexcept {
    if (lane < parts_.geometry.lanes) release_view(lanes_[lane]);
  }
  void* try_reserve(uint32_t lane, uint64_t bytes) noexcept {
    if (lane >= parts_.geometry.lanes) [[unlikely]]
      return nullptr;
    return reserve_in(lanes_[lane], bytes);
  }
  void commit(uint32_t lane, uint64_t bytes) noexcept {
    if (lane < parts_.geometry.lanes) commit_reservation(lanes_[lane], bytes, lanes_[lane].mark);
  }
  void set_mark(uint32_t lane, uint32_t mark) noexcept {
    if (lane < parts_.geometry.lanes) lanes_[lane].mark = mark;
  }
  uint32_t get_mark(uint32_t lane) const noexcept { return lane < parts_.geometry.lanes ? lanes_[lane].view_mark : 0; }
  uint64_t released(uint32_t lane) noexcept;

  // transport/1. false: no room now. Throws Error once the link's end was told.
  bool send_control(std::string_view message);
  // Takes a checked transfer into its lane; false: refused now.
  bool post(const tutti_transfer& transfer);
  // Advances a lane's posted transfers; how many completions were written. Takes the lane off `active` by clearing its
  // flag.
  uint32_t advance(Lane& lane, tutti_completion* completions, uint32_t capacity);
  bool has_control_room() noexcept;
  // The next control message, copied to `to`: false: none.
  bool receive_control(uint8_t* to, uint64_t& bytes);
  // Has this link something that was not reported to the caller? For arm(), after the doorbell's word was set.
  bool has_news() noexcept;

  // Receives what has come on the line.
  void read_line() noexcept;
  // Sends what waits for room on the line.
  void write_line() noexcept;
  // Ends the link. TUTTI_ABORTED and a peer given up by the caller are not reported as events.
  void end(tutti_status status, std::string_view why, bool tell) noexcept;

  // The line stays open until the other end closes it, also when the link has ended.
  Line& line() { return parts_.line; }
  uint32_t rank() const { return parts_.rank; }
  uint32_t peer() const { return parts_.peer; }
  State state() const { return state_; }
  tutti_status end_status() const { return end_status_; }
  const std::string& why() const { return why_; }
  bool told() const { return told_; }
  void set_told() { told_ = true; }
  uint32_t active_lanes() const { return active_lanes_; }

 protected:
  explicit LinkBase(Parts parts);
  // Tells the peer that the endpoint is closed.
  ~LinkBase() {
    parts_.line.close(Goodbye());
  }
  LinkBase(const LinkBase&) = delete;
  LinkBase& operator=(const LinkBase&) = delete;

  Reference find(const uint8_t*, uint64_t, uint32_t, void*) noexcept {
    return corrupt("its ring is corrupt: a message by reference, which this transport does not have");
  }
  // Ends the link: the peer wrote invalid values.
  Reference corrupt(std::string_view why) noexcept {
    end(TUTTI_PEER_FAILED, why, true);
    return {};
  }

  // The peer's process has ended, or its endpoint is closed: it addresses no memory of this rank any more.
  bool peer_has_let_go() const { return let_go_; }
  Lane* lane_of(uint32_t lane) { return lane < parts_.geometry.lanes ? &lanes_[lane] : nullptr; }
  uint64_t slot_bytes() const { return parts_.geometry.slot_bytes; }
  uint32_t lanes() const { return parts_.geometry.lanes; }
  Attention<Self>& attention() { return *parts_.attention; }

  static void wait_for_credit(Lane& lane) noexcept {
    if (lane.waits_for_credit) return;
    lane.waits_for_credit = true;
    lane.credit_told = lane.credit;
  }
  bool has_room(Lane& lane, bool in_slot) noexcept {
    if (state_ != kOpen) [[unlikely]]
      return tell_of_end(), false;
    uint64_t needed = lane.sent < kDepth ? 0 : lane.sent - kDepth + 1;
    if (in_slot && lane.slot_free_at[lane.next_slot] > needed) needed = lane.slot_free_at[lane.next_slot];
    return lane.credit >= needed || read_credit(lane) >= needed || (wait_for_credit(lane), false);
  }
  // The caller has ordered its non-temporal stores (order_stores).
  void publish(Lane& lane, Descriptor& d) noexcept { store_and_wake(d.sequence, static_cast<uint32_t>(++lane.sent)); }

 private:
  Self& self() { return static_cast<Self&>(*this); }

  const void* receive_from(Lane& lane, uint64_t& bytes, void* room = nullptr, uint64_t room_bytes = 0) noexcept {
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
    const uint32_t size = d.bytes.load(std::memory_order_relaxed);
    lane.view_mark = d.mark.load(std::memory_order_relaxed);
    if (d.kind.load(std::memory_order_relaxed) == kInline && size <= kInlineBytes) [[likely]] {
      lane.view = d.payload;
      lane.view_bytes = bytes = size;
      return lane.view;
    }
    return receive_large(lane, d, bytes, room, room_bytes);
  }

  void release_view(Lane& lane) noexcept {
    if (!lane.view) [[unlikely]]
      return;
    lane.view = nullptr;
    if (lane.referred) {
      --*lane.referred;
      lane.referred = nullptr;
    } else if (lane.view_in_slot) {
      lane.view_in_slot = false;
      lane.in_slot = lane.in_slot + 1 == parts_.geometry.slots ? 0 : lane.in_slot + 1;
    }
    store_and_wake(lane.in->released, ++lane.received);
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

  void commit_reservation(Lane& lane, uint64_t bytes, uint32_t mark) noexcept {
    if (!lane.reservation || bytes > lane.reserved_bytes) [[unlikely]]
      return refuse_commit(lane);
    Descriptor& d = lane.out->descriptors[lane.sent % kDepth];
    d.bytes.store(static_cast<uint32_t>(bytes), std::memory_order_relaxed);
    d.mark.store(mark, std::memory_order_relaxed);
    if (lane.reservation == lane.staging) [[likely]] {
      d.kind.store(kInline, std::memory_order_relaxed);
      std::memcpy(d.payload, lane.staging, kInlineBytes);
    } else {
      order_stores();
      d.kind.store(kData, std::memory_order_relaxed);
      lane.slot_free_at[lane.next_slot] = lane.sent + 1;
      lane.next_slot = lane.next_slot + 1 == parts_.geometry.slots ? 0 : lane.next_slot + 1;
    }
    lane.reservation = nullptr;
    publish(lane, d);
  }

  // Stores a word that the peer may sleep for (Doorbell).
  template <typename Word>
  void store_and_wake(std::atomic<Word>& word, Word value) noexcept {
    if (!reached_by_barriers_) [[unlikely]] {
      word.store(value, std::memory_order_seq_cst);
      return wake_peer();
    }
    word.store(value, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (peer_doorbell_->sleeps.load(std::memory_order_relaxed)) [[unlikely]]
      ring_peer();
  }
  void wake_peer() noexcept {
    if (peer_doorbell_->sleeps.load(std::memory_order_seq_cst)) [[unlikely]]
      ring_peer();
  }

  // Never inlined, so that the hot functions above stay small.
  [[gnu::noinline]] const void* receive_large(Lane& lane, Descriptor& d, uint64_t& bytes, void* room,
                                              uint64_t room_bytes) noexcept;
  [[gnu::noinline]] void* reserve_large(Lane& lane, uint64_t bytes) noexcept;
  [[gnu::noinline]] void refuse_commit(Lane& lane) noexcept;
  [[gnu::noinline]] uint64_t read_credit(Lane& lane) noexcept;
  [[gnu::noinline]] void ring_peer() noexcept;
  [[gnu::noinline]] void tell_of_end() noexcept;

  void peer_gone(std::string_view why, bool tell) noexcept;
  void take(Packet& packet);
  void activate(Lane& lane);
  bool write_posted(Lane& lane, const PostedTransfer& send) noexcept;
  uint32_t end_posted(Lane& lane, tutti_completion* completions, uint32_t capacity);
  tutti_completion completion(const PostedTransfer& posted, tutti_status status, uint64_t bytes,
                              uint32_t mark = 0) const {
    return {TUTTI_COMPLETION_TRANSFER, status, parts_.peer, mark, posted.cookie, bytes, nullptr, 0};
  }

  // Hot.
  State state_ = kOpen;
  Parts parts_;
  std::unique_ptr<Lane[]> lanes_;
  Doorbell* peer_doorbell_;  // in parts_
  const bool reached_by_barriers_;  // of the peer, before it sleeps

  ControlRing* control_out_;
  ControlRing* control_in_;
  uint64_t controls_sent_ = 0, controls_received_ = 0;
  bool waits_for_control_room_ = false;  // a control message was refused, and the caller was not told of room since
  uint32_t active_lanes_ = 0;
  tutti_status end_status_ = TUTTI_PEER_FAILED;
  std::string why_;
  bool failing_ = false;  // in Attention::failing
  bool told_ = false;     // the end was told, or is not to be
  bool let_go_ = false;
  bool goodbye_waits_ = false;  // this rank gave the peer up, and there was no room to tell it
};

}  // namespace local
}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk

#include <tutti/sdk/local/link_slow_path.hpp>
