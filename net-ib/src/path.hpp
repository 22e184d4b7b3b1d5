// SPDX-License-Identifier: Apache-2.0
//
// A path: a link's queue pair on one rail. It numbers outgoing frames, keeps them until they are acknowledged, and
// counts incoming frames, so after a failure both ends know exactly which frames arrived.
//
// Flow control: at most `credits` frames are without credit from the peer. Each frame carries the count of the frames
// taken in from the other direction. A frame of its own carries it when half of the credits have not been returned.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rail.hpp"
#include "wire.hpp"

namespace tutti::ib {

class Link;

// A frame or a write that left, and may have to leave again over another path.
struct Flight {
  Frame frame{};                // a write has lane, sequence, offset and bytes
  Announcement target{};        // of a write
  const char* local = nullptr;  // the payload in registered memory; otherwise it is in the slot
  const Region* region = nullptr;
  bool write = false;
  bool is_measured = false;  // a striped piece
};

// A path's bytes in flight, and its speed: at first the port's, then as measured by the striped pieces that it carried.
struct Load {
  uint64_t bytes = 0;
  double weight = 1;  // bytes per microsecond
  bool is_measured = false;
  // Pieces of so many bytes in all took that long.
  void measured(uint64_t pieces, std::chrono::nanoseconds time) {
    const double speed = 1000.0 * static_cast<double>(pieces) / std::max<double>(1000, static_cast<double>(time.count()));
    weight = std::exchange(is_measured, true) ? weight + (speed - weight) / 4 : speed;
  }
  // Would `piece` more bytes arrive sooner here than there?
  bool is_better_for(uint64_t piece, const Load& there) const {
    return static_cast<double>(bytes + piece) * there.weight < static_cast<double>(there.bytes + piece) * weight;
  }
};

class Path {
 public:
  enum class State {
    kUp,
    kConnected,  // again; waits for the other end's
    kDraining,  // halted; waits for the adapter's completions
    kFailed,    // drained; waits for the other end's count
    kDead       // settled
  };

  // Makes a queue pair that is ready to be connected. Enters itself into the endpoint's list, by id; the destructor
  // leaves nullptr there.
  Path(Rail& rail, std::vector<Path*>& all);
  ~Path();
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;

  // The data by which a peer connects to it.
  OfferedRail offer() const;
  // The place of a path among its link's is the same at both ends: of pair p, queue pair q, it is q * pairs + p.
  struct Place {
    uint32_t index = 0, pair = 0;
  };
  // To a queue pair of the peer's rail. False with the reason: the path is dead.
  bool connect(Place place, const Pairing& pairing, const OfferedRail& peer, const OfferedQueuePair& to, std::string* why);

  Rail& rail() { return rail_; }
  uint32_t index() const { return place_.index; }
  Place place() const { return place_; }
  uint32_t id() const { return id_; }
  State state() const { return state_; }
  bool is_up() const { return state_ == State::kUp; }
  bool is_halted() const { return state_ != State::kUp && state_ != State::kConnected; }
  // The reason why its rail can carry it no more, by what events told; "": it can.
  std::string fault() const;
  // The count of arrived frames is final: the peer has it, or needs none.
  bool is_settling() const { return state_ == State::kFailed || state_ == State::kDead; }
  void set_state(State state) { state_ = state; }
  const Load& load() const { return load_; }
  // As fast as the link's fastest, to within a factor of two: small messages use no other, as long as one is up.
  bool is_fast = true;

  // Sending. send and write need room; flush() hands the batch to the adapter: false with the reason if it refused.
  bool has_room(uint32_t reserved = kReservedCredits) const {
    return sent_ - acked_ < slots_ && sent_ - freed_ + reserved < credits_;
  }
  // With a region the adapter reads the payload from there until it is acknowledged.
  void send(const Frame& frame, const void* payload, const Region* region = nullptr);
  // Writes frame.bytes to target.address + frame.offset, from `local` in `region` or from a copy of `local`.
  void write(const Frame& frame, const Announcement& target, const char* local, const Region* region);
  bool flush(std::string* why);
  // Is a frame about credits due?
  bool owes_credit() const { return owes_answer || taken_ - told_ >= credits_ / 2; }
  void tell_credit();

  // Checks that the peer's adapter is alive, by a write of no bytes, if nothing moved in either direction since the
  // last call and no earlier heartbeat is under way. The adapter answers, not the process, so a slow peer is not taken
  // for dead. False with the reason if this end's adapter refused the write.
  bool heartbeat(std::string* why);
  void heartbeat_answered() { beating_ = false; }

