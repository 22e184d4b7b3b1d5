// SPDX-License-Identifier: Apache-2.0
//
// descriptors.hpp: who is let in at a doorway, and what comes with them.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>

#include <thread>
#include <tutti/sdk/descriptors.hpp>
#include <vector>

#include "harness/virtual_time/virtual_time.hpp"

namespace {

using namespace tutti::sdk;

struct Greeting {
  static constexpr uint32_t number = 9;
  uint32_t kind = number;
  uint32_t value = 0;
};

struct Guest {
  uint32_t rank;
  Socket socket;
  Packet packet;
};
std::vector<Guest> look(Doorway& door) {
  std::vector<Guest> guests;
  door.look([&](uint32_t rank, Socket socket, Packet& packet) {
    guests.push_back({rank, std::move(socket), std::move(packet)});
  });
  return guests;
}

size_t open_descriptors() {
  size_t n = 0;
  for (int fd = 0; fd < 4096; fd++) n += fcntl(fd, F_GETFD) != -1;
  return n;
}

// ... also one of another pid namespace, as containers have, where the kernel lets this user make one.
TEST(Descriptors, APipeReachesAnotherProcess) {
  Doorway door;
  const Invitation invitation = door.invite(7);
  const pid_t child = fork();
  if (child == 0) {
    (void)(unshare(CLONE_NEWPID) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0);
    int inner_status = 1;
    const pid_t inner = fork();
    if (inner != 0) _exit(waitpid(inner, &inner_status, 0) == inner ? WEXITSTATUS(inner_status) : 3);
    int ends[2];
    if (pipe(ends) != 0) _exit(1);
    auto socket = Doorway().visit(invitation, 7, {ends[0], ends[1]});
    Packet packet;
    while (socket && packet.outcome == Packet::kNothing) packet = socket->receive();
    char text[3]{};
    _exit(packet.as<Greeting>() && packet.as<Greeting>()->value == 5 && read(ends[0], text, 2) == 2 &&
                  std::string(text) == "hi"
              ? 0
              : 2);
  }
  std::vector<Guest> guests;
  while (guests.empty()) guests = look(door);
  EXPECT_EQ(guests[0].rank, 7u);
  ASSERT_EQ(guests[0].packet.descriptor_count, 2u);
  EXPECT_EQ(write(guests[0].packet.descriptors[1].get(), "hi", 2), 2);
  EXPECT_EQ(guests[0].socket.send(Greeting{.value = 5}), Socket::kSent);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(guests[0].socket.receive().outcome, Packet::kClosed) << "the end of a process is an end of file";
}

TEST(Descriptors, ATokenLetsItsRankInOnce) {
  Doorway door, other;
  const Invitation first = door.invite(1), second = door.invite(2);
  Invitation wrong = first;
  wrong.token[15] ^= 1;
  std::vector<std::optional<Socket>> sockets;
  sockets.push_back(other.visit(wrong, 1));
  sockets.push_back(other.visit(first, 2));        // another rank's token
  sockets.push_back(other.visit(first, 0x10001));  // of a rank that was not invited
  EXPECT_TRUE(look(door).empty());
  for (auto& socket : sockets) EXPECT_EQ(socket->receive().outcome, Packet::kClosed);
  sockets.push_back(other.visit(first, 1));
  EXPECT_EQ(look(door).size(), 1u);
  sockets.push_back(other.visit(first, 1));
  EXPECT_TRUE(look(door).empty()) << "a token is good for one visit";
  door.uninvite(2);
  sockets.push_back(other.visit(second, 2));
  EXPECT_TRUE(look(door).empty());
  EXPECT_EQ(door.invite(2).name, first.name);
}

TEST(Descriptors, StrangersAreBoundedInNumberAndLeaveNothing) {
  Doorway door, other;
  const Invitation place = door.invite(1);
  const size_t before = open_descriptors();
  std::vector<Socket> strangers;
  for (int i = 0; i < 200; i++) {
    Socket socket(descriptors_detail::unix_socket());
    sockaddr_un name{};
    const socklen_t length = descriptors_detail::fill_name(name, place.name);
    ASSERT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&name), length), 0);
    strangers.push_back(std::move(socket));
    ASSERT_TRUE(look(door).empty());
  }
  EXPECT_LE(open_descriptors(), before + 200 + 65);
  EXPECT_TRUE(door.has_strangers());
  const Token garbage{};
  for (Socket& socket : strangers) (void)!write(socket.get(), garbage.data(), garbage.size());
  EXPECT_TRUE(look(door).empty());
  EXPECT_FALSE(door.has_strangers());
  EXPECT_EQ(open_descriptors(), before + 200);
  const auto welcome = other.visit(place, 1);
  EXPECT_EQ(look(door).size(), 1u);
}

