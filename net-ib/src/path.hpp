// SPDX-License-Identifier: Apache-2.0
//
// One reliable connection: a link's queue pair on one rail. It numbers what goes out, keeps it until it is
// acknowledged, and counts what came in, so that after a failure both ends can tell exactly which frames arrived.
//
// Flow: at most `credits` frames are unanswered. Each frame tells how many of the other direction's frames were taken
// in; a note of its own does when half of the credits wait to be told.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rail.hpp"
#include "wire.hpp"

namespace tutti::ib {

class Link;

// What went out and may have to go out again.
struct Flight {
  Frame frame{};                // of a write: lane, sequence, offset and bytes are filled
  Announcement target{};        // of a write
  const char* local = nullptr;  // of what is read from registered memory; else the bytes are in the slot
  const Region* region = nullptr;
  bool write = false;
};

// What a path has in flight, and how fast it is.
struct Load {
  uint64_t bytes = 0;
  uint32_t weight = 1;
  // Would `piece` more bytes arrive sooner here than there?
  bool is_better_for(uint64_t piece, const Load& there) const {
    return (bytes + piece) * there.weight < (there.bytes + piece) * weight;
  }
};

class Path {
 public:
  enum class State {
    kUp,
    kDraining,  // halted; what the adapter had begun is awaited
    kFailed,    // quiet at this end; the other end's count is awaited
    kDead       // settled
  };

  // A queue pair that is ready to be connected. It enters itself into the endpoint's list, by id, and leaves nullptr
  // there when it goes.
  Path(Rail& rail, std::vector<Path*>& all, const Shape& shape);
  ~Path();
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;

  // What a peer must know to connect to it.
  OfferedRail offer() const;
  // `index`: among the link's paths, the same at both ends. False with the reason: it carries nothing, and is dead.
  bool connect(uint32_t index, const Pairing& pairing, const OfferedRail& peer, std::string* why);

  Rail& rail() { return rail_; }
  uint32_t index() const { return index_; }
  uint32_t id() const { return id_; }
  State state() const { return state_; }
  bool is_up() const { return state_ == State::kUp; }
  // The peer has been told, or need not be told, how many frames arrived: no more count.
  bool is_settling() const { return state_ == State::kFailed || state_ == State::kDead; }
  void set_state(State state) { state_ = state; }
  const Load& load() const { return load_; }

  // Sending. Each needs room; flush() hands the batch to the adapter: false with the reason when it was refused.
  bool has_room(uint32_t reserved = kReservedCredits) const {
    return sent_ - acked_ < slots_ && sent_ - freed_ + reserved < credits_;
  }
  // With a region: the payload is read from there until it is acknowledged.
  void send(const Frame& frame, const void* payload, const Region* region = nullptr);
  // Writes frame.bytes to target.address + frame.offset: from `local` in `region`, or a copy of `local`.
  void write(const Frame& frame, const Announcement& target, const char* local, const Region* region);
  bool flush(std::string* why);
  // A note about credits is due.
  bool owes_credit() const { return taken_ - told_ >= credits_ / 2; }
  void tell_credit();

  // Asks the peer's adapter for a sign of life, with a write of no bytes, if nothing went either way since the last
  // call and no earlier one is under way. The adapter answers, not the process: a peer that is merely slow is not taken
  // for dead. False with the reason when this end's adapter refused it.
  bool heartbeat(std::string* why);
  void heartbeat_answered() { beating_ = false; }

  // The adapter has acknowledged frame `index` and all before: the caller looks at the flights from acked() on, then
  // calls acknowledge.
  uint32_t sent() const { return sent_; }
  uint32_t acked() const { return acked_; }
  Flight& flight(uint32_t i) { return flights_[i & (slots_ - 1)]; }
  const char* payload(uint32_t i) const { return slot(i) + sizeof(Frame); }
  void acknowledge_one() { load_.bytes -= flight(acked_++).frame.bytes; }

  // Receiving.
  uint32_t taken() const { return taken_; }
  void take() { ++taken_; }
  // The peer's count of what it took; false: it cannot be.
  bool set_freed(uint32_t freed);

  // Stops the queue pair. Every completion still counts: the peer's adapter may have been told that a frame arrived
  // before its completion can be polled here, and the error state does not make it appear. So halt() moves to that
  // state and posts a marker. The path is drained once
  //   * the marker came back: requests complete in order, so all sends before it have completed; and
  //   * the adapter raised IBV_EVENT_QP_LAST_WQE_REACHED: the queue pair takes no more from the shared receive queue,
  //     all its receives have completed, and nothing is written to memory any more.
  // The completion queue is emptied after that. A queue pair is not reset for this: RESET discards completions.
  // An adapter that raises no such event gets kLastReceiveLimit after the marker.
  void halt();
  void marker_flushed() { flushed_at_ = std::chrono::steady_clock::now(); }
  bool told_last_receive() const { return last_receive_reached_; }
  enum class Drain { kWaiting, kDone, kStuck };
  // kStuck: with the reason; the adapter did not complete what was under way within kDrainLimit.
  Drain drain(std::string* why);
  // Ends everything at once; completions that were not polled are lost. From here on nothing touches memory.
  void die();

  Link* link = nullptr;
  bool in_unflushed = false;  // in the endpoint's list of paths to flush
  std::string failure;        // the first reason
  bool failing = false;       // in the endpoint's list of paths that failed
  bool peer_told = false;     // the peer has told what it took before the end
  uint32_t peer_taken = 0;

 private:
  char* slot(uint32_t i) const { return slab_.data() + (i & (slots_ - 1)) * slot_bytes_; }
  void gather(Flight flight, char* buffer, const char* payload, const Region& region);
  ibv_send_wr& stage(const Flight& flight, uint64_t address, uint32_t bytes, uint32_t key, bool signal);

  Rail& rail_;
  std::vector<Path*>& all_;
  const uint32_t id_;
  const uint32_t credits_;
  const uint32_t slots_;  // credits, rounded up to a power of two
  // Of the adapter's events, which any thread may take that shares the device.
  std::atomic<bool> last_receive_reached_ = false;
  const uint64_t slot_bytes_;
  Slab slab_;
  uint32_t index_ = 0;
  uint32_t max_inline_ = 0;  // filled by making the queue pair
  QueuePair qp_;
  uint32_t psn_ = 0;
  State state_ = State::kUp;
  std::vector<Flight> flights_;
  std::vector<ibv_send_wr> requests_;
  std::vector<std::array<ibv_sge, 2>> parts_;
  uint32_t flushed_ = 0;  // frames handed to the adapter
  uint32_t sent_ = 0;     // frames numbered; all counts are modulo 2^32
  uint32_t acked_ = 0;    // ... acknowledged by the adapter
  uint32_t freed_ = 0;    // ... that the peer has taken in
  uint32_t taken_ = 0;    // the peer's frames taken in here
  uint32_t told_ = 0;     // ... that it has been told of
  Load load_;
  uint32_t seen_sent_ = 0;  // at the last call of heartbeat()
  uint32_t seen_taken_ = 0;
  bool beating_ = false;  // a heartbeat is under way
  std::string stuck_;     // why it cannot be halted
  std::chrono::steady_clock::time_point halted_at_;
  std::optional<std::chrono::steady_clock::time_point> flushed_at_;
};

}  // namespace tutti::ib
