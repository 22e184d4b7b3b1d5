// SPDX-License-Identifier: Apache-2.0
#include "harness/virtual_time/virtual_time.hpp"
#include "meeting_fixture.hpp"

namespace tutti::core::test {
namespace {

using tutti::test::late;
using tutti::test::VirtualTime;

Rendezvous local(const char* name, uint32_t rank, uint32_t nranks) {
  Rendezvous meeting;
  meeting.where = std::string("local:") + name;
  meeting.rank = rank;
  meeting.nranks = nranks;
  return meeting;
}

TEST(LocalMeeting, GathersInRankOrder) {
  for (uint32_t nranks : {1u, 2u, 3u, 8u, 17u})
    expect_no_failures(run_ranks(nranks, [&](uint32_t rank) {
      const auto bootstrap = make_bootstrap(local("order", rank, nranks), 60s);
      EXPECT_EQ(bootstrap->rank(), rank);
      EXPECT_EQ(bootstrap->secret().size(), 32u);
      gather_and_check(*bootstrap, 20);
    }));
}

TEST(LocalMeeting, FiveHundredTwelveRanks) {
  constexpr uint32_t kRanks = 512;
  expect_no_failures(run_ranks(
      kRanks, [&](uint32_t rank) { gather_and_check(*make_bootstrap(local("many", rank, kRanks), 60s), 2); }));
}

TEST(LocalMeeting, WhoDoesNotComeIsNamed) {
  const VirtualTime time;
  const auto failures = run_ranks(3, [&](uint32_t rank) {
    if (rank != 1) make_bootstrap(local("absent", rank, 3), rank == 0 ? 30s : 60s);
  });
  EXPECT_GE(time.passed(), 30s);
  EXPECT_LT(time.passed(), late(30s));
  expect_failure(failures[0], TUTTI_TIMEOUT, {"rank 1", "30 s"});
  expect_failure(failures[2], TUTTI_TIMEOUT, {"rank 1"});
  // The name is free again.
  expect_no_failures(
      run_ranks(2, [&](uint32_t rank) { gather_and_check(*make_bootstrap(local("absent", rank, 2), 60s), 1); }));
}

TEST(LocalMeeting, WhoDoesNotGatherIsNamedAndTheBootstrapIsSpent) {
  const VirtualTime time;
  const auto failures = run_ranks(3, [&](uint32_t rank) {
    const auto bootstrap = make_bootstrap(local("late", rank, 3), 60s);
    if (rank == 2) std::this_thread::sleep_for(300s);
    const auto first = failure_of([&] { bootstrap->all_gather("x", 30s); });
    EXPECT_GE(time.passed(), 30s);
    EXPECT_LT(time.passed(), late(rank == 2 ? 300s : 30s));
    expect_failure(first, TUTTI_TIMEOUT, {"rank 2"});
    expect_failure(failure_of([&] { bootstrap->all_gather("x", 30s); }), TUTTI_INVALID_USAGE, {first->text});
  });
  expect_no_failures(failures);
}

TEST(LocalMeeting, ContradictionsNameBoth) {
  const VirtualTime time;  // a sleep ends when the other thread is in the meeting
  auto failures = run_ranks(2, [&](uint32_t i) {
    if (i == 1) std::this_thread::sleep_for(5s);
    make_bootstrap(local("twice", 1, 3), 60s);
  });
  expect_failure(failures[0], TUTTI_MISMATCH, {"rank 1 came twice"});
  expect_failure(failures[1], TUTTI_MISMATCH, {"rank 1 came twice"});
  failures = run_ranks(2, [&](uint32_t i) {
    if (i == 1) std::this_thread::sleep_for(5s);
    make_bootstrap(local("world", i, 2 + i), 60s);
  });
  for (const auto& failure : failures) expect_failure(failure, TUTTI_MISMATCH, {"world of 3", "one of 2"});
}

TEST(LocalMeeting, AnnouncedFailuresAndLeaversReachAll) {
  expect_no_failures(run_ranks(4, [&](uint32_t rank) {
    const auto bootstrap = make_bootstrap(local("announce", rank, 4), 60s);
    if (rank == 2) return bootstrap->announce_failure(TUTTI_SYSTEM, "failed: out of coffee");
    expect_failure(failure_of([&] { bootstrap->all_gather("x", 60s); }), TUTTI_SYSTEM,
                   {"rank 2 failed: out of coffee"});
    EXPECT_EQ(bootstrap->control().first_cause()->text(), "rank 2 failed: out of coffee");
  }));
  expect_no_failures(run_ranks(4, [&](uint32_t rank) {
    const auto bootstrap = make_bootstrap(local("leave", rank, 4), 60s);
    if (rank == 2) return;
    expect_failure(failure_of([&] { bootstrap->all_gather("x", 60s); }), TUTTI_PEER_FAILED, {"rank 2", "left"});
  }));
}

TEST(Rendezvous, NonsenseIsRefused) {
  struct Case {
    Rendezvous meeting;
    std::vector<std::string> words;
  };
  const auto named = [](const char* where, int64_t rank, int64_t nranks) {
    Rendezvous meeting;
    meeting.where = where;
    meeting.rank = rank;
    meeting.nranks = nranks;
    meeting.environment = environment_of({});
    return meeting;
  };
  const Case cases[] = {
      {named("tcp", 0, 2), {"is \"tcp\", expected env"}},
      {named("tcp://h", 0, 2), {"has no port"}},
      {named("tcp://:1", 0, 2), {"has no host"}},
      {named("tcp://h:x", 0, 2), {"\"x\" is not a port"}},
      {named("tcp://h:65536", 0, 2), {"65536"}},
      {named("tcp://::1:80", 0, 2), {"without brackets"}},
      {named("tcp://[::1:80", 0, 2), {"closing bracket"}},
      {named("tcp://h:1", 2, 2), {"rank 2", "2 ranks"}},
      {named("tcp://h:1", 0, 0), {"world of 0"}},
      {named("tcp://h:1", 0, -1), {"needs a rank and a number of ranks"}},
      {named("local:x", -1, -1), {"needs a rank and a number of ranks"}},
      {named("local:x", 0, (1 << 20) + 1), {"1048577", "1048576"}},
      {named("env", 0, 2), {"rank 0 of 2 was given"}},
      {named("id:00", 1, 2), {"not a unique id"}},
      {named("id:xx", 1, 2), {"hexadecimal"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.meeting.where);
    expect_failure(failure_of([&] { make_bootstrap(c.meeting, 60s); }), TUTTI_INVALID_ARGUMENT, c.words);
  }
}

// The shell of an allocation has the number of tasks, but nobody has given it a rank.
TEST(Rendezvous, AloneInASlurmAllocationIsAWorldOfOne) {
  Rendezvous meeting;
  meeting.environment = environment_of({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_NODELIST", "a,b"}});
  EXPECT_EQ(make_bootstrap(meeting, 60s)->nranks(), 1u);
}

TEST(Rendezvous, NoLauncherIsAWorldOfOne) {
  Rendezvous meeting;
  meeting.environment = environment_of({});
  const auto bootstrap = make_bootstrap(meeting, 60s);
  EXPECT_EQ(bootstrap->rank(), 0u);
  EXPECT_EQ(bootstrap->nranks(), 1u);
  EXPECT_EQ(bootstrap->all_gather("me", 60s), std::vector<std::string>{"me"});
  expect_failure(failure_of([&] { bootstrap->all_gather(std::string(kMaxContribution + 1, 'x'), 60s); }),
                 TUTTI_INVALID_ARGUMENT, {"4194305", "4194304"});
}

}  // namespace
}  // namespace tutti::core::test
