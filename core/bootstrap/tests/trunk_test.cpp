// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/trunk.hpp"

#include <array>
#include <barrier>

#include "meeting_fixture.hpp"

namespace tutti::core::test {
namespace {

// A way to meet, which is used twice: for the communicator that is split, and for the trunk.
struct Way {
  const char* name;
  std::function<Rendezvous(uint32_t rank, uint32_t nranks)> of;
};

Rendezvous at(std::string where, uint32_t rank, uint32_t nranks) {
  Rendezvous meeting;
  meeting.where = std::move(where);
  meeting.rank = rank;
  meeting.nranks = nranks;
  meeting.environment = environment_of({{"TUTTI_SECRET", kSecret}});
  meeting.log = quiet;
  return meeting;
}

Rendezvous meet_locally_twice(uint32_t rank, uint32_t nranks) { return at("local:trunk", rank, nranks); }

Rendezvous meet_by_tcp_twice(uint32_t rank, uint32_t nranks) {
  static HeldPort& port = *new HeldPort;
  return at(port.rendezvous(), rank, nranks);
}

// A rank's way to the trunk, which its branches keep.
struct Member {
  std::unique_ptr<Bootstrap> first;  // of the communicator that is split
  std::shared_ptr<Trunk> trunk;

  std::unique_ptr<Bootstrap> branch(uint64_t number, const std::vector<uint32_t>& members) const {
    const auto rank = std::ranges::find(members, trunk->rank()) - members.begin();
    auto made = Trunk::branch(trunk, number, members, static_cast<uint32_t>(rank), *first);
    return made;
  }
};

class Branches : public ::testing::TestWithParam<Way> {
 protected:
  void run(uint32_t nranks, const std::function<void(Member&, std::barrier<>&)>& body) {
    std::barrier together(nranks);
    expect_no_failures(run_ranks(nranks, [&](uint32_t r) {
      Member rank;
      rank.first = make_bootstrap(GetParam().of(r, nranks), 60s);
      together.arrive_and_wait();
      rank.trunk = Trunk::grow(make_bootstrap(GetParam().of(r, nranks), 60s), Deadline(60s));
      body(rank, together);
    }));
  }
};

TEST_P(Branches, GatherSideBySide) {
  constexpr uint32_t nranks = 7;
  run(nranks, [&](Member& rank, std::barrier<>& together) {
    const uint32_t r = rank.trunk->rank();
    const std::vector<uint32_t> parity = r % 2 ? std::vector<uint32_t>{5, 1, 3} : std::vector<uint32_t>{0, 2, 4, 6};
    const auto halves = rank.branch(1, parity), all = rank.branch(2, {6, 5, 4, 3, 2, 1, 0});
    EXPECT_EQ(halves->nranks(), parity.size());
    EXPECT_EQ(parity[halves->rank()], r);
    EXPECT_EQ(all->rank(), nranks - 1 - r);
    together.arrive_and_wait();
    gather_and_check(*halves, 5);
    gather_and_check(*all, 3);
    gather_and_check(*halves, 5);
    for (Bootstrap* one : {all.get(), halves.get()}) one->leave_together();
  });
}

TEST_P(Branches, CarryContributionsOfAnyLength) {
  constexpr uint32_t nranks = 5;
  constexpr size_t bytes = 300'000;
  run(nranks, [&](Member& rank, std::barrier<>& together) {
    const auto all = rank.branch(1, {0, 1, 2, 3, 4});
    together.arrive_and_wait();
    const auto said = all->all_gather(std::string(bytes, static_cast<char>('a' + all->rank())), 60s);
    for (uint32_t r = 0; r < nranks; ++r) EXPECT_EQ(said[r], std::string(bytes, static_cast<char>('a' + r)));
    all->leave_together();
  });
}

TEST_P(Branches, CarryNoticesPairMessagesAndRollCalls) {
  run(4, [&](Member& rank, std::barrier<>& together) {
    const std::vector<uint32_t> members = {3, 0, 2};
    if (rank.trunk->rank() == 1) {
      together.arrive_and_wait();
      together.arrive_and_wait();
      return;
    }
    const auto branch = rank.branch(9, members);
    ControlPlane& control = branch->control();
    control.answer_roll_calls([&] { return "state " + std::to_string(control.rank()); });
    together.arrive_and_wait();
    control.send_notice(NoticeKind::calls, "of " + std::to_string(control.rank()));
    const uint32_t next = (control.rank() + 1) % 3;
    for (uint32_t i = 0; i < 40; ++i) control.send_pair(next, std::to_string(i));
    branch->all_gather("", 60s);  // all were sent before
    std::vector<Notice> notices;
    std::vector<PairMessage> messages;
    const auto end = std::chrono::steady_clock::now() + 60s;
    while ((notices.size() < 2 || messages.size() < 40) && std::chrono::steady_clock::now() < end) {
      for (auto& notice : control.take_notices(NoticeKind::calls)) notices.push_back(std::move(notice));
      for (auto& message : control.take_pair_messages()) messages.push_back(std::move(message));
    }
    ASSERT_EQ(notices.size(), 2u);
    for (const Notice& notice : notices) EXPECT_EQ(notice.bytes, "of " + std::to_string(notice.rank));
    ASSERT_EQ(messages.size(), 40u);
    for (uint32_t i = 0; i < 40; ++i) {
      EXPECT_EQ(messages[i].bytes, std::to_string(i));
      EXPECT_EQ(messages[i].from, (control.rank() + 2) % 3);
    }
    const auto states = control.roll_call(60s);
    for (uint32_t r = 0; r < 3; ++r) EXPECT_EQ(states[r], "state " + std::to_string(r));
    together.arrive_and_wait();
    control.answer_roll_calls(nullptr);
    branch->leave_together();
  });
}

// An abort ends one branch, and neither another nor the trunk.
TEST_P(Branches, FailAlone) {
  run(4, [&](Member& rank, std::barrier<>& together) {
    const uint32_t r = rank.trunk->rank();
    const auto pairs = rank.branch(1, r < 2 ? std::vector<uint32_t>{0, 1} : std::vector<uint32_t>{2, 3});
    const auto all = rank.branch(2, {0, 1, 2, 3});
    together.arrive_and_wait();
    if (r == 1) pairs->control().announce(1, TUTTI_ABORTED, "aborted: enough");
    const auto cause = r < 2 ? pairs->control().await_cause(20s) : std::nullopt;
    if (r < 2) {
      ASSERT_TRUE(cause);
      EXPECT_EQ(cause->text(), "rank 1 aborted: enough");
    }
    gather_and_check(*all, 4);
    EXPECT_EQ(pairs->control().failed(), r < 2);
    EXPECT_FALSE(all->control().failed());
    all->leave_together();
  });
}

// In a ring of eight, ranks 0 and 3 have no connection. Both go on when all others have nothing to do with them any
// more, and so do branches that are made then.
TEST_P(Branches, OutliveTheFirstCommunicatorAndOtherBranches) {
  run(8, [&](Member& rank, std::barrier<>& together) {
    const uint32_t r = rank.trunk->rank();
    rank.first->all_gather("end", 60s);
    {
      const auto all = rank.branch(1, {0, 1, 2, 3, 4, 5, 6, 7});
      together.arrive_and_wait();
      gather_and_check(*all, 2);
      all->leave_together();
    }
    if (r == 0 || r == 3) {
      const auto two = rank.branch(2, {0, 3});
      rank.first.reset();
      rank.trunk.reset();
      together.arrive_and_wait();
      together.arrive_and_wait();
      gather_and_check(*two, 20);
      two->leave_together();
    } else {
      rank.first.reset();
      together.arrive_and_wait();
      rank.trunk.reset();
      together.arrive_and_wait();
    }
  });
}

TEST_P(Branches, LeaveInAnyOrder) {
  run(3, [&](Member& rank, std::barrier<>& together) {
    const auto all = rank.branch(1, {0, 1, 2});
    together.arrive_and_wait();
    if (rank.trunk->rank() == 1) return;  // without the others
    const auto failure = failure_of([&] { all->all_gather("", 20s); });
    ASSERT_TRUE(failure);
    expect_failure(failure, TUTTI_PEER_FAILED, {"rank 1 has left"});
  });
}

// A packet in another rank's name is its sender's fault.
TEST_P(Branches, JudgeWhoSends) {
  run(3, [&](Member& rank, std::barrier<>& together) {
    const uint32_t r = rank.trunk->rank();
    // Member 1 of the trunk thinks of itself as rank 0 of the branch: 0 and 2 find another order.
    const auto branch = rank.branch(1, r == 1 ? std::vector<uint32_t>{1, 0, 2} : std::vector<uint32_t>{0, 1, 2});
    together.arrive_and_wait();
    if (r == 1) branch->control().send_notice(NoticeKind::calls, "a lie");
    if (r == 0) {
      const auto cause = branch->control().await_cause(20s);
      EXPECT_TRUE(cause && cause->rank == 1);
      EXPECT_NE(cause.value_or(Loss{}).reason.find("in the name of rank 0"), std::string::npos);
    }
    together.arrive_and_wait();
  });
}

INSTANTIATE_TEST_SUITE_P(Meetings, Branches,
                         ::testing::Values(Way{"Threads", meet_locally_twice}, Way{"Mesh", meet_by_tcp_twice}),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace tutti::core::test
