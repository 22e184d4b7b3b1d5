// SPDX-License-Identifier: Apache-2.0
//
// The other end of a socket, by hand: a stranger that says anything, or a peer that knows the secret and then breaks
// the protocol. Blocking; the caller drives the rank in between.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "../src/address.hpp"
#include "../src/proof.hpp"
#include "tcp_ranks.hpp"

namespace tutti_test {

class BarePeer {
 public:
  // Connects to the first IPv4 listener of an endpoint's address.
  explicit BarePeer(const std::string& blob) : to_(tutti::tcp::PeerAddress::decode(blob)) {
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    std::memcpy(&address.sin_addr, to_.listeners[0].ip.bytes.data(), 4);
    address.sin_port = htons(to_.listeners[0].port);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << std::strerror(errno);
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
  bool is_hung_up_on(Rank& rank, std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    char byte;
    return drive(
        {&rank},
        [&] {
          const ssize_t n = ::recv(fd_, &byte, 1, MSG_DONTWAIT);
          return n == 0 || (n < 0 && errno != EAGAIN);
        },
        limit);
  }
  // The whole handshake as rank 1 of `shape`; the acceptor's verdict, 0 when it hung up.
  uint32_t introduce(Rank& rank, const std::string& secret, const tutti::tcp::Shape& shape, uint32_t from = 1) {
    const tutti::tcp::Secret key(reinterpret_cast<const uint8_t*>(secret.data()), secret.size());
    tutti::tcp::Hello hello{tutti::tcp::kMagic, tutti::tcp::kVersion, from, 0, 0, shape, {1}, to_.endpoint, {}};
    say(hello);
    tutti::tcp::Challenge challenge;
    tutti::tcp::Verdict verdict{};
    if (!hear(rank, challenge)) return 0;
    say(tutti::tcp::Proof{key.connector_mac(hello, challenge)});
    if (!hear(rank, verdict)) return 0;
    return verdict.answer;
  }

 private:
  tutti::tcp::PeerAddress to_;
  int fd_;
};

}  // namespace tutti_test
