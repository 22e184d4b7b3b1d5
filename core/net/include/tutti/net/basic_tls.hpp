// SPDX-License-Identifier: Apache-2.0
//
// TLS 1.3 over a non-blocking socket, with both ends showing a certificate: TUTTI_TLS_CERTIFICATE, TUTTI_TLS_KEY and
// TUTTI_TLS_CA name the PEM files. Names in certificates are not compared. A program that includes this links
// OpenSSL::SSL.
//
// The core's control connections and a transport's data connections treat certificates alike, by this header.
// Each side names the exception that it throws: `Error` is constructed from a status and a text.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>
#include <tutti/plugin/types.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <memory>
#include <string>
#include <tutti/base/system_text.hpp>

namespace tutti {

// This rank's certificate and key, and the authority whose certificates it accepts. [any thread]
template <typename Error>
class BasicTls {
 public:
  // `setting(name)` gives a setting's value as std::optional<std::string>. nullptr when none of the three is set:
  // there is no TLS then. Throws Error that names `who`, the setting, the file and what is wrong.
  template <typename Setting>
  static std::shared_ptr<const BasicTls> make(const std::string& who, Setting&& setting) {
    constexpr const char* names[] = {"TUTTI_TLS_CERTIFICATE", "TUTTI_TLS_KEY", "TUTTI_TLS_CA"};
    const char* set = nullptr;
    std::string files[3];
    for (const char* name : names)
      if (setting(name)) set = name;
    if (!set) return nullptr;
    for (int i = 0; i < 3; ++i) {
      files[i] = setting(names[i]).value_or("");
      if (files[i].empty())  // half a set would be read as safer than it is
        throw Error(TUTTI_INVALID_ARGUMENT, who + ": " + set + " is set but " + names[i] +
                                                " is not: TLS needs TUTTI_TLS_CERTIFICATE, TUTTI_TLS_KEY and "
                                                "TUTTI_TLS_CA, each a file");
    }
    return std::make_shared<const BasicTls>(who, files[0], files[1], files[2]);
  }
  BasicTls(const std::string& who, const std::string& certificate, const std::string& key, const std::string& authority)
      : who_(who) {
    const auto refuse = [&](const char* name, const std::string& file, const std::string& why) {
      return Error(TUTTI_INVALID_ARGUMENT, who + ": " + name + "=" + file + ": " + why);
    };
    ERR_clear_error();
    context_.reset(SSL_CTX_new(TLS_method()));
    SSL_CTX* context = context_.get();
    if (!context || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1)
      throw Error(TUTTI_SYSTEM, who + ": OpenSSL offers no TLS 1.3: " + reason());
    if (SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) != 1)
      throw refuse("TUTTI_TLS_CERTIFICATE", certificate, "no certificate in PEM can be read: " + reason());
    // A certificate that is out of date is refused by every peer; here the error can name the file.
    const X509* own = SSL_CTX_get0_certificate(context);
    if (X509_cmp_current_time(X509_get0_notAfter(own)) < 0)
      throw refuse("TUTTI_TLS_CERTIFICATE", certificate, "the certificate has expired: make a new one");
    if (X509_cmp_current_time(X509_get0_notBefore(own)) > 0)
      throw refuse("TUTTI_TLS_CERTIFICATE", certificate,
                   "the certificate is not valid yet: is this host's clock right?");
    if (SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1)
      throw refuse("TUTTI_TLS_KEY", key, "no key of TUTTI_TLS_CERTIFICATE can be read: " + reason());
    if (SSL_CTX_load_verify_locations(context, authority.c_str(), nullptr) != 1)
      throw refuse("TUTTI_TLS_CA", authority, "no authority's certificate in PEM can be read: " + reason());
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    // The protocols above tell an orderly end themselves, and tickets would be bytes that nobody asked for.
    SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_num_tickets(context, 0);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  }
  SSL_CTX* context() const { return context_.get(); }
  // How texts of errors begin.
  const std::string& who() const { return who_; }
  // OpenSSL's latest error in this thread.
  static std::string reason() {
    const unsigned long code = ERR_peek_last_error();
    const char* text = ERR_reason_error_string(code);
    return text ? text : code ? "error " + std::to_string(code) : "no reason given";
  }

 private:
  struct ContextDeleter {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };
  std::string who_;
  std::unique_ptr<SSL_CTX, ContextDeleter> context_;
};

// One connection's TLS. The socket stays its owner's, who closes it afterwards. The handshake goes on with every read
// and write.
template <typename Error>
class BasicTlsSession {
  using Context = BasicTls<Error>;

