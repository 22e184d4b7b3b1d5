// SPDX-License-Identifier: Apache-2.0
//
// One rank's connection to one peer: the lanes, and the paths (one queue pair per rail) that carry them.
//
// Messages of at most eager_bytes are copied and travel in a frame, up to kEagerWindow of a lane ahead of their RECVs.
// Larger ones wait until their RECV is announced. Into registered memory they are written directly, in one piece on the
// lane's path or striped over all paths; into other memory they travel in frames. Every message carries its number in
// the lane, so it finds its RECV on any path.
//
// Lane l uses path l mod paths, or the next one that works; slower paths only when no fast one is left. A failed path is settled in three steps at both ends:
//   1. Stop the queue pair, wait until it is drained, and count the frames that arrived.
//   2. Send this count over another path.
//   3. With the other end's count, send again exactly the frames that did not arrive, in order, before anything new.
// So nothing is lost or doubled. The queue pair is stopped before its bytes travel again, so no late write can hit
// memory that is in other use. A settled path is connected again when its rail works again (rejoin.cpp).
#pragma once

#include <tutti/plugin/transport.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tutti/sdk/network.hpp>
#include <vector>

#include "path.hpp"

namespace tutti::ib {

class Endpoint;
using Clock = std::chrono::steady_clock;

inline constexpr const char* kClosed = "it has closed its endpoint";

// A SEND that is not completed.
struct Send {
  const char* data = nullptr;
  uint64_t bytes = 0;
  uint64_t cookie = 0;
  const Region* region = nullptr;
  uint32_t mark = 0;
  uint64_t handed = 0;   // bytes given to paths
  uint64_t unacked = 0;  // of these, still read from `data`
  bool begun = false;    // its RECV's announcement is here
  bool done = false;
  bool silent = false;  // INLINE: completed already, keeps its place in the order
  Announcement target{};

  // Are its bytes not copied into frames either? The processor cannot read a device's.
  bool stays() const { return region && region->on_device; }
};

// A RECV that is not completed.
struct Receive {
  char* data = nullptr;
  uint64_t bytes = 0;
  uint64_t cookie = 0;
  const Region* region = nullptr;
  uint32_t mark = 0;  // with TUTTI_MISMATCH that of the message
  uint64_t arrived = 0;
  bool done = false;
  tutti_status status = TUTTI_OK;

  // Is it the RECV of such a message?
  bool fits(uint64_t message_bytes, uint32_t message_mark) const {
    return bytes == message_bytes && mark == message_mark;
  }
};

// A message that arrived before its RECV was posted.
struct Early {
  std::unique_ptr<char[]> data;
  uint32_t bytes = 0;
  uint32_t mark = 0;
};

struct Announced {
  uint32_t sequence = 0;
  uint32_t total = 0;
  uint32_t mark = 0;
  Announcement target{};
};

// Both directions of a lane. Counts are modulo 2^32.
struct Lane {
  sdk::Ring<Send> sends;           // the last of messages [.., next_send)
  sdk::Ring<Announced> announced;  // by the peer, not used yet
  uint32_t next_send = 0;          // SENDs taken: the next one's number
  uint32_t cursor = 0;             // so many of `sends` were given to paths whole
  uint32_t peer_posted = 0;        // RECVs that the peer has reported
  uint32_t idle_polls = 0;         // polls of a large SEND without an announcement
  bool asked = false;              // a kWant was sent for it

  sdk::Ring<Receive> receives;  // the last of RECVs [.., posted)
  sdk::Ring<Early> early;       // messages posted, posted + 1, ...
  uint32_t posted = 0;
  uint32_t announced_to = 0;  // the large ones among the RECVs up to here are announced
  uint32_t told = 0;          // RECVs that the peer knows of
  std::optional<Frame> want;  // the peer's kWant for a message whose RECV is not posted

  bool busy = false;  // in the link's list

  uint32_t first_send() const { return next_send - static_cast<uint32_t>(sends.size()); }
  uint32_t first_receive() const { return posted - static_cast<uint32_t>(receives.size()); }
};

class Link : public sdk::NetworkLink<Link, Endpoint> {
 public:
  // Takes the paths; those that this end could not connect are dead.
  Link(Endpoint& endpoint, uint32_t peer, std::vector<std::unique_ptr<Path>> paths);
  // Allows sending: the peer has connected these paths, 1 << i for path i. False: no path works at both ends.
  bool start(uint32_t connected);

  // False: no room now. The endpoint has checked the arguments.
  bool post_send(const tutti_transfer& transfer);
  bool post_receive(const tutti_transfer& transfer);
  bool take_control(std::string_view message);
  // Continues sends and notes that wait for room or for the peer.
  void advance();
  bool has_work() const { return !busy_.empty() || !notes_.empty() || !again_.empty() || !retired_.empty(); }
  // Before sleeping: asks for missing announcements now.
  void ask_all();

