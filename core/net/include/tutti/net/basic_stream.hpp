// SPDX-License-Identifier: Apache-2.0
//
// A connected, non-blocking socket that carries bytes in clear or under TLS (basic_tls.hpp, also for `Error`).
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <memory>
#include <span>
#include <string>
#include <tutti/base/file_descriptor.hpp>
#include <tutti/base/system_text.hpp>
#include <tutti/net/basic_tls.hpp>
#include <utility>

namespace tutti {

template <typename Error>
class BasicStream {
 public:
  BasicStream() = default;
  explicit BasicStream(FileDescriptor socket) : socket_(std::move(socket)) {}

  // Encrypts everything from here on. Exactly one of the two ends passes `accepts`. Throws Error.
  void start_tls(const BasicTls<Error>& tls, bool accepts) {
    tls_ = std::make_unique<BasicTlsSession<Error>>(tls, socket_.get(), accepts);
  }
  bool is_encrypted() const { return tls_ != nullptr; }

  // Moves bytes into (or from) `first`, then `second`; at least one of them is not empty. Returns the number of bytes
  // moved; 0: none now; -1: the connection is over, and problem() says why.
  long read(std::span<char> first, std::span<char> second = {}) {
    const std::span<char> into = first.empty() ? second : first;
    if (tls_) return tls_->read(into.data(), into.size());
    if (first.empty() || second.empty()) return outcome(::recv(socket_.get(), into.data(), into.size(), 0));
    const iovec parts[] = {{first.data(), first.size()}, {second.data(), second.size()}};
    return outcome(::readv(socket_.get(), parts, 2));
  }
  long write(std::span<const char> first, std::span<const char> second = {}) {
    const std::span<const char> from = first.empty() ? second : first;
    if (tls_) return tls_->write(from.data(), from.size());
    if (first.empty() || second.empty()) return outcome(::send(socket_.get(), from.data(), from.size(), MSG_NOSIGNAL));
    iovec parts[] = {{const_cast<char*>(first.data()), first.size()},
                     {const_cast<char*>(second.data()), second.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    return outcome(::sendmsg(socket_.get(), &message, MSG_NOSIGNAL));
  }
  // "the connection was closed by the peer", "the connection broke: Connection reset by peer"
  const std::string& problem() const { return tls_ ? tls_->problem() : problem_; }
  // Did one end refuse the other by a TLS alert?
  bool is_refused() const { return tls_ && tls_->refused(); }
  // Has TLS buffered bytes that polling the socket does not show?
  bool has_pending() const { return tls_ && tls_->has_pending(); }
  // Can nothing be written before the other end has said more? Room in the socket does not help then.
  bool awaits_handshake() const { return tls_ && tls_->awaits_handshake(); }

  FileDescriptor& socket() { return socket_; }
  const FileDescriptor& socket() const { return socket_; }

 private:
  long outcome(long result) {
    if (result > 0) return result;
    if (result < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    problem_ = result == 0 ? "the connection was closed by the peer" : "the connection broke: " + system_text(errno);
    return -1;
  }

  FileDescriptor socket_;
  std::unique_ptr<BasicTlsSession<Error>> tls_;
  std::string problem_;
};

}  // namespace tutti
