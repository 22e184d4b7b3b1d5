// SPDX-License-Identifier: Apache-2.0
//
// station.hpp: the endpoints of one rank share a socket to each other rank and a descriptor to sleep on; each hears
// what is its own, also while others read, sleep or end.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <tutti/sdk/local/station.hpp>

namespace {

using namespace tutti::sdk;
using local::Line;
using local::Station;

constexpr uint64_t kPageBytes = 4096;

struct Word {
  static constexpr uint32_t number = 77;
  uint32_t kind = number;
  uint32_t value = 0;
};

size_t open_descriptors() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}
bool wakes(const Station& station) {
  pollfd waiting{station.descriptor(), POLLIN, 0};
  return poll(&waiting, 1, 0) == 1;
}

// Two ranks, whose stations have a member each for some communicators.
struct Pair {
  struct Side {
    std::shared_ptr<Station> station = std::make_shared<Station>();
    std::vector<std::unique_ptr<Station::Member>> members;
    std::vector<Line> lines;
  };
  Side a, b;

  explicit Pair(size_t communicators) {
    for (size_t n = 0; n < communicators; n++) add(n % 2 == 0);
  }
  // One more communicator. `a_invites`: it is a's member that b's visits, else the other way round.
  void add(bool a_invites) {
    for (Side* side : {&a, &b}) side->members.push_back(std::make_unique<Station::Member>(side->station, kPageBytes));
    Side &host = a_invites ? a : b, &visitor = a_invites ? b : a;
    const auto [invitation, number] = host.members.back()->invite(1);
    visitor.lines.push_back(std::move(*visitor.members.back()->visit(0, invitation, number, {})));
    host.members.back()->read();
    std::vector<Station::Guest> guests = host.members.back()->take_guests();
    ASSERT_EQ(guests.size(), 1u);
    EXPECT_EQ(guests[0].peer, 1u);
    guests[0].line.name_station(visitor.station->place().name);
    host.lines.push_back(std::move(guests[0].line));
    EXPECT_EQ(host.lines.back().send(Word()), Socket::kSent);
    EXPECT_EQ(visitor.lines.back().receive().outcome, Packet::kHere);
    visitor.members.back()->take_news();
  }
};

uint32_t value_of(Packet packet) {
  const auto word = packet.as<Word>();
  return word ? word->value : 0;
}

TEST(Station, ManyCommunicatorsOfTwoRanksHaveTwoSocketsAndNothingMore) {
  Pair pair(2);
  const size_t before = open_descriptors();
  for (int n = 0; n < 300; n++) pair.add(n % 3 == 0);
  EXPECT_EQ(open_descriptors(), before);
  for (uint32_t n = 0; n < pair.a.lines.size(); n++) {
    EXPECT_EQ(pair.a.lines[n].send(Word{.value = n + 1}), Socket::kSent);
    EXPECT_EQ(pair.b.lines[n].send(Word{.value = n + 1000}), Socket::kSent);
    EXPECT_EQ(value_of(pair.b.lines[n].receive()), n + 1);
    EXPECT_EQ(value_of(pair.a.lines[n].receive()), n + 1000);
    EXPECT_EQ(pair.a.lines[n].receive().outcome, Packet::kNothing);
  }
}

// The second communicator comes while the host does not know yet that the first has withdrawn its invitation.
TEST(Station, AVisitDoesNotDependOnOneThatIsNotLetIn) {
  Pair::Side host, visitor;
  for (Pair::Side* side : {&host, &visitor})
    for (int n = 0; n < 2; n++) side->members.push_back(std::make_unique<Station::Member>(side->station, kPageBytes));
  for (size_t n = 0; n < 2; n++) {
    const auto [invitation, number] = host.members[n]->invite(1);
    visitor.lines.push_back(std::move(*visitor.members[n]->visit(0, invitation, number, {})));
    if (n == 0) host.members[0].reset();
  }
  host.members[1]->read();
  EXPECT_EQ(host.members[1]->take_guests().size(), 1u);
  EXPECT_EQ(visitor.lines[0].receive().outcome, Packet::kClosed);
}

TEST(Station, WhoReadsHandsTheOthersTheirPacketsAndTheirDescriptors) {
  Pair pair(3);
  const FileDescriptor file = local::make_memory_file("test", 4096);
  EXPECT_EQ(pair.b.lines[1].send(Word{.value = 5}, {file.get()}), Socket::kSent);
  EXPECT_EQ(pair.b.lines[1].send(Word{.value = 6}), Socket::kSent);
  pair.a.members[0]->read();
  EXPECT_TRUE(pair.a.members[0]->take_news().empty() && pair.a.members[2]->take_news().empty());
  EXPECT_FALSE(pair.a.members[0]->has_news());
  EXPECT_TRUE(pair.a.members[1]->has_news());
  EXPECT_EQ(pair.a.members[1]->take_news(), std::vector<uint32_t>{0}) << "once, by the peer's rank";
  const Packet first = pair.a.lines[1].receive();
  EXPECT_TRUE(first.as<Word>(1)) << first.descriptor_count;
  EXPECT_EQ(value_of(pair.a.lines[1].receive()), 6u);
}

