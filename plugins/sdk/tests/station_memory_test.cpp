// SPDX-License-Identifier: Apache-2.0
//
// station.hpp where memory lacks at each allocation of a member's read in turn: a rank that comes is let in, or the
// member hears that it cannot be; a packet comes, or its line ends. Nothing goes by in silence.
#include <gtest/gtest.h>

#include <new>
#include <tutti/sdk/local/station.hpp>

#include "harness/scarce_memory.hpp"

namespace {

using namespace tutti::sdk;
using local::Line;
using local::Station;
using tutti::test::allocations_left;
using tutti::test::failed;

constexpr uint64_t kPageBytes = 4096;

struct Word {
  static constexpr uint32_t number = 77;
  uint32_t kind = number;
};

// A rank's station, with the members of two communicators.
struct Side {
  std::shared_ptr<Station> station = std::make_shared<Station>();
  Station::Member first{station, kPageBytes}, second{station, kPageBytes};
};

Line visit(Station::Member& host, Station::Member& visitor) {
  const auto [invitation, number] = host.invite(1);
  return std::move(*visitor.visit(0, invitation, number, {}));
}

// The news of a member about those who come. Another one reads, which lacks memory at its n-th allocation.
struct Heard {
  std::vector<Station::Guest> guests;
  tutti_status trouble = TUTTI_OK;
  std::vector<uint32_t> awaited;  // after it
};
Heard hear(Station::Member& reader, Station::Member& member, int64_t n) {
  failed = false;
  allocations_left = n;
  try {
    reader.read();
  } catch (const std::bad_alloc&) {
  } catch (const Error& error) {
    ADD_FAILURE() << "the other member hears of it: " << error.what();
  }
  allocations_left = -1;
  const bool came_to_it = failed;
  Heard heard;
  try {
    member.read();
  } catch (const Error& error) {
    heard.trouble = error.status();
  }
  failed = came_to_it;
  heard.guests = member.take_guests();
  heard.awaited = member.awaited();
  return heard;
}

// Over a socket of its own, or over that of the first members.
void come(bool over_another) {
  int64_t n = 0;
  for (failed = true; failed && !testing::Test::HasFailure(); ++n) {
    Side host, visitor;
    std::vector<Line> lines;
    if (over_another) {
      lines.push_back(visit(host.first, visitor.first));
      lines.push_back(std::move(hear(host.first, host.first, -1).guests.at(0).line));
      ASSERT_EQ(lines[1].send(Word()), Socket::kSent);
      ASSERT_EQ(lines[0].receive().outcome, Packet::kHere);
      lines[1].name_station(visitor.station->place().name);
    }
    lines.push_back(visit(host.second, visitor.second));
    const Heard heard = hear(host.first, host.second, n);
    if (heard.guests.size() == 1) continue;
    EXPECT_EQ(heard.trouble, TUTTI_NO_RESOURCES) << "allocation " << n;
    EXPECT_EQ(heard.awaited, std::vector<uint32_t>{1}) << "it is known whom it concerns";
  }
  EXPECT_GT(n, 3);
}

TEST(StationMemory, ARankThatComesIsLetInOrToldOf) {
  come(false);
  come(true);
}

TEST(StationMemory, APacketComesOrItsLineEnds) {
  int64_t n = 0;
  for (failed = true; failed && !testing::Test::HasFailure(); ++n) {
    Side host, visitor;
    Line theirs = visit(host.second, visitor.second);
    Line mine = std::move(hear(host.first, host.second, -1).guests.at(0).line);
    ASSERT_EQ(theirs.send(Word()), Socket::kSent);
    hear(host.first, host.second, n);
    const bool came_to_it = failed;
    EXPECT_EQ(host.second.take_news(), std::vector<uint32_t>{1}) << "allocation " << n;
    EXPECT_TRUE(mine.receive().outcome == Packet::kHere || mine.lacked_memory()) << "allocation " << n;
    failed = came_to_it;
  }
  EXPECT_GT(n, 1);
}

}  // namespace
