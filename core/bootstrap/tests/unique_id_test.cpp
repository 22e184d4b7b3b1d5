// SPDX-License-Identifier: Apache-2.0
#include "unique_id.hpp"

#include "bootstrap/authentication.hpp"
#include "meeting_fixture.hpp"

namespace tutti::core::test {
namespace {

Rendezvous by_id(const std::string& id, uint32_t rank, uint32_t nranks) {
  Rendezvous meeting;
  meeting.where = id;
  meeting.rank = rank;
  meeting.nranks = nranks;
  meeting.log = quiet;
  meeting.environment = environment_of({});
  return meeting;
}

TEST(UniqueId, RanksMeetAndShareItsSecret) {
  for (uint32_t nranks : {1u, 2u, 6u}) {
    const std::string id = make_unique_id();
    EXPECT_LE(id.size(), kMaxUniqueId);
    expect_no_failures(run_ranks(nranks, [&](uint32_t rank) {
      const auto bootstrap = make_bootstrap(by_id(id, rank, nranks), 60s);
      EXPECT_EQ(bootstrap->secret(), parse_id(id).secret);
      gather_and_check(*bootstrap, 5);
    }));
    // An id serves once.
    expect_failure(failure_of([&] { make_bootstrap(by_id(id, 0, nranks), 60s); }), TUTTI_INVALID_USAGE,
                   {"has been used"});
  }
}

TEST(UniqueId, EarlyRanksWaitForRankZero) {
  const std::string id = make_unique_id();
  expect_no_failures(run_ranks(3, [&](uint32_t rank) {
    if (rank == 0) std::this_thread::sleep_for(200ms);
    gather_and_check(*make_bootstrap(by_id(id, rank, 3), 60s), 1);
  }));
}

TEST(UniqueId, ContradictionsEndTheMeetingAtOnce) {
  const std::string id = make_unique_id();
  for (const auto& failure : run_ranks(2, [&](uint32_t rank) { make_bootstrap(by_id(id, rank, 2 + rank), 60s); }))
    expect_failure(failure, TUTTI_MISMATCH, {"world of 2", "one of 3"});
}

TEST(UniqueId, TextsRoundTripAndKeepTheirLimit) {
  constexpr uint16_t port = 4711;
  MeetingPlace id{{}, "", random_bytes(kSecretBytes), to_hex(random_bytes(kIdNameBytes))};
  for (char i = 1; i <= 40; ++i) {
    id.addresses.push_back(SocketAddress::from_bytes(std::string("\x0a\0\0", 3) + i, port));
    id.addresses.push_back(SocketAddress::from_bytes(std::string(15, '\x20') + i, port));
    const std::string text = id_text(id);
    ASSERT_LE(text.size(), kMaxUniqueId);
    const MeetingPlace back = parse_id(text);
    EXPECT_EQ(back.job, id.job);
    EXPECT_EQ(back.secret, id.secret);
    EXPECT_GE(back.addresses.size(), std::min<size_t>(id.addresses.size(), 6));
    for (size_t a = 0; a < back.addresses.size(); ++a) EXPECT_TRUE(back.addresses[a] == id.addresses[a]);
    // Cut anywhere it is refused, or names fewer addresses; it never crashes.
    for (size_t cut = 0; cut < text.size(); ++cut) {
      const auto failure = failure_of([&] { parse_id(text.substr(0, cut)); });
      if (cut < 3 + 2 * (8 + kIdNameBytes + kSecretBytes + 5) || cut % 2 == 0)
        expect_failure(failure, TUTTI_INVALID_ARGUMENT, {"not a unique id"});
    }
  }
  expect_failure(failure_of([&] { parse_id("id:" + std::string(254, '0')); }), TUTTI_INVALID_ARGUMENT,
                 {"257 characters"});
}

}  // namespace
}  // namespace tutti::core::test
