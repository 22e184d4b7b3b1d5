// SPDX-License-Identifier: Apache-2.0
#include "wire.hpp"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <tutti/sdk/plugin.hpp>

namespace tutti::shm {

Packet Socket::receive() noexcept {
  Packet packet;
  iovec piece{packet.data.data(), packet.data.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxDescriptors)];
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got;
  do got = recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got <= 0) {
    packet.outcome = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? Packet::kNothing : Packet::kClosed;
    return packet;
  }
  packet.outcome = Packet::kHere;
  packet.bytes = static_cast<size_t>(got);
  packet.truncated = message.msg_flags & (MSG_TRUNC | MSG_CTRUNC);
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      FileDescriptor owned(fd);
      if (packet.descriptor_count < kMaxDescriptors) packet.descriptors[packet.descriptor_count++] = std::move(owned);
    }
  }
  return packet;
}

Socket::Sent Socket::send_bytes(const void* data, size_t bytes, std::span<const int> descriptors) noexcept {
  iovec piece{const_cast<void*>(data), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxDescriptors)]{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(c), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent;
  do sent = sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(bytes)) return kSent;
  // ETOOMANYREFS: more descriptors are under way than this user may have; they leave as the peer reads.
  return sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ETOOMANYREFS) ? kFull
                                                                                                            : kGone;
}

void Socket::refuse(std::string_view why) noexcept {
  Refused refused;
  why.copy(refused.why, sizeof refused.why - 1);
  send(refused);
}

void random_bytes(void* to, size_t bytes) {
  if (getrandom(to, bytes, 0) != static_cast<ssize_t>(bytes)) throw sdk::system_error("shm: getrandom", errno);
}

Digest make_proof(std::string_view secret, char role, const Terms& active, const Terms& passive) {
  std::array<uint8_t, 1 + 2 * sizeof(Terms)> text;
  text[0] = static_cast<uint8_t>(role);
  std::memcpy(text.data() + 1, &active, sizeof active);
  std::memcpy(text.data() + 1 + sizeof active, &passive, sizeof passive);
  Digest digest;
  unsigned length = digest.size();
  if (!HMAC(EVP_sha256(), secret.empty() ? "" : secret.data(), static_cast<int>(secret.size()), text.data(),
            text.size(), digest.data(), &length) ||
      length != digest.size())
    throw sdk::Error(TUTTI_INTERNAL, "shm: libcrypto could not compute an HMAC-SHA-256");
  return digest;
}

bool equal_digests(const Digest& a, const Digest& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

Address local_place() {
  Address place{};
  place.magic = kWireMagic;
  place.version = kWireVersion;
  place.uid = geteuid();
  place.pid = static_cast<uint32_t>(getpid());
  const FileDescriptor boot(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  char text[37]{};
  if (!boot || read(boot.get(), text, 36) != 36)
    throw sdk::system_error(
        "shm: reading /proc/sys/kernel/random/boot_id, by which ranks know that they are on one host", errno);
  size_t digit = 0;
  for (const char c : std::string_view(text, 36)) {
    if (c == '-') continue;
    const int value = c >= 'a' ? c - 'a' + 10 : c - '0';
    if (digit < 32) place.boot_id[digit / 2] = static_cast<uint8_t>(place.boot_id[digit / 2] << 4 | value);
    digit++;
  }
  struct stat status{};
  if (stat("/proc/self/ns/net", &status) != 0) throw sdk::system_error("shm: reading /proc/self/ns/net", errno);
  place.network_namespace = status.st_ino;
  return place;
}

namespace {
// The abstract name: a leading zero byte, then text without an end.
socklen_t fill_name(sockaddr_un& to, const Address& address) {
  std::string name = "tutti-shm-";
  for (const uint8_t byte : address.name) {
    name += "0123456789abcdef"[byte >> 4];
    name += "0123456789abcdef"[byte & 15];
  }
  to.sun_family = AF_UNIX;
  name.copy(to.sun_path + 1, sizeof to.sun_path - 1);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}
}  // namespace

FileDescriptor listen_at(const Address& address) {
  FileDescriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_un name{};
  const socklen_t length = fill_name(name, address);
  if (!fd || bind(fd.get(), reinterpret_cast<sockaddr*>(&name), length) != 0 || listen(fd.get(), SOMAXCONN) != 0)
    throw sdk::system_error("shm: listening on a unix socket", errno);
  return fd;
}

std::optional<Socket> connect_to(const Address& address) {
  FileDescriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) throw sdk::system_error("shm: a unix socket", errno);
  sockaddr_un name{};
  const socklen_t length = fill_name(name, address);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&name), length) != 0) {
    if (errno == EAGAIN || errno == EINTR) return std::nullopt;
    const std::string who =
        "shm: rank " + std::to_string(address.rank) + " (process " + std::to_string(address.pid) + ")";
    if (errno == ECONNREFUSED) throw sdk::Error(TUTTI_PEER_FAILED, who + " does not listen any more; has it ended?");
    throw sdk::system_error("connecting to " + who, errno);
  }
  return Socket(std::move(fd));
}

bool same_user(int fd) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 && credentials.uid == geteuid();
}

}  // namespace tutti::shm
