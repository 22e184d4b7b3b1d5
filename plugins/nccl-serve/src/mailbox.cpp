// SPDX-License-Identifier: Apache-2.0
#include "mailbox.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <tutti/sdk/system_text.hpp>

namespace tutti::nccl::serve {
namespace {

constexpr size_t kMostWaiting = 64 << 10;  // bytes in each direction

void set(int socket, int level, int option, int value) { ::setsockopt(socket, level, option, &value, sizeof value); }

}  // namespace

Mailbox::Mailbox(FileDescriptor socket) : socket_(std::move(socket)) {
  const int fd = socket_.get();
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  // A host that is gone says nothing.
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
}

bool Mailbox::put(LetterKind kind, std::string_view body) {
  const LetterHead head{kind, static_cast<uint32_t>(body.size())};
  if (is_over() || body.size() > kMostLetterBytes || out_.size() + sizeof head + body.size() > kMostWaiting)
    return false;
  out_.append(bytes_of(head)).append(body);
  write_some();
  return true;
}

void Mailbox::advance() {
  write_some();
  read_some();
}

std::optional<Mailbox::Letter> Mailbox::take() {
  LetterHead head;
  if (in_.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, in_.data(), sizeof head);
  if (head.bytes > kMostLetterBytes) {
    problem_ = "it sent bytes that are no letter";
    in_.clear();
    return std::nullopt;
  }
  if (in_.size() < sizeof head + head.bytes) return std::nullopt;
  Letter letter{head.kind, in_.substr(sizeof head, head.bytes)};
  in_.erase(0, sizeof head + head.bytes);
  return letter;
}

void Mailbox::write_some() {
  while (!out_.empty() && !is_over()) {
    const ssize_t n = ::send(socket_.get(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) {
      const int error = errno;
      read_some();  // what came before the end counts
      if (!is_over()) problem_ = "the connection broke: " + system_text(error);
      return;
    }
    out_.erase(0, static_cast<size_t>(n));
  }
}

void Mailbox::read_some() {
  std::array<char, 4096> room;
  while (!is_over() && in_.size() < kMostWaiting) {
    const ssize_t n = ::recv(socket_.get(), room.data(), room.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n == 0) problem_ = "it closed the connection";
    if (n < 0) problem_ = "the connection broke: " + system_text(errno);
    if (n > 0) in_.append(room.data(), static_cast<size_t>(n));
    if (n > 0 && static_cast<size_t>(n) < room.size()) return;
  }
}

}  // namespace tutti::nccl::serve
