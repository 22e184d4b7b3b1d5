// SPDX-License-Identifier: Apache-2.0
#include "frame_stream.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/make_failure.hpp"
#include "base/settings.hpp"
#include "base/wire.hpp"
#include "child_descriptors.hpp"

namespace tutti::core {
namespace {
constexpr size_t kHeaderBytes = 16;
constexpr size_t kPieceBytes = 16 << 10;
constexpr size_t kTrimBytes = 256 << 10;
}  // namespace

std::string encode_frame(FrameKind kind, std::string_view payload) {
  return WireWriter().u32(static_cast<uint32_t>(kind)).u32(0).u64(payload.size()).raw(payload).take();
}

std::string encode_error(const Failure& failure) {
  return WireWriter().u32(static_cast<uint32_t>(failure.status)).text(failure.text).take();
}

Failure read_error(const Frame& frame) {
  WireReader reader(frame.payload, "error frame");
  const auto status = static_cast<tutti_status>(reader.u32());
  return Failure(status < 0 ? status : TUTTI_INTERNAL, reader.text());
}

namespace {

// The seconds of silence of a host after which a connection to it ends. A live host's kernel answers, however busy or
// stopped its processes are.
int host_timeout() { return static_cast<int>(number_setting("TUTTI_HOST_TIMEOUT")); }

}  // namespace

FrameStream::FrameStream(FileDescriptor socket, const Tls* tls, bool accepts) : stream_(std::move(socket)) {
  const auto set = [this](int level, int option, int value) {
    // Best effort: a socket that refuses one of these still carries the bytes.
    (void)::setsockopt(fd(), level, option, &value, sizeof value);
  };
  ::fcntl(fd(), F_SETFL, ::fcntl(fd(), F_GETFL) | O_NONBLOCK);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  // A host that vanished sends no end of file.
  const int limit = host_timeout();
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, limit / 4));
  set(IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, limit / 4));
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, limit * 1000);
  if (tls) stream_.start_tls(*tls, accepts);
  close_in_children(fd());
}

FrameStream::~FrameStream() {
  if (!stream_.socket()) return;
  forget_in_children(fd());
  char rest[4096];
  for (int i = 0; i < 256 && ::recv(fd(), rest, sizeof rest, MSG_DONTWAIT) > 0; ++i) {
  }
}

void FrameStream::fill(size_t most) {
  // Drops the bytes that were taken, also if the next frame has begun to arrive every time.
  if (taken_ == in_.size() || taken_ > kTrimBytes) {
    in_.erase(0, taken_);
    taken_ = 0;
  }
  while (!ended() && (most > 0 || stream_.has_pending())) {
    const size_t piece = most > 0 ? std::min(most, kPieceBytes) : kPieceBytes;
    char bytes[kPieceBytes];
    const long read = stream_.read({bytes, piece});
    if (read < 0) end_ = stream_.problem();
    if (read <= 0) return;
    const auto n = static_cast<size_t>(read);
    in_.append(bytes, n);
    traffic_.bytes_received += n;
    most -= std::min(most, n);
    if (n < piece && !stream_.is_encrypted()) return;  // an end, if there is one, is for the next call
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
    throw make_failure(TUTTI_MISMATCH, "a frame of unknown kind {} came", kind);
  if (length > limit)
    throw make_failure(TUTTI_MISMATCH, "a frame of {} bytes came, at most {} are allowed here", length, limit);
  if (buffered() - kHeaderBytes < length) return std::nullopt;
  taken_ += kHeaderBytes;
  ++traffic_.frames_received;
  return Frame{static_cast<FrameKind>(kind), *take(length)};
}

void FrameStream::put(std::string_view bytes) {
  if (ended()) return;
  const bool waits = unsent();
  if (sent_ > kTrimBytes) out_.erase(0, std::exchange(sent_, 0));
  out_ += bytes;
  ++traffic_.frames_sent;
  if (!waits || out_.size() - sent_ <= kMaxUnsent) return;
  end_ = fmt::format("it does not read: {} bytes wait for it", out_.size() - sent_);
  out_.clear();
  ::shutdown(fd(), SHUT_RDWR);  // the poll of this socket then returns
}

void FrameStream::flush() {
  while (sent_ < out_.size() && !ended()) {
    const long n = stream_.write(std::span<const char>(out_).subspan(sent_));
    if (n < 0) {  // bytes that came before the break may still tell why: the verdict is fill()'s
      if (refused()) end_ = stream_.problem();
      out_.clear();
    }
    if (n <= 0) break;
    sent_ += static_cast<size_t>(n);
    traffic_.bytes_sent += static_cast<uint64_t>(n);
  }
  if (sent_ < out_.size() && !ended()) return;
  out_ = std::string();  // frees what a long frame took
  sent_ = 0;
}

}  // namespace tutti::core
