// SPDX-License-Identifier: Apache-2.0
//
// A listener on 127.0.0.1 that is no rank's.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

namespace tutti_test {

class ListeningSocket {
 public:
  enum Kind {
    kOpen,
    kFull,  // the kernel answers nobody any more
    kDead,  // nobody listens, and nobody else can have the port
  };

  explicit ListeningSocket(Kind kind = kOpen) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    auto* address = reinterpret_cast<sockaddr*>(&address_);
    EXPECT_EQ(::bind(fd_, address, size) || (kind != kDead && ::listen(fd_, kind == kFull ? 0 : 16)), 0);
    ::getsockname(fd_, address, &size);
    for (int i = 0; kind == kFull && i < 4; ++i) {
      waiting_.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      ::connect(waiting_.back(), address, size);
    }
  }
  ~ListeningSocket() {
    for (const int fd : waiting_) ::close(fd);
    ::close(fd_);
  }
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;

  uint16_t port() const { return ntohs(address_.sin_port); }
  // -1: nobody has come.
  int accept() { return ::accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); }

 private:
  int fd_;
  sockaddr_in address_{};
  std::vector<int> waiting_;
};

}  // namespace tutti_test
