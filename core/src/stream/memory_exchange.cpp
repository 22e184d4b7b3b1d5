// SPDX-License-Identifier: Apache-2.0
#include "stream/memory_exchange.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "bootstrap/authentication.hpp"

namespace tutti::core {
namespace {

constexpr size_t most_descriptors = 2;

struct Datagram {
  char proof[kProofBytes];
  uint64_t communicator;
  ChannelNotice notice;
};
static_assert(std::is_trivially_copyable_v<Datagram>);

std::string proof_of(const std::string& secret, const Datagram& datagram) {
  return hub_proof(secret, "device memory",
                   {reinterpret_cast<const char*>(&datagram) + kProofBytes, sizeof datagram - kProofBytes});
}

// An abstract name: no file, gone with the socket.
socklen_t fill(sockaddr_un& address, const std::string& name) {
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), std::min(name.size(), sizeof address.sun_path - 1));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

}  // namespace

MemoryExchange::MemoryExchange(uint64_t communicator, uint32_t rank, std::string secret)
    : communicator_(communicator), secret_(std::move(secret)) {
  Descriptor made(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  const socklen_t length = fill(address, name_of(rank));
  if (made && bind(made.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0) socket_ = std::move(made);
}

std::string MemoryExchange::name_of(uint32_t rank) const {
  return "tutti-" + to_hex(hub_proof(secret_, "device memory of", fmt::format("{:016x} {}", communicator_, rank)));
}

bool MemoryExchange::reaches(uint32_t rank) const {
  if (!socket_) return false;
  const Descriptor probe(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  const socklen_t length = fill(address, name_of(rank));
  return probe && connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0;
}

bool MemoryExchange::send(uint32_t to, const ChannelNotice& notice, const std::vector<int>& descriptors) {
  Datagram datagram{};
  datagram.communicator = communicator_;
  datagram.notice = notice;
  const std::string proof = proof_of(secret_, datagram);
  std::memcpy(datagram.proof, proof.data(), kProofBytes);
  sockaddr_un address{};
  iovec piece{&datagram, sizeof datagram};
  msghdr message{};
  message.msg_name = &address;
  message.msg_namelen = fill(address, name_of(to));
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(most_descriptors * sizeof(int))]{};
  if (!descriptors.empty()) {
    const size_t bytes = descriptors.size() * sizeof(int);
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(header), descriptors.data(), bytes);
  }
  return sendmsg(socket_.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof datagram);
}

std::optional<MemoryExchange::Received> MemoryExchange::receive() {
  for (;;) {
    Datagram datagram{};
    iovec piece{&datagram, sizeof datagram};
    alignas(cmsghdr) char control[CMSG_SPACE(most_descriptors * sizeof(int))]{};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    Received received;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      for (size_t at = 0; at + sizeof(int) <= header->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + at, sizeof fd);
        received.descriptors.emplace_back(fd);
      }
    }
    const bool whole = got == static_cast<ssize_t>(sizeof datagram) && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
    if (!whole || datagram.communicator != communicator_ ||
        !equal_proof({datagram.proof, kProofBytes}, proof_of(secret_, datagram)))
      continue;  // nobody of this job
    received.notice = datagram.notice;
    received.notice.why[sizeof received.notice.why - 1] = 0;
    return received;
  }
}

}  // namespace tutti::core
