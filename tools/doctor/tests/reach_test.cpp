// SPDX-License-Identifier: Apache-2.0
#include "reach.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace doctor {
namespace {

std::string problem_of(const std::string& address, uint16_t port, uint64_t token, int milliseconds = 5000) {
  std::vector<Target> targets{{address, port, token, "not tried"}};
  reach(targets, milliseconds);
  return targets[0].problem;
}

TEST(Reach, AListenerAnswersManyTimes) {
  const Listener listener("");
  for (int k = 0; k < 3; ++k) EXPECT_EQ(problem_of("127.0.0.1", listener.port(), listener.token()), "");
}

TEST(Reach, SomebodyElseAnswers) {
  const Listener listener("");
  EXPECT_NE(problem_of("127.0.0.1", listener.port(), listener.token() + 1).find("somebody else"), std::string::npos);
}

TEST(Reach, NobodyListens) {
  uint16_t port = 0;
  {
    const Listener gone("");
    port = gone.port();
  }
  EXPECT_NE(problem_of("127.0.0.1", port, 1).find("refused"), std::string::npos);
}

// A listener that accepts nothing: the kernel connects, and no token comes.
TEST(Reach, Silence) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_NE(problem_of("127.0.0.1", ntohs(address.sin_port), 1, 100).find("no answer within 0.1 s"), std::string::npos);
  close(fd);
}

TEST(Reach, WhatIsNoAddress) {
  EXPECT_EQ(problem_of("node7", 1, 1), "not a numeric address");
  EXPECT_EQ(problem_of("", 1, 1), "not a numeric address");
}

TEST(Reach, PortsOfTheSetting) {
  uint16_t free = 0;
  {
    const Listener any("");
    free = any.port();
  }
  const std::string range = std::to_string(free) + "-" + std::to_string(free + 1);
  const Listener first(range);
  EXPECT_GE(first.port(), free);
  EXPECT_LE(first.port(), free + 1);
  EXPECT_THROW(Listener(std::to_string(first.port()) + "-" + std::to_string(first.port())), std::runtime_error);
}

}  // namespace
}  // namespace doctor