  // Completes every pending transfer with `status`; their memory is no longer accessed.
  void drop_transfers(tutti_status status);

  // Called for the endpoint's completions.
  void on_frame(Path& path, const char* bytes, uint32_t size);
  void on_written(uint32_t immediate, uint32_t bytes);
  void on_acked(const Flight& flight);
  // Halts a failed path. The peer is lost if it was the last one. on_path_drained or on_path_stuck follows.
  void on_path_failed(Path& path);
  // The path is stopped, and everything that arrived over it was taken in.
  void on_path_drained(Path& path);
  void on_path_stuck(Path& path, const std::string& why);
  // The peer closed its endpoint; everything that it sent before was taken in.
  void on_goodbye();

  // Called every kHeartbeatPeriod: heartbeats, rails that may be tried again, and the end of waiting for one.
  void heartbeat();
  // The rail's port or address has changed, or a queue pair failed.
  void on_rail_changed(const Rail& rail);
  // Pair messages of a link that is ready.
  void on_reconnected(uint32_t connected);
  void on_rejoin(const Rejoin& rejoin);
  void on_path_down(const PathDown& down);

  // At the end: makes the adapters acknowledge every frame; then says goodbye to the peer.
  void ask_for_acknowledgement();
  void say_goodbye();
  bool is_drained() const;  // no more acknowledgements can come

  bool is_ready() const { return ready_; }
  bool uses(const Rail& rail) const;
  // transport/1's flush.
  bool flush(tutti_region* region, const void* data, uint64_t bytes);

  bool in_working = false;  // in the endpoint's list of links with something that waits

 private:
  // A frame that leaves as soon as there is room.
  struct Note {
    Frame frame;
    bool urgent;  // about paths: may use the reserved credits
  };
  struct Again {
    Path* path;
    uint32_t index;
  };

  Path* path_of(uint32_t lane) const;
  Path* path_for_piece(uint32_t lane, uint64_t bytes) const;
  bool is_settled() const;  // no failure is in progress
  Frame frame(FrameKind kind, uint32_t lane, uint32_t sequence, uint64_t total = 0, uint64_t bytes = 0,
              uint32_t mark = 0) const;
  // Sends a frame on its lane's path. False: no room there now.
  bool send(const Frame& frame, const void* payload = nullptr, const Region* region = nullptr,
            uint32_t reserved = kReservedCredits);
  void note(const Frame& frame, bool urgent = false);
  void make_busy(uint32_t lane);
  bool send_notes();
  bool send_again();
  bool tell(uint32_t lane);
  bool hand_over(uint32_t lane);
  bool hand_eager(uint32_t lane, uint32_t sequence, Send& send);
  bool find_target(uint32_t lane, Send& send);
  bool hand_pieces(uint32_t lane, Send& send);
  void retire_sends(uint32_t lane);
  void retire_receives(uint32_t lane);
  void fill(uint32_t lane, Receive& receive, uint64_t offset, const char* payload, uint64_t bytes);
  void settle(Path& path);
  void mismatch(uint32_t lane, Receive& receive, uint64_t bytes, uint32_t mark);
  void broken(const std::string& what);
  Receive* receive_of(Lane& lane, uint32_t sequence);
  void on_data(const Frame& frame, const char* payload);
  void on_announce(const Frame& frame, const char* payload);
  void on_want(const Frame& frame);
  void on_refusal(const Frame& frame);

  // Rails that come back (rejoin.cpp).
  bool is_kept() const;  // it waits for rails rather than losing the peer
  void rejoin();
  void connect_again(uint32_t index);
  void join_lanes();
  void check_recovery();

  std::vector<Lane> lanes_;
  std::vector<std::unique_ptr<Path>> paths_;
  std::vector<uint32_t> busy_;  // lanes that wait for room or for the peer
  std::deque<Note> notes_;
  std::deque<Again> again_;  // frames of dead paths that did not arrive, in order
  struct Return {
    std::unique_ptr<Path> fresh;        // offered to the peer
    std::optional<OfferedRail> theirs;  // the peer's offer
    Clock::time_point not_before{};
    std::chrono::milliseconds pause = kFirstPause;
  };
  std::vector<Return> returns_;                 // by path
  std::vector<std::unique_ptr<Path>> retired_;  // replaced; again_ may still need their frames, and lanes a fence
  bool fencing_ = false;                        // lanes are about to use one more path, and send nothing meanwhile
  std::optional<Clock::time_point> down_since_;  // no rail works
  Clock::time_point peer_told_{};                // when it last said something about paths
  std::string last_failure_;
  bool ready_ = false;
};

}  // namespace tutti::ib
