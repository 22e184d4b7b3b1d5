// SPDX-License-Identifier: Apache-2.0
#include "engine/memory_exchange.hpp"

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

TEST_F(Exchange, StrangersAreNotHeard) {
  MemoryExchange stranger(communicator_, 2, "another secret");
  ASSERT_TRUE(stranger.send(1, notice(0, 1), {}));
  // Not of the right length; with a byte changed on the way: an own datagram, recorded.
  const int sender = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  char name[64];
  const auto address_of = [&](uint32_t rank, sockaddr_un& address) {
    const int n = std::snprintf(name, sizeof name, "tutti-device-memory-%016llx-%u",
                                static_cast<unsigned long long>(communicator_), rank);
    address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name, static_cast<size_t>(n));
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(n));
  };
  sockaddr_un address{};
  const socklen_t length = address_of(1, address);
  ASSERT_EQ(sendto(sender, "short", 5, 0, reinterpret_cast<sockaddr*>(&address), length), 5);
  const int tap = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un tapped{};
  const socklen_t tap_length = address_of(9, tapped);
  ASSERT_EQ(bind(tap, reinterpret_cast<sockaddr*>(&tapped), tap_length), 0);
  ASSERT_TRUE(zero_.send(9, notice(0, 5), {}));
  std::vector<char> datagram(4096);
  const ssize_t bytes = recv(tap, datagram.data(), datagram.size(), 0);
  ASSERT_GT(bytes, 0);
  datagram[static_cast<size_t>(bytes) - 300] ^= 1;
  ASSERT_EQ(
      sendto(sender, datagram.data(), static_cast<size_t>(bytes), 0, reinterpret_cast<sockaddr*>(&address), length),
      bytes);
  EXPECT_FALSE(one_.receive());
  datagram[static_cast<size_t>(bytes) - 300] ^= 1;  // as it was sent: heard
  ASSERT_EQ(
      sendto(sender, datagram.data(), static_cast<size_t>(bytes), 0, reinterpret_cast<sockaddr*>(&address), length),
      bytes);
  EXPECT_TRUE(one_.receive());
  close(tap);
  close(sender);
}

TEST_F(Exchange, WhoIsNotThereIsNotReached) {
  EXPECT_FALSE(zero_.reaches(7));
  EXPECT_FALSE(zero_.send(7, notice(0, 0), {}));
  const MemoryExchange twin(communicator_, 1, "secret");  // the name is taken
  EXPECT_FALSE(twin.reaches(0));
}

}  // namespace
}  // namespace tutti::core