 public:
  // One of the two ends accepts. Throws Error{TUTTI_NO_RESOURCES}.
  BasicTlsSession(const Context& tls, int fd, bool accepts) : fd_(fd) {
    ERR_clear_error();
    ssl_.reset(SSL_new(tls.context()));
    BIO* bio = ssl_ ? make_bio(fd) : nullptr;
    if (!bio) throw Error(TUTTI_NO_RESOURCES, tls.who() + ": OpenSSL cannot start TLS: " + Context::reason());
    SSL_set_bio(ssl_.get(), bio, bio);
    if (accepts)
      SSL_set_accept_state(ssl_.get());
    else
      SSL_set_connect_state(ssl_.get());
  }

  // Bytes moved; 0: none now; -1: the connection is over, and problem() tells why.
  long read(char* to, size_t bytes) {
    ERR_clear_error();
    errno = 0;
    return outcome(SSL_read(ssl_.get(), to, static_cast<int>(std::min<size_t>(bytes, INT_MAX))));
  }
  long write(const char* from, size_t bytes) {
    ERR_clear_error();
    errno = 0;
    return outcome(SSL_write(ssl_.get(), from, static_cast<int>(std::min<size_t>(bytes, INT_MAX))));
  }
  // Nothing can be written before the other end has said more: room in the socket does not help.
  bool awaits_handshake() const { return !SSL_is_init_finished(ssl_.get()) && SSL_want_read(ssl_.get()); }
  // Are there bytes to read that the socket itself no longer shows?
  bool has_pending() const { return SSL_pending(ssl_.get()) > 0; }
  const std::string& problem() const { return problem_; }
  // Did it end because one of the two does not accept the other? Another attempt would end the same way.
  bool refused() const { return refused_; }

 private:
  struct SessionDeleter {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  // OpenSSL's socket BIO, but no write of it raises SIGPIPE.
  static BIO* make_bio(int fd) {
    static const BIO_METHOD* method = [] {
      const BIO_METHOD* socket = BIO_s_socket();
      BIO_METHOD* made = BIO_meth_new(BIO_TYPE_SOCKET, "tutti socket");
      if (!made) return made;
      BIO_meth_set_write(made, [](BIO* bio, const char* data, int bytes) {
        BIO_clear_retry_flags(bio);
        const int to = static_cast<int>(BIO_get_fd(bio, nullptr));
        const auto n = static_cast<int>(::send(to, data, static_cast<size_t>(bytes), MSG_NOSIGNAL | MSG_DONTWAIT));
        if (n < 0 && BIO_sock_should_retry(n)) BIO_set_retry_write(bio);
        return n;
      });
      BIO_meth_set_read(made, BIO_meth_get_read(socket));
      BIO_meth_set_ctrl(made, BIO_meth_get_ctrl(socket));
      BIO_meth_set_create(made, BIO_meth_get_create(socket));
      BIO_meth_set_destroy(made, BIO_meth_get_destroy(socket));
      return made;
    }();
    BIO* bio = method ? BIO_new(method) : nullptr;
    if (bio) BIO_set_fd(bio, fd, BIO_NOCLOSE);
    return bio;
  }

  long outcome(int result) {
    if (result > 0) return result;
    const int system = errno, kind = SSL_get_error(ssl_.get(), result);
    if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return 0;
    const int reason = ERR_GET_REASON(ERR_peek_last_error());
    const long verdict = SSL_get_verify_result(ssl_.get());
    refused_ = kind == SSL_ERROR_SSL;
    if (refused_ && verdict != X509_V_OK)
      problem_ = std::string("its certificate is refused (TUTTI_TLS_CA): ") + X509_verify_cert_error_string(verdict);
    else if (refused_ && reason >= SSL_AD_REASON_OFFSET)  // it said so, after the handshake perhaps
      problem_ = "it refuses this rank's certificate (TUTTI_TLS_CERTIFICATE): " + Context::reason();
    else if (refused_)
      problem_ = "no TLS with it: " + Context::reason() + "; do all ranks have TUTTI_TLS_CERTIFICATE?";
    else
      problem_ = kind == SSL_ERROR_SYSCALL && system != 0
                     ? "the connection broke: " + system_text(system)
                     : "the connection was closed by the peer";
    // Bytes that have come and were not read would make the kernel reset the connection, and the reason that TLS has
    // just sent would be lost with it.
    for (char rest[4096]; refused_ && ::recv(fd_, rest, sizeof rest, MSG_DONTWAIT) > 0;) {
    }
    return -1;
  }

  int fd_;
  std::unique_ptr<SSL, SessionDeleter> ssl_;
  std::string problem_;
  bool refused_ = false;
};

}  // namespace tutti
