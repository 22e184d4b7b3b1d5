// SPDX-License-Identifier: Apache-2.0
//
// A connected socket that carries bytes as they are or, where certificates are given, under TLS 1.3 with both ends
// showing one. Never blocks.
#pragma once

#include <openssl/ssl.h>

#include <utility>
// Boost 1.74 needs <utility> first.
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>

#include "settings.hpp"

namespace tutti::tcp {

using Socket = boost::asio::ip::tcp::socket;

// This rank's certificate and key, and the authority whose certificates it accepts. [any thread]
class Tls {
 public:
  // nullptr where the settings name no certificate. Throws sdk::Error naming the variable, the file and what is wrong.
  static std::shared_ptr<const Tls> make(const Settings& settings);
  ssl_ctx_st* context() const { return context_.get(); }

 private:
  struct Free {
    void operator()(ssl_ctx_st* context) const;
  };
  std::unique_ptr<ssl_ctx_st, Free> context_;
};

class Stream {
 public:
  explicit Stream(Socket socket);

  // Everything from here on is encrypted. The two ends must call it with different roles. Throws sdk::Error.
  void start_tls(const Tls& tls, bool accepts);
  bool is_encrypted() const { return ssl_ != nullptr; }
  // Goes on with the TLS handshake: true when it is done (at once without TLS). Throws sdk::Error with the reason when
  // there can be none.
  bool shake_hands();

  // As Socket's: would_block, eof or another error in `error`; a short count is no error.
  size_t read_some(boost::asio::mutable_buffer first, boost::asio::mutable_buffer second,
                   boost::system::error_code& error);
  size_t write_some(boost::asio::const_buffer first, boost::asio::const_buffer second,
                    boost::system::error_code& error);
  // Are there bytes to read that the socket itself no longer shows?
  bool has_pending() const { return ssl_ && SSL_pending(ssl_.get()) > 0; }

  Socket& socket() { return socket_; }
  const Socket& socket() const { return socket_; }

 private:
  struct Free {
    void operator()(ssl_st* ssl) const;
  };
  size_t outcome(int result, boost::system::error_code& error);

  Socket socket_;
  std::unique_ptr<ssl_st, Free> ssl_;
};

// Did the other end refuse this rank in words of TLS? A refused certificate is told only after the handshake.
bool is_refusal(const boost::system::error_code& error);

}  // namespace tutti::tcp
