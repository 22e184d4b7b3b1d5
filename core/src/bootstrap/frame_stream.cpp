// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/frame_stream.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bootstrap/wire.hpp"

namespace tutti::core {
namespace {
constexpr size_t kHeaderBytes = 16;
constexpr size_t kPieceBytes = 16 << 10;
}  // namespace

EncodedFrame encode_frame(FrameKind kind, std::string_view payload) {
  return std::make_shared<const std::string>(
      WireWriter().u32(static_cast<uint32_t>(kind)).u32(0).u64(payload.size()).raw(payload).take());
}

FrameStream::FrameStream(Descriptor socket) : socket_(std::move(socket)) {
  const auto set = [this](int level, int option, int value) {
    // Best effort: a socket that refuses one of these still carries the bytes.
    (void)::setsockopt(fd(), level, option, &value, sizeof value);
  };
  ::fcntl(fd(), F_SETFL, ::fcntl(fd(), F_GETFL) | O_NONBLOCK);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);  // a host that vanished sends no end of file
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 3);
  set(IPPROTO_TCP, TCP_KEEPCNT, 5);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 20000);
}

FrameStream::~FrameStream() {
  if (!socket_) return;
  char rest[4096];
  for (int i = 0; i < 256 && ::recv(fd(), rest, sizeof rest, MSG_DONTWAIT) > 0; ++i) {
  }
}

void FrameStream::fill(size_t most) {
  if (taken_ == in_.size()) {
    in_.clear();
    taken_ = 0;
  }
  while (most > 0 && !ended()) {
    const size_t piece = std::min(most, kPieceBytes);
    char bytes[kPieceBytes];
    const ssize_t n = ::recv(fd(), bytes, piece, MSG_DONTWAIT);
    const int error = errno;
    if (n > 0) in_.append(bytes, static_cast<size_t>(n));
    if (n == 0) end_ = "the connection was closed";
    if (n < 0 && error == EINTR) continue;
    if (n < 0 && error != EAGAIN && error != EWOULDBLOCK) end_ = std::strerror(error);
    if (n <= 0) return;
    most -= static_cast<size_t>(n);
    if (static_cast<size_t>(n) < piece) return;  // an end, if there is one, is for the next call
  }
}

std::optional<std::string> FrameStream::take(size_t n) {
  if (buffered() < n) return std::nullopt;
  std::string bytes(peek(n));
  taken_ += n;
  return bytes;
}

std::optional<Frame> FrameStream::next(uint64_t limit) {
  if (buffered() < kHeaderBytes) return std::nullopt;
  WireReader header(peek(kHeaderBytes), "frame header");
  const uint32_t kind = header.u32(), zero = header.u32();
  const uint64_t length = header.u64();
  if (kind < static_cast<uint32_t>(FrameKind::hello) || kind > static_cast<uint32_t>(FrameKind::goodbye) || zero != 0)
    throw Failure(TUTTI_MISMATCH, "a frame of unknown kind " + std::to_string(kind) + " came");
  if (length > limit)
    throw Failure(TUTTI_MISMATCH, "a frame of " + std::to_string(length) + " bytes came, at most " +
                                      std::to_string(limit) + " are allowed here");
  if (buffered() - kHeaderBytes < length) return std::nullopt;
  taken_ += kHeaderBytes;
  return Frame{static_cast<FrameKind>(kind), *take(length)};
}

void FrameStream::put(EncodedFrame bytes) {
  if (!ended()) out_.push_back(std::move(bytes));
}

void FrameStream::flush() {
  while (!out_.empty() && !ended()) {
    const std::string& front = *out_.front();
    const ssize_t n = ::send(fd(), front.data() + sent_, front.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0) {
      // Bytes that came before the break may still tell why: leave the verdict to fill().
      out_.clear();
      sent_ = 0;
      return;
    }
    sent_ += static_cast<size_t>(n);
    if (sent_ == front.size()) {
      out_.pop_front();
      sent_ = 0;
    }
  }
  if (ended()) out_.clear();
}

}  // namespace tutti::core
