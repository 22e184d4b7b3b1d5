// SPDX-License-Identifier: Apache-2.0
//
// One socket of a link: turns frames into bytes and back. Writes go out at once as far as the kernel takes them; large
// payloads travel without a copy between the socket and the caller's memory. Never blocks.
#pragma once

#include <tutti/sdk/ring.hpp>
#include <utility>
// Boost 1.74 needs <utility> first.
#include <boost/asio/error.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stream.hpp"
#include "wire.hpp"

namespace tutti::tcp {

class Link;

// A SEND that is not yet (wholly) in the kernel's hands.
struct Send {
  const char* data = nullptr;
  uint64_t bytes = 0;
  uint64_t cookie = 0;
};

// A RECV.
struct Receive {
  char* data = nullptr;
  uint64_t bytes = 0;
  uint64_t cookie = 0;
};

class Connection {
 public:
  Connection(Link& link, Stream stream, uint32_t index);

  bool is_open() const { return stream_.socket().is_open(); }
  int descriptor() { return stream_.socket().native_handle(); }
  Link& link() { return link_; }
  uint32_t index() const { return index_; }

  // Is there room for another small frame?
  bool has_room() const { return tail().size() < kTailBytes; }
  // Queues a frame with its payload, copied, after everything that is queued.
  void append(const Frame& frame, const void* payload = nullptr);
  // A lane of this socket has SENDs that wait; a lane has RECVs to tell the peer of.
  void activate(uint32_t lane) { active_.push(lane); }
  void notify(uint32_t lane) { notices_.push(lane); }
  // Writes what can be written now. True when nothing is left that could be written later without other news.
  bool pump();
  bool is_blocked() const { return blocked_; }
  // Bytes of frames that are queued here, the unfinished SEND's not counted.
  size_t queued_bytes() const { return staged_.size() - staged_done_ + next_.size(); }
  bool sends_payload() const { return external_left_ > 0; }

  // Reads and handles what has arrived, up to a bound.
  void read();

  void close();
  // For an orderly end: says that nothing follows and shuts the sending side. False when a payload is half sent.
  bool say_goodbye();
  // Throws arrived bytes away; true once the kernel has delivered all of ours, or the peer is gone.
  bool drained();
  bool has_departed() const { return departed_; }

  // The transfers in progress on this socket, for whoever has to end them.
  bool take_unfinished_send(Send& send);
  bool take_unfinished_receive(Receive& receive);

  bool in_writers = false;    // the endpoint's mark: is it in the list of those to pump?
  bool wants_wakeup = false;  // the endpoint's mark: does the poller watch for room to write?

 private:
  static constexpr size_t kTailBytes = 64 << 10;
  static constexpr size_t kInputBytes = 20 << 10;
  static constexpr size_t kAheadBytes = 1 << 10;    // read beyond a large payload: the next header and little more
  static constexpr size_t kWriteBytes = 512 << 10;  // per pump
  static constexpr int kReads = 4;                  // per read()

  std::vector<char>& tail() { return external_left_ ? next_ : staged_; }
  const std::vector<char>& tail() const { return external_left_ ? next_ : staged_; }
  void fill();
  void fill_from(uint32_t lane);
  void written(size_t n);
  void parse();
  void on_frame(const Frame& frame);
  void on_data(const Frame& frame);
  void finish_message();
  void lost(const boost::system::error_code& error);

  Link& link_;
  Stream stream_;
  const uint32_t index_;

  // Output: staged_ from staged_done_, then the rest of the external payload, then next_, then what lanes have.
  std::vector<char> staged_;
  size_t staged_done_ = 0;
  const char* external_ = nullptr;
  uint64_t external_left_ = 0;
  Send external_send_;
  std::vector<char> next_;
  sdk::Ring<uint32_t> active_;
  sdk::Ring<uint32_t> notices_;
  bool blocked_ = false;       // the kernel took less than it was given
  bool write_broken_ = false;  // reading will tell why
  std::string write_error_;

  // Input: bytes read but not parsed, and the message that is under way.
  std::unique_ptr<char[]> input_;
  size_t input_begin_ = 0;
  size_t input_end_ = 0;
  bool in_message_ = false;
  Frame message_{};
  char* target_ = nullptr;  // where the next byte goes; null: thrown away
  uint64_t target_left_ = 0;
  bool has_receive_ = false;  // message_ has met receive_
  Receive receive_;
  std::unique_ptr<char[]> owned_;  // the message's memory when it has met no RECV, or is a control message
  bool departed_ = false;          // the peer said goodbye
};

}  // namespace tutti::tcp
