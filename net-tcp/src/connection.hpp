// SPDX-License-Identifier: Apache-2.0
//
// One socket of a link: turns frames into bytes and back. Writes go to the kernel at once as far as it takes them.
// Large payloads move between the socket and the caller's memory without a copy. No function blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tutti/sdk/ring.hpp>
#include <vector>

#include "acknowledgement.hpp"
#include "departures.hpp"
#include "stream.hpp"
#include "wire.hpp"

namespace tutti::tcp {

class Link;

// A SEND that the kernel has not taken completely, or a RECV.
struct Posted {
  char* data = nullptr;
  uint64_t bytes = 0;
  uint64_t cookie = 0;
  uint32_t mark = 0;

  // Is it the RECV of such a message?
  bool fits(uint64_t message_bytes, uint32_t message_mark) const {
    return bytes == message_bytes && mark == message_mark;
  }
};

class Connection {
 public:
  Connection(Link& link, Stream stream, uint32_t index);

  bool is_open() const { return static_cast<bool>(stream_.socket()); }
  int descriptor() const { return stream_.socket().get(); }
  Link& link() { return link_; }
  uint32_t index() const { return index_; }

  // Is there room for another small frame?
  bool has_room() const { return tail().size() < kTailBytes; }
  // Would the kernel take a frame with `payload` bytes whole and at once? Such a frame may be appended without a
  // completion. A caller that is refused may try again after progress; until then no large payload begins.
  bool takes_whole(size_t payload);
  // May a frame with a copied payload be appended? The kernel takes as much of it as it can.
  bool takes_copies() const { return external_left_ == 0 && !blocked_ && has_room(); }
  // Queues a frame with its payload, copied, after everything that is queued.
  void append(const Frame& frame, const void* payload = nullptr);
  // Completes the SEND that was appended last once the kernel has taken all of it.
  void complete_when_written(const Posted& send);
  // Notes a lane of this socket with waiting SENDs, and one with RECVs to announce.
  void activate(uint32_t lane) { active_.push(lane); }
  void notify(uint32_t lane) { notices_.push(lane); }
  // Writes what can be written now. True when nothing remains that could be written without a new event.
  bool pump();
  // Ends a round of progress: a caller that takes_whole refused in the last round has had its chance.
  void end_round() { small_waits_ = small_waits_ && (blocked_ || external_left_ > 0); }
  bool is_blocked() const { return blocked_; }
  // Was a caller refused by takes_whole, so that it waits for room in the kernel?
  bool is_waited_for() const { return small_waits_; }
  // Are there SENDs that the kernel has not taken completely?
  bool has_unfinished_sends() const { return external_left_ > 0 || !copied_.empty(); }

  // A sentence on bytes that the peer does not acknowledge; "" where nothing is stuck (acknowledgement.hpp).
  std::string stuck() const { return is_open() ? describe(unacknowledged_of(stream_.socket()), route_) : ""; }

  // Reads and handles arrived bytes, up to a bound.
  void read();

  void close();
  // Ends the connection in order: gives the socket and the bytes that are still to be written, a goodbye last. No
  // further SEND begins; a SEND that is written in part is finished from a copy.
  Departure depart();

  // Completes the transfers in progress on this closed socket with an error.
  void end_transfers(tutti_status status);

  // Used by the endpoint.
  bool in_writers = false;      // in the list of sockets to pump
  bool wakes_for_room = false;  // the sleeper wakes for room to write

 private:
  static constexpr size_t kTailBytes = 64 << 10;
  static constexpr size_t kInputBytes = 20 << 10;
  static constexpr size_t kAheadBytes = 1 << 10;    // read beyond a large payload: enough for the next header
  static constexpr size_t kWriteBytes = 512 << 10;  // per pump
  static constexpr int kReads = 4;                  // per read()

  // A SEND that was copied to the staged bytes. `end` is the offset of its end in all bytes of the socket.
  struct Copied {
    uint64_t end = 0;
    Posted send;
  };

  std::vector<char>& tail() { return external_left_ ? next_ : staged_; }
  const std::vector<char>& tail() const { return external_left_ ? next_ : staged_; }
  // Bytes of queued frames without the external payload.
  size_t queued_bytes() const { return staged_.size() - staged_done_ + next_.size(); }
  size_t piece();
  void fill();
  void fill_from(uint32_t lane);
  void written(size_t n);
  void parse();
  void on_frame(const Frame& frame);
  void on_data(const Frame& frame);
  void begin_message(const Frame& frame, std::optional<Posted> receive);
  void finish_message();
  void lost();

  Link& link_;
  Stream stream_;
  const Route route_;  // a socket that has broken does not tell it
  const uint32_t index_;

  // Output, in this order: staged_ from staged_done_, the rest of the external payload, next_, the SENDs of lanes.
  std::vector<char> staged_;
  size_t staged_done_ = 0;
  const char* external_ = nullptr;
  uint64_t external_left_ = 0;
  Posted external_send_;
  std::vector<char> next_;
  uint64_t written_ = 0;      // bytes that the kernel has taken
  sdk::Ring<Copied> copied_;  // not complete yet; always before external_
  uint64_t room_ = 0;         // the kernel has at least this many bytes of memory left for this socket
  bool small_waits_ = false;  // takes_whole has refused a caller
  sdk::Ring<uint32_t> active_;
  sdk::Ring<uint32_t> notices_;
  uint32_t dice_ = 0;        // of piece()
  bool blocked_ = false;     // the kernel took less than was offered
  std::string write_error_;  // writing has failed for good; reading will fail, too

  // Input: bytes that are not parsed yet, and the message that is being received.
  std::unique_ptr<char[]> input_;
  size_t input_begin_ = 0;
  size_t input_end_ = 0;
  std::optional<Frame> message_;
  std::optional<Posted> receive_;  // of message_
  char* target_ = nullptr;         // where the next byte goes; null: discarded
  uint64_t target_left_ = 0;
  std::unique_ptr<char[]> owned_;  // memory of a message without a RECV, or of a control message
  bool departed_ = false;          // the peer said goodbye
};

}  // namespace tutti::tcp
