// SPDX-License-Identifier: Apache-2.0
#include "reach.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace doctor {
namespace {

std::string problem_of(const std::string& address, uint16_t port, uint64_t token, int milliseconds = 60'000) {
  std::vector<Target> targets{{address, port, token, "not tried"}};
  reach(targets, milliseconds);
  return targets[0].problem;
}

// A port of this host, held as long as the object lives.
class Held {
 public:
  Held() {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    auto* address = reinterpret_cast<sockaddr*>(&address_);
    EXPECT_EQ(bind(fd_, address, size), 0);
    EXPECT_EQ(getsockname(fd_, address, &size), 0);
  }
  ~Held() { close(fd_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  int fd() const { return fd_; }
  uint16_t port() const { return ntohs(address_.sin_port); }

 private:
  const int fd_ = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address_{};
};

TEST(Reach, AListenerAnswersManyTimes) {
  const Listener listener("");
  for (int k = 0; k < 3; ++k) EXPECT_EQ(problem_of("127.0.0.1", listener.port(), listener.token()), "");
}

TEST(Reach, SomebodyElseAnswers) {
  const Listener listener("");
  EXPECT_NE(problem_of("127.0.0.1", listener.port(), listener.token() + 1).find("somebody else"), std::string::npos);
}

TEST(Reach, NobodyListens) {
  const Held nobody;
  EXPECT_NE(problem_of("127.0.0.1", nobody.port(), 1).find("refused"), std::string::npos);
}

// A listener that accepts nothing: the kernel connects, and no token comes.
TEST(Reach, RealTimeSilence) {
  const Held silent;
  ASSERT_EQ(listen(silent.fd(), 1), 0);
  EXPECT_NE(problem_of("127.0.0.1", silent.port(), 1, 100).find("no answer within 0.1 s"), std::string::npos);
}

TEST(Reach, WhatIsNoAddress) {
  EXPECT_EQ(problem_of("node7", 1, 1), "not a numeric address");
  EXPECT_EQ(problem_of("", 1, 1), "not a numeric address");
}

TEST(Reach, PortsOfTheSetting) {
  const Listener any("");  // the kernel's choices are above 1024, and not all below this one are taken
  const int last = any.port();
  const Listener first(std::to_string(last - 1000) + "-" + std::to_string(last));
  EXPECT_GE(first.port(), last - 1000);
  EXPECT_LT(first.port(), last);
  EXPECT_THROW(Listener(std::to_string(first.port()) + "-" + std::to_string(first.port())), std::runtime_error);
}

}  // namespace
}  // namespace doctor
