// SPDX-License-Identifier: Apache-2.0
#include "stream/memory_exchange.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <random>

namespace tutti::core {
namespace {

class Exchange : public ::testing::Test {
 protected:
  static uint64_t id() {
    std::random_device random;
    return (uint64_t{random()} << 32) | random();
  }
  static ChannelNotice notice(uint32_t from, uint32_t lane) {
    ChannelNotice made;
    made.kind = ChannelNotice::offer;
    made.from = from;
    made.lane = lane;
    std::strcpy(made.why, "because");
    return made;
  }
  const uint64_t communicator_ = id();
  MemoryExchange zero_{communicator_, 0, "secret"};
  MemoryExchange one_{communicator_, 1, "secret"};
};

TEST_F(Exchange, DescriptorsTravelWithTheNotice) {
  const Descriptor file(memfd_create("exchange-test", MFD_CLOEXEC));
  ASSERT_EQ(write(file.get(), "tutti", 5), 5);
  ASSERT_TRUE(zero_.reaches(1));
  ASSERT_TRUE(zero_.send(1, notice(0, 3), {file.get()}));
  ASSERT_TRUE(zero_.send(1, notice(0, 4), {}));
  auto first = one_.receive();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->notice.lane, 3u);
  EXPECT_STREQ(first->notice.why, "because");
  ASSERT_EQ(first->descriptors.size(), 1u);
  char text[5] = {};
  EXPECT_EQ(pread(first->descriptors[0].get(), text, 5, 0), 5);
  EXPECT_EQ(std::string(text, 5), "tutti");
  auto second = one_.receive();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->notice.lane, 4u);
  EXPECT_TRUE(second->descriptors.empty());
  EXPECT_FALSE(one_.receive());
}

// A socket of somebody else's, and what it does with the names of others.
class Outsider {
 public:
  ~Outsider() { close(socket_); }
  bool take(const std::string& name) {
    const auto [address, length] = address_of(name);
    return bind(socket_, reinterpret_cast<const sockaddr*>(&address), length) == 0;
  }
  std::string hear() {
    std::string datagram(4096, 0);
    const ssize_t bytes = recv(socket_, datagram.data(), datagram.size(), MSG_DONTWAIT);
    datagram.resize(bytes < 0 ? 0 : static_cast<size_t>(bytes));
    return datagram;
  }
  bool say(const std::string& name, const std::string& datagram) {
    const auto [address, length] = address_of(name);
    return sendto(socket_, datagram.data(), datagram.size(), 0, reinterpret_cast<const sockaddr*>(&address), length) ==
           static_cast<ssize_t>(datagram.size());
  }

 private:
  static std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
  }
  const int socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
};

TEST_F(Exchange, OnlyWhoKnowsTheSecretFindsOrTakesAName) {
  const MemoryExchange stranger(communicator_, 2, "another secret");
  EXPECT_FALSE(stranger.reaches(1));
  EXPECT_FALSE(zero_.reaches(2));
  EXPECT_NE(stranger.name_of(1), zero_.name_of(1));
  EXPECT_NE(zero_.name_of(2), zero_.name_of(1));
  EXPECT_NE(MemoryExchange(id(), 5, "secret").name_of(1), zero_.name_of(1));
}

TEST_F(Exchange, StrangersAreNotHeard) {
  Outsider outsider, tap;
  ASSERT_TRUE(outsider.say(one_.name_of(1), "short"));
  // What another job's rank would say.
  MemoryExchange stranger(communicator_, 2, "another secret");
  ASSERT_TRUE(tap.take(stranger.name_of(9)));
  ASSERT_TRUE(stranger.send(9, notice(0, 1), {}));
  const std::string foreign = tap.hear();
  ASSERT_FALSE(foreign.empty());
  ASSERT_TRUE(outsider.say(one_.name_of(1), foreign));
  // One of this job's own, with a byte changed on the way, and as it was sent.
  Outsider between;
  ASSERT_TRUE(between.take(zero_.name_of(9)));
  ASSERT_TRUE(zero_.send(9, notice(0, 5), {}));
  std::string own = between.hear();
  ASSERT_EQ(own.size(), foreign.size());
  own[own.size() - 300] ^= 1;
  ASSERT_TRUE(outsider.say(one_.name_of(1), own));
  EXPECT_FALSE(one_.receive());
  own[own.size() - 300] ^= 1;
  ASSERT_TRUE(outsider.say(one_.name_of(1), own));
  EXPECT_TRUE(one_.receive());
}

TEST_F(Exchange, WhoIsNotThereIsNotReached) {
  EXPECT_FALSE(zero_.reaches(7));
  EXPECT_FALSE(zero_.send(7, notice(0, 0), {}));
  const MemoryExchange twin(communicator_, 1, "secret");  // the name is taken
  EXPECT_FALSE(twin.reaches(0));
}

}  // namespace
}  // namespace tutti::core
