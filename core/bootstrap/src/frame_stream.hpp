// SPDX-License-Identifier: Apache-2.0
//
// A non-blocking socket that carries fixed-length bytes first and then frames: {kind, zero, length} and `length` bytes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tutti/base/file_descriptor.hpp>
#include <tutti/net/basic_stream.hpp>

#include "base/failure.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/traffic.hpp"

namespace tutti::core {

enum class FrameKind : uint32_t {
  hello = 1,     // the rank that connects: what it is
  welcome = 2,   // the rank that listens: the hello was accepted
  error = 3,     // ... or not: status and text
  contacts = 4,  // rank 0: all ranks are here, and how rank 0 and the next rank are reached
  met = 5,       // to rank 0: the sender is linked, and no longer needs this connection
  address = 6,   // to a neighbour: how the rank is reached that is as far beyond the sender
  packet = 7,
  goodbye = 8  // an orderly end
};

struct Frame {
  FrameKind kind;
  std::string payload;
};

std::string encode_frame(FrameKind kind, std::string_view payload);

// Payload of an error frame: a status and a text.
std::string encode_error(const Failure& failure);
Failure read_error(const Frame& frame);

class FrameStream {
 public:
  // Takes a connected socket and makes it non-blocking, prompt (TCP_NODELAY) and aware of a dead peer (keep-alive).
  // With `tls` everything is encrypted; the two ends must differ in `accepts`.
  explicit FrameStream(FileDescriptor socket, const Tls* tls = nullptr, bool accepts = false);
  FrameStream(FrameStream&&) = default;
  FrameStream& operator=(FrameStream&&) = default;
  // Reads what still lies in the socket first: closing with unread bytes would reset the connection under the peer.
  ~FrameStream();

  int fd() const { return stream_.socket().get(); }

  // Reads what is there, at most `most` bytes, without blocking; under TLS a little more, which no poll would tell of.
  void fill(size_t most);
  // The same until `bytes` are buffered.
  void fill_to(size_t bytes) {
    if (buffered() < bytes) fill(bytes - buffered());
  }
  // The connection ended or broke: no more bytes come. Frames that were read before are still available.
  bool ended() const { return !end_.empty(); }
  const std::string& end() const { return end_; }
  // Did it end because one of the two ends does not accept the other's certificate?
  bool refused() const { return stream_.is_refused(); }

  size_t buffered() const { return in_.size() - taken_; }
  std::string_view peek(size_t n) const { return std::string_view(in_).substr(taken_, n); }
  // Exactly n raw bytes when they are there.
  std::optional<std::string> take(size_t n);
  // The next whole frame when it is there. Throws Failure{TUTTI_MISMATCH} at a length above `limit` or an ill header.
  std::optional<Frame> next(uint64_t limit);

  // An end that does not read what waits for it, kMaxUnsent bytes or more, is given up.
  void put(std::string_view bytes);
  void put(FrameKind kind, std::string_view payload) { put(encode_frame(kind, payload)); }
  // Writes what the socket takes without blocking.
  void flush();
  bool unsent() const { return !out_.empty(); }
  // ... and room in the socket is what they wait for.
  bool wants_room() const { return unsent() && !stream_.awaits_handshake(); }

  // The traffic so far. A frame counts as sent when it is put.
  const Traffic& traffic() const { return traffic_; }

  static constexpr uint64_t kMaxUnsent = 64 << 20;

 private:
  BasicStream<Failure> stream_;
  std::string in_;
  size_t taken_ = 0;
  std::string out_;  // not sent yet, from sent_ on
  size_t sent_ = 0;
  std::string end_;
  Traffic traffic_;
};

}  // namespace tutti::core
