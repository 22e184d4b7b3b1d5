// SPDX-License-Identifier: Apache-2.0
//
// Waits that their caller ends long before their deadlines. Each rank is a thread, and has its own question.
#include "net/interrupt.hpp"

#include "bootstrap/authentication.hpp"
#include "harness/virtual_time/virtual_time.hpp"
#include "meeting_fixture.hpp"

namespace tutti::core::test {
namespace {

using tutti::test::VirtualTime;

// While it lives, this thread's waits are asked, and the third question ends them.
class Impatient {
 public:
  Impatient() {
    Interrupt::set(
        [](void* self) -> int32_t {
          EXPECT_TRUE(Interrupt::is_asking());
          return ++static_cast<Impatient*>(self)->questions >= 3;
        },
        this);
  }
  ~Impatient() {
    EXPECT_FALSE(Interrupt::is_asking());
    Interrupt::set(nullptr, nullptr);
  }
  int questions = 0;
};

Rendezvous met_at(const std::string& where, uint32_t rank, uint32_t nranks) {
  Rendezvous meeting;
  meeting.where = where;
  meeting.rank = rank;
  meeting.nranks = nranks;
  meeting.environment = environment_of({{"TUTTI_SECRET", kSecret}});
  meeting.log = quiet;
  return meeting;
}

// Ranks 0 and 1 of 3 come; `impatient` is interrupted, and the other one hears of it.
void expect_both_end(const std::string& where, uint32_t impatient) {
  const VirtualTime time;
  const auto failures = run_ranks(2, [&](uint32_t rank) {
    std::optional<Impatient> asks;
    if (rank == impatient) asks.emplace();
    make_bootstrap(met_at(where, rank, 3), 300s);
  });
  expect_failure(failures[impatient], TUTTI_ABORTED, {"was interrupted by its caller"});
  ASSERT_TRUE(failures[1 - impatient]);
  EXPECT_NE(failures[1 - impatient]->text.find("rank " + std::to_string(impatient)), std::string::npos)
      << failures[1 - impatient]->text;
  EXPECT_LT(time.passed(), 100s);
}

TEST(Interrupted, MeetingsAmongThreadsEndForAll) {
  expect_both_end("local:interrupted", 0);
  expect_both_end("local:interrupted", 1);
  expect_no_failures(run_ranks(  // the name is free again
      2, [&](uint32_t rank) { gather_and_check(*make_bootstrap(met_at("local:interrupted", rank, 2), 60s), 1); }));
}

TEST(Interrupted, MeetingsAtRankZeroEndForAll) {
  for (const uint32_t impatient : {0u, 1u}) {
    const HeldPort port;
    expect_both_end(port.rendezvous(), impatient);
  }
}

TEST(Interrupted, ARankThatDoesNotFindRankZero) {
  const VirtualTime time;
  const HeldPort port;
  const auto failures = run_ranks(1, [&](uint32_t) {
    const Impatient asks;
    make_bootstrap(met_at(port.rendezvous(), 1, 2), 300s);
  });
  expect_failure(failures[0], TUTTI_ABORTED, {"was interrupted by its caller"});
  EXPECT_LT(time.passed(), 100s);
}

TEST(Interrupted, AnAllGatherEndsForAll) {
  for (const std::string where : {"local:gathering", "tcp"}) {
    const VirtualTime time;
    const HeldPort port;
    const auto failures = run_ranks(3, [&](uint32_t rank) {
      const auto bootstrap = make_bootstrap(met_at(where == "tcp" ? port.rendezvous() : where, rank, 3), 60s);
      if (rank == 2) return static_cast<void>(bootstrap->control().await_cause(300s));
      std::optional<Impatient> asks;
      if (rank == 1) asks.emplace();
      bootstrap->all_gather("x", 300s);
    });
    expect_failure(failures[1], TUTTI_ABORTED, {"this rank was interrupted by its caller"});
    expect_failure(failures[0], TUTTI_ABORTED, {"rank 1 gave up", "was interrupted by its caller"});
    EXPECT_FALSE(failures[2]);
    EXPECT_LT(time.passed(), 100s);
  }
}

}  // namespace
}  // namespace tutti::core::test