TEST(Descriptors, AStrangerThatSaysNothingIsDroppedAfterAWhile) {
  const tutti::test::VirtualTime time;
  Doorway door;
  Socket silent(descriptors_detail::unix_socket());
  sockaddr_un name{};
  const socklen_t length = descriptors_detail::fill_name(name, door.place().name);
  ASSERT_EQ(connect(silent.get(), reinterpret_cast<sockaddr*>(&name), length), 0);
  look(door);
  EXPECT_TRUE(door.has_strangers());
  std::this_thread::sleep_for(std::chrono::seconds(4));
  look(door);
  EXPECT_TRUE(door.has_strangers());
  std::this_thread::sleep_for(std::chrono::seconds(2));
  look(door);
  EXPECT_FALSE(door.has_strangers());
  EXPECT_EQ(silent.receive().outcome, Packet::kClosed);
}

TEST(Descriptors, OtherPlacesAndClosedDoorsAreNamed) {
  Doorway here;
  const auto refused = [&](const Invitation& place) -> std::pair<tutti_status, std::string> {
    try {
      here.visit(place, 1);
    } catch (const Error& e) {
      return {e.status(), e.what()};
    }
    return {TUTTI_OK, ""};
  };
  Invitation place = Doorway().invite(1);  // its doorway is closed again
  EXPECT_EQ(refused(place).first, TUTTI_PEER_FAILED);
  place.boot_id[0] ^= 1;
  EXPECT_EQ(refused(place).first, TUTTI_SYSTEM);
  EXPECT_NE(refused(place).second.find("another host"), std::string::npos);
  place.boot_id[0] ^= 1;
  place.network_namespace++;
  EXPECT_NE(refused(place).second.find("network namespace"), std::string::npos);
}

// The kernel tells such an end before what was sent: as a reset, once.
TEST(Descriptors, WhatWasSaidBeforeAnEndIsHeardThoughTheOtherSideHadNotReadAll) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  Socket mine{FileDescriptor(ends[0])};
  {
    Socket theirs{FileDescriptor(ends[1])};
    ASSERT_EQ(mine.send(Greeting{.value = 1}), Socket::kSent);
    ASSERT_EQ(theirs.send(Greeting{.value = 2}), Socket::kSent);
  }
  const Packet last = mine.receive();
  ASSERT_TRUE(last.as<Greeting>()) << "the end came first";
  EXPECT_EQ(last.as<Greeting>()->value, 2u);
  EXPECT_EQ(mine.receive().outcome, Packet::kClosed);
}

TEST(Descriptors, PacketsAreTakenForWhatTheyAreOnly) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
  Socket a{FileDescriptor(pair[0])}, b{FileDescriptor(pair[1])};
  EXPECT_EQ(b.receive().outcome, Packet::kNothing);
  const size_t before = open_descriptors();
  for (const std::initializer_list<int>& descriptors : {std::initializer_list<int>{}, {0}, {0, 1, 2, 0}}) {
    ASSERT_EQ(a.send(Greeting{.value = 3}, descriptors), Socket::kSent);
    const Packet packet = b.receive();
    EXPECT_TRUE(packet.as<Greeting>(descriptors.size()));
    EXPECT_FALSE(packet.as<Greeting>(descriptors.size() + 1));
    EXPECT_EQ(packet.descriptor_count, descriptors.size());
    for (size_t i = 0; i < packet.descriptor_count; i++)
      EXPECT_TRUE(fcntl(packet.descriptors[i].get(), F_GETFD) & FD_CLOEXEC);
  }
  EXPECT_EQ(open_descriptors(), before);
  ASSERT_EQ(a.send(Greeting{.kind = 8}), Socket::kSent);
  EXPECT_FALSE(b.receive().as<Greeting>());
  const std::array<char, Packet::kMaxBytes + 1> longer{};
  ASSERT_EQ(write(a.get(), longer.data(), longer.size()), static_cast<ssize_t>(longer.size()));
  EXPECT_TRUE(b.receive().truncated);
  b.close();
  EXPECT_EQ(a.send(Greeting()), Socket::kGone);
}

}  // namespace
