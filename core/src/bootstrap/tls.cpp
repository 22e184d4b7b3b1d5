// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/tls.hpp"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>

#include "bootstrap/failure.hpp"

namespace tutti::core {
namespace {

std::string last_reason() {
  const unsigned long code = ERR_peek_last_error();
  const char* text = ERR_reason_error_string(code);
  return text ? text : "error " + std::to_string(code);
}

// OpenSSL's own socket BIO would raise SIGPIPE.
int socket_of(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }

int write_socket(BIO* bio, const char* data, int bytes) {
  BIO_clear_retry_flags(bio);
  ssize_t n;
  do n = ::send(socket_of(bio), data, static_cast<size_t>(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) BIO_set_retry_write(bio);
  return static_cast<int>(n);
}

int read_socket(BIO* bio, char* data, int bytes) {
  BIO_clear_retry_flags(bio);
  ssize_t n;
  do n = ::recv(socket_of(bio), data, static_cast<size_t>(bytes), MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) BIO_set_retry_read(bio);
  return static_cast<int>(n);
}

long control_socket(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

BIO* make_bio(int fd) {
  static BIO_METHOD* method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tutti socket");
    if (made) {
      BIO_meth_set_write(made, write_socket);
      BIO_meth_set_read(made, read_socket);
      BIO_meth_set_ctrl(made, control_socket);
    }
    return made;
  }();
  BIO* bio = method ? BIO_new(method) : nullptr;
  if (bio) {
    BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(fd)));
    BIO_set_init(bio, 1);
  }
  return bio;
}

struct Files {
  const char* certificate;
  const char* key;
  const char* authority;
};

[[noreturn]] void refuse(const char* variable, const std::string& file, const std::string& why) {
  throw Failure(TUTTI_INVALID_ARGUMENT, std::string("bootstrap: ") + variable + "=" + file + ": " + why);
}

void load(SSL_CTX* context, const Files& files) {
  if (SSL_CTX_use_certificate_chain_file(context, files.certificate) != 1)
    refuse("TUTTI_TLS_CERTIFICATE", files.certificate, "no certificate in PEM can be read: " + last_reason());
  // What is out of date is refused by every peer; here the error can name the file.
  const X509* certificate = SSL_CTX_get0_certificate(context);
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
    refuse("TUTTI_TLS_CERTIFICATE", files.certificate, "the certificate has expired: make a new one");
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0)
    refuse("TUTTI_TLS_CERTIFICATE", files.certificate, "the certificate is not valid yet: is this host's clock right?");
  if (SSL_CTX_use_PrivateKey_file(context, files.key, SSL_FILETYPE_PEM) != 1)
    refuse("TUTTI_TLS_KEY", files.key, "no key of TUTTI_TLS_CERTIFICATE can be read: " + last_reason());
  if (SSL_CTX_load_verify_locations(context, files.authority, nullptr) != 1)
    refuse("TUTTI_TLS_CA", files.authority, "no authority's certificate in PEM can be read: " + last_reason());
}

}  // namespace

void Tls::Free::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }
void TlsSession::Free::operator()(ssl_st* ssl) const { SSL_free(ssl); }

std::shared_ptr<const Tls> Tls::make(const std::function<const char*(const char*)>& environment) {
  constexpr const char* names[] = {"TUTTI_TLS_CERTIFICATE", "TUTTI_TLS_KEY", "TUTTI_TLS_CA"};
  const char* set = nullptr;
  for (const char* name : names)
    if (environment(name)) set = name;
  if (!set) return nullptr;
  for (const char* name : names)
    if (const char* value = environment(name); !value || !*value)
      throw Failure(TUTTI_INVALID_ARGUMENT, std::string("bootstrap: ") + set + " is set but " + name +
                                                " is not: TLS needs TUTTI_TLS_CERTIFICATE, TUTTI_TLS_KEY and "
                                                "TUTTI_TLS_CA, each a file");
  auto made = std::make_shared<Tls>();
  ERR_clear_error();
  made->context_.reset(SSL_CTX_new(TLS_method()));
  SSL_CTX* context = made->context_.get();
  if (!context || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1)
    throw Failure(TUTTI_SYSTEM, "bootstrap: OpenSSL offers no TLS 1.3: " + last_reason());
  load(context, {environment(names[0]), environment(names[1]), environment(names[2])});
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // Frames tell an orderly end themselves, and tickets would be bytes that nobody asked for.
  SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  return made;
}

TlsSession::TlsSession(const Tls& tls, int fd, bool accepts) {
  ERR_clear_error();
  ssl_.reset(SSL_new(tls.context()));
  BIO* bio = ssl_ ? make_bio(fd) : nullptr;
  if (!bio) throw Failure(TUTTI_NO_RESOURCES, "bootstrap: OpenSSL cannot start TLS: " + last_reason());
  SSL_set_bio(ssl_.get(), bio, bio);
  if (accepts)
    SSL_set_accept_state(ssl_.get());
  else
    SSL_set_connect_state(ssl_.get());
}

long TlsSession::outcome(int result) {
  if (result > 0) return result;
  const int system = errno;
  const int kind = SSL_get_error(ssl_.get(), result);
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return 0;
  const unsigned long code = ERR_peek_last_error();
  const long verdict = SSL_get_verify_result(ssl_.get());
  refused_ = kind == SSL_ERROR_SSL;
  if (refused_ && verdict != X509_V_OK)
    problem_ = std::string("its certificate is refused (TUTTI_TLS_CA): ") + X509_verify_cert_error_string(verdict);
  else if (refused_ && ERR_GET_REASON(code) >= SSL_AD_REASON_OFFSET)
    problem_ = "it refuses this rank's certificate (TUTTI_TLS_CERTIFICATE): " + last_reason();
  else if (refused_)
    problem_ = "no TLS with it: " + last_reason() + "; do all ranks have TUTTI_TLS_CERTIFICATE?";
  else
    problem_ = kind == SSL_ERROR_SYSCALL && system != 0 ? std::strerror(system) : "the connection was closed";
  return -1;
}

long TlsSession::read(char* to, size_t bytes) {
  ERR_clear_error();
  errno = 0;
  return outcome(SSL_read(ssl_.get(), to, static_cast<int>(std::min<size_t>(bytes, INT_MAX))));
}

long TlsSession::write(const char* from, size_t bytes) {
  ERR_clear_error();
  errno = 0;
  return outcome(SSL_write(ssl_.get(), from, static_cast<int>(std::min<size_t>(bytes, INT_MAX))));
}

bool TlsSession::awaits_handshake() const { return !SSL_is_init_finished(ssl_.get()) && SSL_want_read(ssl_.get()); }

bool TlsSession::has_pending() const { return SSL_pending(ssl_.get()) > 0; }

}  // namespace tutti::core
