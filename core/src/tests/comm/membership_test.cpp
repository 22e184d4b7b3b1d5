// SPDX-License-Identifier: Apache-2.0
//
// Going on after a failure: revoke, shrink, invite and grow, ranks as threads. Deaths of processes: tests/survival.
#include <algorithm>
#include <barrier>
#include <mutex>
#include <numeric>

#include "../../../tests/harness/ranks.hpp"
#include "../../../tests/harness/virtual_time/virtual_time.hpp"

namespace tutti::test {
namespace {

void expect_sum_of_ranks(Communicator& comm) {
  std::vector<int64_t> data(1000, comm.rank() + 1);
  comm.all_reduce<int64_t>(data, data, Op::sum);
  EXPECT_EQ(data, std::vector<int64_t>(1000, comm.nranks() * (comm.nranks() + 1) / 2));
}

TEST(Shrink, LeavesOutWhoHasGoneAndKeepsTheOrder) {
  for (const uint32_t nranks : {2u, 5u})
    run_ranks(nranks, [&](Communicator& world) {
      world.barrier();
      if (world.rank() == 0) {
        world.abort("the cat is on the keyboard");
        return;  // and destroys it
      }
      const Failed failed = failure_of([&] {
        for (;;) world.barrier();
      });
      EXPECT_EQ(failed.status, TUTTI_ABORTED);
      EXPECT_TRUE(failed.text.starts_with("rank 0 aborted: the cat is on the keyboard; seen by rank ")) << failed.text;
      EXPECT_EQ(world.async_error(), TUTTI_ABORTED);
      EXPECT_EQ(world.lost(), std::vector<uint32_t>{0});
      Communicator next = world.shrink();
      EXPECT_EQ(next.nranks(), nranks - 1);
      EXPECT_EQ(next.rank(), world.rank() - 1);
      expect_sum_of_ranks(next);
    });
}

TEST(Shrink, ARevokedCommunicatorGoesOnWithAll) {
  run_ranks(3, [](Communicator& world) {
    if (world.rank() == 1) world.revoke("the data are wrong here");
    const Failed failed = failure_of([&] {
      for (;;) world.barrier();
    });
    EXPECT_EQ(failed.status, TUTTI_ABORTED);
    EXPECT_TRUE(failed.text.starts_with("rank 1 revoked the communicator: the data are wrong here")) << failed.text;
    Communicator next = world.shrink();
    EXPECT_EQ(next.nranks(), 3u);
    expect_sum_of_ranks(next);
  });
}

TEST(Shrink, AHealthyCommunicatorStaysUsable) {
  run_ranks(3, [](Communicator& world) {
    Communicator next = world.shrink();
    expect_sum_of_ranks(next);
    expect_sum_of_ranks(world);
    Communicator again = next.shrink();
    expect_sum_of_ranks(again);
  });
}

TEST(Shrink, PendingOperationsAreAnError) {
  std::barrier refused(2);
  run_ranks(2, [&](Communicator& world) {
    std::vector<float> data(100);
    Request pending = world.async().receive<float>(data, 1 - world.rank());
    EXPECT_EQ(failure_of([&] { world.shrink(); }).status, TUTTI_INVALID_USAGE);
    refused.arrive_and_wait();  // until then neither has anything to receive
    world.send<float>(data, 1 - world.rank());
    pending.wait();
  });
}

// A rank that lives but does not come is waited for, then left out, and told so when it comes.
TEST(Shrink, WhoComesTooLateIsLeftOut) {
  const VirtualTime time;
  std::barrier late(3);
  run_ranks(3, [&](Communicator& world) {
    world.barrier();
    tutti_options options{sizeof options};
    options.timeout_ns = 45'000'000'000;
    tutti_comm* next = nullptr;
    if (world.rank() == 2) {
      late.arrive_and_wait();
      EXPECT_EQ(tutti_comm_shrink(world.handle(), &options, &next), TUTTI_PEER_FAILED);
      EXPECT_NE(world.error_text().find("ranks 0 and 1 went on without it"), std::string::npos) << world.error_text();
      return;
    }
    const auto begin = time.passed();
    ASSERT_EQ(tutti_comm_shrink(world.handle(), &options, &next), TUTTI_OK) << world.error_text();
    EXPECT_GE(time.passed() - begin, std::chrono::seconds(45));
    EXPECT_LT(time.passed() - begin, tutti::test::late(std::chrono::seconds(45)));
    EXPECT_EQ(tutti_comm_nranks(next), 2u);
    late.arrive_and_wait();
    EXPECT_EQ(tutti_comm_destroy(next), TUTTI_OK);
  });
}

TEST(Grow, NewcomersGetTheLastRanks) {
  std::string id;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::thread> newcomers;
  for (int i = 0; i < 2; ++i)
    newcomers.emplace_back([&] {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return !id.empty(); });
      const std::string invitation = id;
      lock.unlock();
      try {
        Communicator grown = Communicator::join(invitation);
        EXPECT_EQ(grown.nranks(), 4u);
        EXPECT_GE(grown.rank(), 2u);
        expect_sum_of_ranks(grown);
      } catch (const std::exception& e) {
        ADD_FAILURE() << "a newcomer: " << e.what();
      }
    });
  run_ranks(3, [&](Communicator& world) {
    if (world.rank() == 1) return world.abort("goes home");
    EXPECT_LT(failure_of([&] {
                for (;;) world.barrier();
              }).status,
              0);
    const std::string mine = world.invite();
    {
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(id.empty() || id == mine);
      id = mine;
    }
    changed.notify_all();
    Communicator grown = world.grow(mine, 2);
    EXPECT_EQ(grown.nranks(), 4u);
    EXPECT_EQ(grown.rank(), world.rank() / 2);
    expect_sum_of_ranks(grown);
  });
  for (std::thread& t : newcomers) t.join();
}

