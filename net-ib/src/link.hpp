// SPDX-License-Identifier: Apache-2.0
//
// One rank's connection to one peer: the lanes and the paths (one queue pair per rail) that carry them.
//
// Messages of at most eager_bytes are copied and travel in a frame, up to kEagerWindow of a lane ahead of their RECVs.
// Larger ones wait until their RECV is announced: into registered memory they are written directly, in one piece on the
// lane's path or striped over all paths; into other memory they travel in frames. Every message carries its number in
// the lane, so it finds its RECV whichever path it took.
//
// Lane l's frames keep to path l mod paths; when that fails, to the next one that works. A failure is settled in four
// moves: (1) the end that sees it stops its queue pair, waits until that is drained and counts the frames that came in;
// (2) it tells the count over another path; (3) the other end does the same; (4) whoever has the other's count sends
// again exactly the frames that did not arrive, in order, before anything new. So nothing is lost or doubled, and since
// the queue pair was stopped before its bytes travel again, no late write can hit memory that has gone on to other use.
#pragma once

#include <tutti/plugin/transport.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <tutti/sdk/ring.hpp>
#include <vector>

#include "path.hpp"

namespace tutti::ib {

class Endpoint;

// A SEND that is not completed.
struct Send {
  const char* data = nullptr;
  uint64_t bytes = 0;
  uint64_t cookie = 0;
  const Region* region = nullptr;
  uint64_t handed = 0;   // bytes given to paths
  uint64_t unacked = 0;  // ... that are still read from `data`
  bool begun = false;    // its RECV's announcement is here
  bool done = false;
  bool silent = false;  // INLINE: completed already, kept for its place in the order
  Announcement target{};

  // In frames, too, its bytes are not copied: no processor can read them.
  bool stays() const { return region && region->on_device; }
};

// A RECV that is not completed.
struct Receive {
  char* data = nullptr;
  uint64_t bytes = 0;
  uint64_t cookie = 0;
  const Region* region = nullptr;
  uint64_t arrived = 0;
  bool done = false;
  tutti_status status = TUTTI_OK;
};

// A message that came before its RECV.
struct Early {
  std::unique_ptr<char[]> data;
  uint32_t bytes = 0;
};

struct Announced {
  uint32_t sequence = 0;
  uint32_t total = 0;
  Announcement target{};
};

// Both directions of a lane. Counts are modulo 2^32.
struct Lane {
  sdk::Ring<Send> sends;           // the last of messages [.., next_send)
  sdk::Ring<Announced> announced;  // by the peer, not used yet
  uint32_t next_send = 0;          // SENDs taken: the next one's number
  uint32_t cursor = 0;             // of `sends`, so many were handed over whole
  uint32_t peer_posted = 0;        // RECVs that the peer has told of
  uint32_t idle_polls = 0;         // looks at a large SEND without an announcement
  bool asked = false;              // a kWant went out for it

  sdk::Ring<Receive> receives;  // the last of RECVs [.., posted)
  sdk::Ring<Early> early;       // messages posted, posted + 1, ...
  uint32_t posted = 0;
  uint32_t announced_to = 0;  // RECVs up to here were announced where they must be
  uint32_t told = 0;          // ... and the peer knows of so many
  bool wanted = false;        // the peer holds message `want` of `want_total` bytes ready
  uint32_t want = 0, want_total = 0;

  bool busy = false;  // in the link's list

  uint32_t first_send() const { return next_send - static_cast<uint32_t>(sends.size()); }
  uint32_t first_receive() const { return posted - static_cast<uint32_t>(receives.size()); }
};

class Link {
 public:
  // Takes over the paths; those that this end could not connect are dead.
  Link(Endpoint& endpoint, uint32_t peer, std::vector<std::unique_ptr<Path>> paths);
  // The peer has connected these, 1 << i for path i: only now may anything be sent. False: no path works at both ends.
  bool start(uint32_t connected);

  // False: refused for now. Arguments and refusal() are checked by the endpoint.
  bool post_send(const tutti_transfer& transfer);
  bool post_receive(const tutti_transfer& transfer);
  bool take_control(std::string_view message);
  // Does what waits for room or for news.
  void advance();
  bool has_work() const { return !busy_.empty() || !notes_.empty() || !again_.empty(); }
  // Before sleeping: asks for what the peer would otherwise be asked for later.
  void ask_all();

