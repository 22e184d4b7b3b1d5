// SPDX-License-Identifier: Apache-2.0
//
// Sockets: close-on-exec, non-blocking, with the options of the settings. A stream is a connected socket that carries
// bytes in clear or under TLS.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <tutti/sdk/descriptors.hpp>
#include <tutti/sdk/tls.hpp>

#include "address.hpp"
#include "settings.hpp"

namespace tutti::tcp {

using Socket = sdk::FileDescriptor;

// Listens at an address, on the first free port of the settings, and stores the port in `at`. Throws sdk::Error.
Socket listen(Where& at, const Settings& settings);
// Accepts the next connection and stores its source in `from`. Empty, with errno set, when there is none.
Socket accept(const Socket& listener, const Settings& settings, Where& from);
// Begins to connect. The socket becomes writable when the outcome is known. Throws sdk::Error.
Socket start_connecting(const Where& to, const Settings& settings);
// True once the socket is connected. Throws sdk::Error when connecting has failed.
bool has_connected(const Socket& socket);

class Stream {
 public:
  Stream() = default;
  explicit Stream(Socket socket) : socket_(std::move(socket)) {}

  // Encrypts everything from here on. Exactly one of the two ends passes `accepts`. Throws sdk::Error.
  void start_tls(const sdk::Tls& tls, bool accepts) {
    tls_ = std::make_unique<sdk::TlsSession>(tls, socket_.get(), accepts);
  }
  bool is_encrypted() const { return tls_ != nullptr; }

  // Moves bytes into (or from) `first`, then `second`; at least one of them is not empty. Returns the number of bytes
  // moved; 0: none now; -1: the connection is over, and problem() says why.
  long read(std::span<char> first, std::span<char> second = {});
  long write(std::span<const char> first, std::span<const char> second = {});
  // "the connection was closed by the peer", "the connection broke: Connection reset by peer"
  const std::string& problem() const { return tls_ ? tls_->problem() : problem_; }
  // Did one end refuse the other by a TLS alert?
  bool is_refused() const { return tls_ && tls_->refused(); }
  // Has TLS buffered bytes that polling the socket does not show?
  bool has_pending() const { return tls_ && tls_->has_pending(); }

  Socket& socket() { return socket_; }
  const Socket& socket() const { return socket_; }

 private:
  long outcome(long result);

  Socket socket_;
  std::unique_ptr<sdk::TlsSession> tls_;
  std::string problem_;
};

}  // namespace tutti::tcp