TEST(Grow, WrongUseIsNamed) {
  run_ranks(2, [](Communicator& world) {
    const Failed never = failure_of([&] { world.grow("id:00", 1); });
    EXPECT_EQ(never.status, TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(never.text.find("tutti_comm_invite"), std::string::npos) << never.text;
    const std::string id = world.invite();
    EXPECT_EQ(failure_of([&] { world.grow(id, 0); }).status, TUTTI_INVALID_ARGUMENT);
    tutti_comm* comm = nullptr;
    EXPECT_EQ(tutti_comm_shrink(world.handle(), nullptr, nullptr), TUTTI_INVALID_ARGUMENT);
    EXPECT_EQ(tutti_comm_shrink(nullptr, nullptr, &comm), TUTTI_INVALID_ARGUMENT);
    expect_sum_of_ranks(world);
  });
  const Failed joining = failure_of([] {
    tutti_comm_config config{sizeof config};
    config.flags = TUTTI_COMM_JOIN;
    config.rendezvous = "local:nowhere";
    Communicator comm(config);
  });
  EXPECT_EQ(joining.status, TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(joining.text.find("tutti_comm_invite"), std::string::npos) << joining.text;
}

// Nobody joins: all fail alike, in time.
TEST(Grow, WhoDoesNotJoinIsNamed) {
  const VirtualTime time;
  run_ranks(2, [&time](Communicator& world) {
    const std::string id = world.invite();
    tutti_options options{sizeof options};
    options.timeout_ns = 45'000'000'000;
    tutti_unique_id copy{};
    std::copy(id.begin(), id.end(), copy.text);
    tutti_comm* comm = nullptr;
    const auto begin = time.passed();
    EXPECT_LT(tutti_comm_grow(world.handle(), &copy, 1, &options, &comm), 0);
    EXPECT_GE(time.passed() - begin, std::chrono::seconds(45));
    EXPECT_LT(time.passed() - begin, tutti::test::late(std::chrono::seconds(45)));
    EXPECT_NE(world.error_text().find("rank 2 of 3 did not connect"), std::string::npos) << world.error_text();
    expect_sum_of_ranks(world);
  });
}

// The cause that broke the communicator stays in its error text, whatever fails later.
TEST(Failure, TheFirstCauseStays) {
  run_ranks(2, [](Communicator& world) {
    world.barrier();
    if (world.rank() == 0) return world.abort("first");
    const Failed first = failure_of([&] {
      for (;;) world.barrier();
    });
    const Failed again = failure_of([&] { world.barrier(); });
    EXPECT_EQ(again.text, first.text);
    int32_t x = 0;
    EXPECT_EQ(tutti_broadcast(world.handle(), &x, &x, 1, TUTTI_INT32, 9, nullptr, nullptr), TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(world.error_text().find("root is 9"), std::string::npos) << world.error_text();
    EXPECT_NE(world.error_text().find("rank 0 aborted: first"), std::string::npos) << world.error_text();
  });
}

}  // namespace
}  // namespace tutti::test