  // When the adapter acknowledges a frame, the caller takes the flights from acked() up to that frame, one by one, each
  // with acknowledge_one().
  uint32_t sent() const { return sent_; }
  uint32_t acked() const { return acked_; }
  uint32_t freed() const { return freed_; }
  Flight& flight(uint32_t i) { return flights_[i & (slots_ - 1)]; }
  const char* payload(uint32_t i) const { return slot(i) + sizeof(Frame); }
  void acknowledge_one();

  // Receiving.
  uint32_t taken() const { return taken_; }
  void take() { ++taken_; }
  // The peer's count of frames that it took in; false: an impossible count.
  bool set_freed(uint32_t freed);

  // Stops the queue pair. Every completion still counts: this adapter may have acknowledged a frame whose completion
  // cannot be polled yet, and the error state does not make it appear. So halt() moves to that state and posts a
  // marker. The path is drained once
  //   * the marker came back: requests complete in order, so all sends before it have completed; and
  //   * the adapter raised IBV_EVENT_QP_LAST_WQE_REACHED: the queue pair takes no more from the shared receive queue,
  //     all its receives have completed, and it no longer writes to memory.
  // The completion queue is emptied after that. A queue pair is not reset for this: RESET discards completions.
  // An adapter that raises no such event gets kLastReceiveLimit after the marker. One that has failed for good
  // completes nothing, and is drained at once.
  void halt();
  void marker_flushed() { flushed_at_ = std::chrono::steady_clock::now(); }
  bool told_last_receive() const { return events_.last_receive_reached; }
  enum class Drain { kWaiting, kDone, kStuck };
  // kStuck, with the reason: the adapter did not complete its requests within kDrainLimit.
  Drain drain(std::string* why);
  // Destroys the queue pair: completions that were not polled are lost, and memory is no longer accessed.
  void die();

  Link* link = nullptr;
  bool in_unflushed = false;           // in the endpoint's list of paths to flush
  std::string failure;                 // the first reason
  bool failing = false;                // in the endpoint's list of paths that failed
  std::optional<uint32_t> peer_taken;  // the peer's count of frames that it took before the end
  uint32_t generation = 0;             // how often the link's path of this index was connected again
  bool is_unused = false;              // it could not be connected, and is left alone
  bool is_joined = true;               // lanes may use it
  std::optional<uint32_t> fence;       // frames sent, up to a fence
  bool owes_answer = false;            // to a fence

 private:
  char* slot(uint32_t i) const { return slab_.data() + (i & (slots_ - 1)) * slot_bytes_; }
  // Posts a write of no bytes; returns errno's code, or 0.
  int write_nothing(Work work);
  ibv_send_wr& stage(const Flight& flight, uint64_t address, uint32_t bytes, uint32_t key, bool signal);

  Rail& rail_;
  std::vector<Path*>& all_;
  const uint32_t id_;
  const uint32_t credits_;
  const uint32_t slots_;  // credits, rounded up to a power of two
  QueuePairEvents events_;
  const uint64_t slot_bytes_;
  Slab slab_;
  Place place_;
  uint32_t max_inline_ = 0;  // set by make_queue_pair
  QueuePair qp_;
  uint32_t psn_ = 0;
  OfferedGid own_gid_{};  // these two as they were when it was connected
  uint32_t own_lid_ = 0;
  State state_ = State::kUp;
  std::vector<Flight> flights_;
  std::vector<ibv_send_wr> requests_;
  std::vector<std::array<ibv_sge, 2>> parts_;
  uint32_t flushed_ = 0;  // frames handed to the adapter
  uint32_t sent_ = 0;     // frames numbered; all counts are modulo 2^32
  uint32_t acked_ = 0;    // of these, acknowledged by the adapter
  uint32_t freed_ = 0;    // of these, taken in by the peer
  uint32_t taken_ = 0;    // the peer's frames taken in here
  uint32_t told_ = 0;     // of these, reported to the peer
  Load load_;
  // Striped pieces in flight. Their speed is measured over all that leave until none is in flight, or over kMeasured.
  static constexpr uint64_t kMeasured = 4 << 20;
  uint32_t pieces_ = 0;
  uint64_t measured_ = 0;
  std::chrono::steady_clock::time_point measured_from_{};
  uint32_t seen_sent_ = 0;  // at the last call of heartbeat()
  uint32_t seen_taken_ = 0;
  bool beating_ = false;  // a heartbeat is under way
  std::string stuck_;     // the reason why it cannot be drained
  std::chrono::steady_clock::time_point halted_at_;
  std::optional<std::chrono::steady_clock::time_point> flushed_at_;
};

}  // namespace tutti::ib
