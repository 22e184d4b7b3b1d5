// SPDX-License-Identifier: Apache-2.0
#include "stream.hpp"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <tutti/sdk/plugin.hpp>

namespace tutti::tcp {

namespace asio = boost::asio;

namespace {

constexpr int kFirstAlert = SSL_AD_REASON_OFFSET;  // OpenSSL's reasons from here on are alerts that the other end sent

std::string reason_text(unsigned long code) {
  const char* text = ERR_reason_error_string(code);
  return text ? text : "error " + std::to_string(code);
}

std::string last_reason() {
  const unsigned long code = ERR_peek_last_error();
  return code ? reason_text(code) : "no reason given";
}

class TlsCategory final : public boost::system::error_category {
 public:
  const char* name() const noexcept override { return "tls"; }
  std::string message(int reason) const override {
    return reason_text(ERR_PACK(ERR_LIB_SSL, 0, static_cast<unsigned long>(reason)));
  }
};
const TlsCategory& tls_category() {
  static const TlsCategory category;
  return category;
}

// OpenSSL's own socket BIO would raise SIGPIPE.
int write_socket(BIO* bio, const char* data, int bytes) {
  BIO_clear_retry_flags(bio);
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
  ssize_t n;
  do n = ::send(fd, data, static_cast<size_t>(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) BIO_set_retry_write(bio);
  return static_cast<int>(n);
}

int read_socket(BIO* bio, char* data, int bytes) {
  BIO_clear_retry_flags(bio);
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
  ssize_t n;
  do n = ::recv(fd, data, static_cast<size_t>(bytes), MSG_DONTWAIT);
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

[[noreturn]] void refuse(const char* variable, const std::string& file, const std::string& why) {
  throw sdk::Error(TUTTI_INVALID_ARGUMENT, std::string("net-tcp: ") + variable + "=" + file + ": " + why);
}

// A certificate that is out of date is refused by every peer; here the error can name the file.
void check_dates(SSL_CTX* context, const std::string& file) {
  const X509* certificate = SSL_CTX_get0_certificate(context);
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
    refuse("TUTTI_TLS_CERTIFICATE", file, "the certificate has expired: make a new one");
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0)
    refuse("TUTTI_TLS_CERTIFICATE", file, "the certificate is not valid yet: is this host's clock right?");
}

}  // namespace

void Tls::Free::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }
void Stream::Free::operator()(ssl_st* ssl) const { SSL_free(ssl); }

std::shared_ptr<const Tls> Tls::make(const Settings& settings) {
  if (settings.tls_certificate.empty()) return nullptr;
  auto made = std::make_shared<Tls>();
  ERR_clear_error();
  made->context_.reset(SSL_CTX_new(TLS_method()));
  SSL_CTX* context = made->context_.get();
  if (!context || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1)
    throw sdk::Error(TUTTI_SYSTEM, "net-tcp: OpenSSL offers no TLS 1.3: " + last_reason());
  if (SSL_CTX_use_certificate_chain_file(context, settings.tls_certificate.c_str()) != 1)
    refuse("TUTTI_TLS_CERTIFICATE", settings.tls_certificate, "no certificate in PEM can be read: " + last_reason());
  check_dates(context, settings.tls_certificate);
  if (SSL_CTX_use_PrivateKey_file(context, settings.tls_key.c_str(), SSL_FILETYPE_PEM) != 1)
    refuse("TUTTI_TLS_KEY", settings.tls_key, "no key of TUTTI_TLS_CERTIFICATE can be read: " + last_reason());
  if (SSL_CTX_load_verify_locations(context, settings.tls_ca.c_str(), nullptr) != 1)
    refuse("TUTTI_TLS_CA", settings.tls_ca, "no authority's certificate in PEM can be read: " + last_reason());
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // Frames tell an orderly end themselves, and tickets would be bytes that nobody asked for.
  SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  return made;
}

Stream::Stream(Socket socket) : socket_(std::move(socket)) {}

void Stream::start_tls(const Tls& tls, bool accepts) {
  ERR_clear_error();
  ssl_.reset(SSL_new(tls.context()));
  BIO* bio = ssl_ ? make_bio(socket_.native_handle()) : nullptr;
  if (!bio) throw sdk::Error(TUTTI_NO_RESOURCES, "OpenSSL cannot start TLS: " + last_reason());
  SSL_set_bio(ssl_.get(), bio, bio);
  if (accepts)
    SSL_set_accept_state(ssl_.get());
  else
    SSL_set_connect_state(ssl_.get());
}

bool Stream::shake_hands() {
  if (!ssl_) return true;
  ERR_clear_error();
  errno = 0;
  const int result = SSL_do_handshake(ssl_.get());
  if (result == 1) return true;
  const int kind = SSL_get_error(ssl_.get(), result);
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return false;
  const std::string reason = last_reason();
  const long verdict = SSL_get_verify_result(ssl_.get());
  // What has come and was not read would make the kernel reset the connection, and the reason that TLS has just sent
  // would be lost with it.
  std::array<char, 4096> rest;
  while (::recv(socket_.native_handle(), rest.data(), rest.size(), MSG_DONTWAIT) > 0) {
  }
  if (verdict != X509_V_OK)
    throw sdk::Error(TUTTI_MISMATCH, std::string("its certificate is refused (TUTTI_TLS_CA): ") +
                                         X509_verify_cert_error_string(verdict));
  if (kind != SSL_ERROR_SSL) throw sdk::Error(TUTTI_PEER_FAILED, "it hung up during the TLS handshake");
  throw sdk::Error(TUTTI_MISMATCH, "no TLS with it: " + reason + "; do all ranks have TUTTI_TLS_CERTIFICATE?");
}

size_t Stream::outcome(int result, boost::system::error_code& error) {
  if (result > 0) return static_cast<size_t>(result);
  const int system = errno;
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      error = asio::error::would_block;
      break;
    case SSL_ERROR_SSL:
      error.assign(ERR_GET_REASON(ERR_peek_last_error()), tls_category());
      break;
    case SSL_ERROR_SYSCALL:
      if (system != 0) {
        error.assign(system, boost::system::system_category());
        break;
      }
      [[fallthrough]];
    default:
      error = asio::error::eof;
  }
  return 0;
}

size_t Stream::read_some(asio::mutable_buffer first, asio::mutable_buffer second, boost::system::error_code& error) {
  error = {};
  if (!ssl_) {
    if (first.size() == 0) return socket_.read_some(second, error);
    return socket_.read_some(std::array<asio::mutable_buffer, 2>{first, second}, error);
  }
  const asio::mutable_buffer into = first.size() ? first : second;
  ERR_clear_error();
  errno = 0;
  return outcome(SSL_read(ssl_.get(), into.data(), static_cast<int>(std::min<size_t>(into.size(), INT_MAX))), error);
}

size_t Stream::write_some(asio::const_buffer first, asio::const_buffer second, boost::system::error_code& error) {
  error = {};
  if (!ssl_) {
    if (first.size() == 0) return socket_.write_some(second, error);
    if (second.size() == 0) return socket_.write_some(first, error);
    return socket_.write_some(std::array<asio::const_buffer, 2>{first, second}, error);
  }
  const asio::const_buffer from = first.size() ? first : second;
  ERR_clear_error();
  errno = 0;
  return outcome(SSL_write(ssl_.get(), from.data(), static_cast<int>(std::min<size_t>(from.size(), INT_MAX))), error);
}

bool is_refusal(const boost::system::error_code& error) {
  return error.category() == tls_category() && error.value() >= kFirstAlert;
}

}  // namespace tutti::tcp