TEST(Station, AClosedLineEndsAtTheOtherEndAndTheOthersGoOn) {
  Pair pair(2);
  EXPECT_EQ(pair.b.lines[0].send(Word{.value = 9}), Socket::kSent);
  pair.b.lines[0].close();
  EXPECT_EQ(value_of(pair.a.lines[0].receive()), 9u) << "what was sent before can still be received";
  EXPECT_EQ(pair.a.lines[0].receive().outcome, Packet::kClosed);
  EXPECT_EQ(pair.a.lines[0].send(Word()), Socket::kGone);
  EXPECT_EQ(pair.a.lines[1].send(Word{.value = 3}), Socket::kSent);
  EXPECT_EQ(value_of(pair.b.lines[1].receive()), 3u);
}

TEST(Station, APacketForALineThatIsClosedHereIsDropped) {
  Pair pair(2);
  pair.a.lines[0].close();
  EXPECT_EQ(pair.b.lines[0].send(Word{.value = 1}), Socket::kSent) << "it does not know yet";
  EXPECT_EQ(pair.b.lines[1].send(Word{.value = 2}), Socket::kSent);
  EXPECT_EQ(value_of(pair.a.lines[1].receive()), 2u);
  EXPECT_EQ(pair.b.lines[0].receive().outcome, Packet::kClosed);
}

TEST(Station, AllLinesEndWithTheOtherStation) {
  Pair pair(3);
  pair.b.lines.clear();
  pair.b.members.clear();
  pair.b.station.reset();
  pair.a.members[2]->read();
  for (size_t n = 0; n < 3; n++) {
    EXPECT_EQ(pair.a.members[n]->take_news(), std::vector<uint32_t>{n % 2 == 0 ? 1u : 0u});
    EXPECT_EQ(pair.a.lines[n].receive().outcome, Packet::kClosed);
  }
}

// The bell that a peer rings for one member wakes it also where another one reads the descriptor first.
TEST(Station, AMemberThatWasRungStaysAwakeUntilItDisarms) {
  Pair pair(2);
  Station& station = *pair.a.station;
  Station::Member &one = *pair.a.members[0], &other = *pair.a.members[1];
  one.arm();
  EXPECT_FALSE(wakes(station));
  const uint64_t ring = 1;
  EXPECT_EQ(one.doorbell().sleeps.exchange(0), 1u);  // as a peer does
  EXPECT_EQ(write(station.eventfd_descriptor(), &ring, sizeof ring), 8);
  EXPECT_TRUE(wakes(station));
  other.read();
  EXPECT_TRUE(wakes(station)) << "the other member has read what was not its own";
  other.arm();
  other.disarm();
  EXPECT_TRUE(wakes(station)) << "nor does the end of another's sleep clear it";
  one.disarm();
  EXPECT_FALSE(wakes(station)) << "nobody is rung any more";
}

TEST(Station, AMemberThatSleepsIsWokenForWhatAnotherOneHasRead) {
  Pair pair(2);
  pair.a.members[0]->arm();
  EXPECT_EQ(pair.b.lines[0].send(Word{.value = 4}), Socket::kSent);
  pair.a.members[1]->read();
  EXPECT_TRUE(wakes(*pair.a.station));
  pair.a.members[0]->disarm();
  EXPECT_EQ(pair.a.members[0]->take_news().size(), 1u);
}

TEST(Station, DoorbellPagesAreUsedAgainAndComeEmpty) {
  const auto station = std::make_shared<Station>();
  auto first = std::make_unique<Station::Member>(station, 2 * kPageBytes);
  const Station::Member second(station, kPageBytes);
  EXPECT_NE(first->page_offset(), second.page_offset());
  first->doorbell().control(3) = 9;
  const uint64_t offset = first->page_offset();
  first.reset();
  const Station::Member third(station, kPageBytes), fourth(station, kPageBytes);
  EXPECT_EQ(third.page_offset(), offset);
  EXPECT_EQ(fourth.page_offset(), offset + kPageBytes);
  const Station::Member fifth(station, kPageBytes);
  EXPECT_EQ(fifth.page_offset(), second.page_offset() + kPageBytes);
  EXPECT_EQ(third.doorbell().control(3), 0u);
}