  // What post and send_control answer instead of taking anything: the status with which the link has ended, from the
  // peer's record on; before that there is no room. TUTTI_OK: nothing.
  tutti_status refusal() const { return is_told_ ? status_ : TUTTI_OK; }
  // Ends every pending transfer with `status`; nothing touches their memory from here on.
  void end(tutti_status status, const std::string& reason);
  // end() because the peer is lost, with a completion record for it, and what follows once that was handed over.
  void lose(const std::string& reason);
  void told() { is_told_ = true; }

  // What the endpoint's completions tell.
  void on_frame(Path& path, const char* bytes, uint32_t size);
  void on_written(uint32_t immediate, uint32_t bytes);
  void on_acked(const Flight& flight);
  // A path is of no more use: halts it, and loses the peer when it was the last one. Then either of these follows.
  void on_path_failed(Path& path);
  // The path is quiet and everything that came over it was taken in.
  void on_path_drained(Path& path);
  void on_path_stuck(Path& path, const std::string& why);
  // The peer closed its endpoint, and everything that it sent before was taken in.
  void on_goodbye();

  // Looks after the idle paths: Path::heartbeat.
  void heartbeat();

  // At the end: makes sure that every frame is acknowledged sooner or later; then tells the peer.
  void ask_for_acknowledgement();
  void say_goodbye();
  bool is_drained() const;  // everything sent is acknowledged, or never will be

  Endpoint& endpoint() { return endpoint_; }
  uint32_t peer() const { return peer_; }
  bool is_ready() const { return ready_; }
  bool uses(const Rail& rail) const;
  bool is_up() const { return status_ == TUTTI_OK; }
  bool is_departed() const { return departed_; }
  const std::string& reason() const { return reason_; }
  // transport/1's send_control and flush, as plugins/sdk shapes them.
  bool send_control(std::string_view message);
  bool flush(tutti_region* region, const void* data, uint64_t bytes);

  bool in_working = false;  // in the endpoint's list of links with something that waits

 private:
  // A frame that is to go out as soon as there is room.
  struct Note {
    Frame frame;
    bool urgent;  // about paths: may use the reserve
  };
  struct Again {
    Path* path;
    uint32_t index;
  };

  Path* path_of(uint32_t lane) const;
  Path* path_for_piece(uint32_t lane, uint64_t bytes) const;
  bool is_settled() const;  // no failure is being worked on
  Frame frame(FrameKind kind, uint32_t lane, uint32_t sequence) const;
  void note(const Frame& frame, bool urgent = false);
  void make_busy(uint32_t lane);
  bool send_notes();
  bool send_again();
  bool advance_lane(uint32_t lane);
  bool tell(uint32_t lane);
  bool hand_over(uint32_t lane);
  bool hand_eager(uint32_t lane, uint32_t sequence, Send& send);
  bool find_target(uint32_t lane, Send& send);
  bool hand_pieces(uint32_t lane, Send& send);
  void retire_sends(uint32_t lane);
  void retire_receives(uint32_t lane);
  void fill(uint32_t lane, Receive& receive, uint64_t offset, const char* payload, uint64_t bytes);
  void settle(Path& path);
  void mismatch(uint32_t lane, Receive& receive, uint64_t bytes);
  void broken(const std::string& what);
  Receive* receive_of(Lane& lane, uint32_t sequence);
  void on_data(const Frame& frame, const char* payload);
  void on_announce(const Frame& frame, const char* payload);
  void on_want(const Frame& frame);
  void on_refusal(const Frame& frame);
  void on_path_down(const Frame& frame);

  Endpoint& endpoint_;
  const uint32_t peer_;
  std::vector<Lane> lanes_;
  std::vector<std::unique_ptr<Path>> paths_;
  std::vector<uint32_t> busy_;  // lanes that wait for room or news
  std::deque<Note> notes_;
  std::deque<Again> again_;  // frames of dead paths that did not arrive, in order
  bool ready_ = false;
  bool departed_ = false;  // the peer closed its endpoint in order
  bool is_told_ = false;   // the core knows that the link has ended
  tutti_status status_ = TUTTI_OK;
  std::string reason_;
};

}  // namespace tutti::ib
