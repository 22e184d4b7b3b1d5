// SPDX-License-Identifier: Apache-2.0
//
// The other end of a socket, by hand: a stranger that says anything, or a peer that has the token and then breaks the
// protocol. Blocking; the caller drives the rank in between.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "tcp_ranks.hpp"

namespace tutti_test {

using tutti::tcp::Opening;

class BarePeer {
 public:
  // Connects to the first listener of an offer.
  explicit BarePeer(const PairMessage& offer) : offer_(offer) {
    const tutti::tcp::Where to = offer_.listeners[0].where();
    fd_ = socket(to.protocol().family(), SOCK_STREAM, 0);
    EXPECT_EQ(::connect(fd_, to.data(), static_cast<socklen_t>(to.size())), 0) << std::strerror(errno);
  }
  ~BarePeer() { ::close(fd_); }
  BarePeer(const BarePeer&) = delete;
  BarePeer& operator=(const BarePeer&) = delete;

  // Non-blocking from now on, for whoever speaks on it by other means.
  int descriptor() const {
    fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
    return fd_;
  }

  void say(const void* data, size_t bytes) {
    EXPECT_EQ(::send(fd_, data, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }
  // More than the socket may hold at once: progresses the rank meanwhile.
  void say(const std::string& bytes, Rank& rank) {
    size_t sent = 0;
    EXPECT_TRUE(drive({&rank}, [&] {
      const ssize_t n = ::send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) sent += static_cast<size_t>(n);
      return sent == bytes.size();
    }));
  }
  template <typename T>
  void say(const T& message) {
    say(&message, sizeof message);
  }
  // Progresses the rank until a message is here; false when it hung up.
  template <typename T>
  bool hear(Rank& rank, T& message) {
    size_t got = 0;
    bool gone = false;
    EXPECT_TRUE(drive({&rank}, [&] {
      const ssize_t n = ::recv(fd_, reinterpret_cast<char*>(&message) + got, sizeof message - got, MSG_DONTWAIT);
      if (n > 0) got += static_cast<size_t>(n);
      gone = n == 0 || (n < 0 && errno != EAGAIN);
      return gone || got == sizeof message;
    }));
    return !gone;
  }
  bool is_hung_up_on(Rank& rank, std::chrono::milliseconds limit = std::chrono::seconds(60)) {
    char byte;
    return drive(
        {&rank},
        [&] {
          const ssize_t n = ::recv(fd_, &byte, 1, MSG_DONTWAIT);
          return n == 0 || (n < 0 && errno != EAGAIN);
        },
        limit);
  }
  // Opens socket `socket` of rank 0's link with rank `from`; false when it is hung up on.
  bool knock(Rank& rank, uint32_t from = 1, uint32_t socket = 0) {
    say(Opening{offer_.knock, from, socket});
    Opening answer;
    if (!hear(rank, answer)) return false;
    EXPECT_EQ(answer.token, offer_.answer);
    EXPECT_EQ(answer.rank, 0u);
    EXPECT_EQ(answer.socket, socket);
    return true;
  }

 private:
  const PairMessage offer_;
  int fd_;
};

}  // namespace tutti_test