// A close that finds the socket full is told later, with its last word and after what was sent before.
TEST(Station, ACloseIsToldOnceThereIsRoom) {
  Pair pair(2);
  uint32_t sent = 0;
  while (pair.b.lines[0].send(Word{.value = sent + 1}) == Socket::kSent) sent++;
  pair.b.lines[0].close(Word{.value = 12345});
  EXPECT_EQ(pair.b.lines[0].send(Word()), Socket::kGone) << "it is closed here";
  EXPECT_EQ(pair.b.lines[0].receive().outcome, Packet::kClosed);
  EXPECT_FALSE(pair.b.members[1]->has_news()) << "the others can sleep meanwhile";
  for (uint32_t n = 0; n < sent; n++) ASSERT_EQ(value_of(pair.a.lines[0].receive()), n + 1);
  EXPECT_TRUE(wakes(*pair.b.station)) << "there is room";
  pair.b.members[1]->read();
  EXPECT_FALSE(wakes(*pair.b.station));
  EXPECT_EQ(value_of(pair.a.lines[0].receive()), 12345u);
  EXPECT_EQ(pair.a.lines[0].receive().outcome, Packet::kClosed);
}

// Packets that wait for members which do not receive hold each file once.
TEST(Station, WaitingPacketsHoldFewDescriptors) {
  Pair pair(40);
  const FileDescriptor file = local::make_memory_file("test", 4096), other = local::make_memory_file("test", 4096);
  const size_t before = open_descriptors();
  for (Line& line : pair.b.lines)
    for (const int fd : {file.get(), other.get()}) EXPECT_EQ(line.send(Word{.value = 1}, {fd}), Socket::kSent);
  pair.a.members[0]->read();
  EXPECT_EQ(open_descriptors(), before + 2);
  for (Line& line : pair.a.lines)
    for (const int fd : {file.get(), other.get()}) {
      const Packet packet = line.receive();
      ASSERT_TRUE(packet.as<Word>(1));
      struct stat mine {
      }, theirs{};
      ASSERT_EQ(fstat(packet.descriptors[0].get(), &theirs) | fstat(fd, &mine), 0);
      EXPECT_EQ(mine.st_ino, theirs.st_ino);
    }
  EXPECT_EQ(open_descriptors(), before);
}

// Two threads sleep on one descriptor and read one socket, each for a member of its own: no word and no wake-up is
// lost.
TEST(Station, MembersOfTwoThreadsLoseNothing) {
  constexpr uint32_t words = 3000;
  Pair pair(2);
  std::atomic<bool> lost{false};
  const auto listen = [&](size_t n) {
    Station::Member& member = *pair.a.members[n];
    for (uint32_t next = 1; next <= words && !lost;) {
      member.arm();
      if (!member.has_news()) {
        pollfd waiting{pair.a.station->descriptor(), POLLIN, 0};
        if (poll(&waiting, 1, 60'000) != 1) lost = true;
      }
      member.disarm();
      member.read();
      if (member.take_news().empty()) continue;
      for (Packet packet; (packet = pair.a.lines[n].receive()).outcome == Packet::kHere; next++)
        if (value_of(std::move(packet)) != next) lost = true;
    }
  };
  std::thread first(listen, 0), second(listen, 1);
  for (uint32_t value = 1; value <= words; value++)
    for (Line& line : pair.b.lines)
      while (line.send(Word{.value = value}) == Socket::kFull) sched_yield();
  first.join();
  second.join();
  EXPECT_FALSE(lost);
}

// Nothing that no rank sends does harm elsewhere: a wrong token, a number that is in use, a packet without a header, more packets than
// any rank.
TEST(Station, NonsenseHurtsOnlyWhoSendsIt) {
  Pair pair(1);
  Station::Member& host = *pair.a.members[0];
  auto [invitation, number] = host.invite(7);
  invitation.token[0] ^= 1;
  const auto uninvited = pair.b.members[0]->visit(0, invitation, number, {});
  ASSERT_TRUE(uninvited);
  host.read();
  EXPECT_TRUE(host.take_guests().empty());
  EXPECT_EQ(const_cast<Line&>(*uninvited).receive().outcome, Packet::kClosed) << "it is told";
  EXPECT_EQ(pair.b.lines[0].send(Word{.value = 2}), Socket::kSent);
  EXPECT_EQ(value_of(pair.a.lines[0].receive()), 2u);

  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  host.take_news();
  Socket far{FileDescriptor(ends[0])};
  Line line = pair.a.station->adopt(host, 5, Socket(FileDescriptor(ends[1])));
  struct Opening {
    Station::Header header;
    Knock knock;
  };
  EXPECT_EQ(far.send(Opening{{0, Station::Header::kOpen}, {}}), Socket::kSent);
  host.read();
  EXPECT_EQ(host.take_news(), std::vector<uint32_t>{5});
  EXPECT_EQ(line.receive().outcome, Packet::kClosed) << "an opening of a line that is open";
  EXPECT_EQ(far.send(uint32_t{1}), Socket::kSent);
  host.read();
  far.receive();
  EXPECT_EQ(far.receive().outcome, Packet::kClosed) << "a packet without a header";
}

TEST(Station, EndpointsOfAFamilyHaveOneAndOthersHaveTheirOwn) {
  const auto one = Station::of(5), same = Station::of(5), other = Station::of(6);
  EXPECT_EQ(one, same);
  EXPECT_NE(one, other);
  EXPECT_NE(Station::of(0), Station::of(0));
}

}  // namespace
