// SPDX-License-Identifier: Apache-2.0
//
// TLS 1.3 under the frames of bootstrap and control plane, where certificates are given. Both ends show one.
#pragma once
#include <functional>
#include <memory>
#include <string>

struct ssl_ctx_st;
struct ssl_st;

namespace tutti::core {

// This rank's certificate and key, and the authority whose certificates it accepts. Any thread.
class Tls {
 public:
  // nullptr when none of TUTTI_TLS_CERTIFICATE, TUTTI_TLS_KEY and TUTTI_TLS_CA is set. Throws
  // Failure{TUTTI_INVALID_ARGUMENT} naming the variable, the file and what is wrong.
  static std::shared_ptr<const Tls> make(const std::function<const char*(const char* name)>& environment);
  ssl_ctx_st* context() const { return context_.get(); }

 private:
  struct Free {
    void operator()(ssl_ctx_st* context) const;
  };
  std::unique_ptr<ssl_ctx_st, Free> context_;
};

// One connection's TLS over a non-blocking socket, which stays its owner's. The handshake goes on with every call.
class TlsSession {
 public:
  TlsSession(const Tls& tls, int fd, bool accepts);

  // As recv and send: bytes moved, 0 when none can be now; -1 when the connection is over, with why in problem().
  long read(char* to, size_t bytes);
  long write(const char* from, size_t bytes);
  // Nothing can be written before the other end has said more: room in the socket does not help.
  bool awaits_handshake() const;
  // Are there bytes to read that the socket itself no longer shows?
  bool has_pending() const;
  const std::string& problem() const { return problem_; }
  // Did it end because one of the two does not accept the other? Another attempt would end the same way.
  bool refused() const { return refused_; }

 private:
  struct Free {
    void operator()(ssl_st* ssl) const;
  };
  long outcome(int result);

  std::unique_ptr<ssl_st, Free> ssl_;
  std::string problem_;
  bool refused_ = false;
};

}  // namespace tutti::core
