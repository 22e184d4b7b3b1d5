// SPDX-License-Identifier: Apache-2.0
//
// The facts that the ranks of a process agree on before their work is put into streams, and what two of them tell each
// other of a message. There is no device here: nobody gets so far.
#include "stream/local_rendezvous.hpp"

#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <string>
#include <thread>

#include "../../tests/harness/scarce_memory.hpp"

namespace tutti::core {
namespace {

constexpr std::chrono::microseconds no_time(0);
constexpr std::chrono::seconds one_minute(60);
uint32_t current_device = 0;

struct Ranks {
  Ranks() {
    memory.name = "none";
    executor.stream_state = [](void*, void*, uint32_t* device, uint64_t* flags) -> tutti_status {
      *device = current_device;
      *flags = 0;
      return TUTTI_OK;
    };
    for (uint32_t rank = 0; rank < 2; ++rank) {
      launches[rank].rank = rank;
      launches[rank].stream = this;
      launches[rank].counter = reinterpret_cast<const StreamCounter*>(this);
      launches[rank].plan = &plans[rank];
    }
  }
  // The words in which the second to come hears why not; "" when they may go on.
  std::string trouble() {
    LocalRendezvous meeting({0, 1});
    plans[0].plan.count = all_reduce.count;
    plans[1].plan.count = calls.count;
    DeviceTables device;
    device.memory = &memory;
    device.executor = &executor;
    std::string text;
    const std::function<void()> meanwhile = [] {};
    meeting.arrive({&launches[0], device, first, &meanwhile});
    const uint64_t turn = meeting.arrive({&launches[1], device, calls, &meanwhile});
    try {
      meeting.passed(turn, std::chrono::microseconds(1));
    } catch (const Failure& failure) {
      text = failure.text;
    }
    return text;
  }
  tutti_device memory{};
  tutti_executor executor{};
  StreamPlan plans[2];
  StreamLaunch launches[2];
  const Shape all_reduce{8, TUTTI_ALL_REDUCE, TUTTI_INT32, TUTTI_SUM};
  Shape first = all_reduce, calls = all_reduce;
};

TEST(LocalRendezvous, RanksCallTheSame) {
  Ranks ranks;
  ranks.calls = {0, TUTTI_BARRIER};
  const std::string text = ranks.trouble();
  EXPECT_NE(text.find("rank 0 called all_reduce(8 x int32, sum), rank 1 called barrier()"), std::string::npos) << text;
}

TEST(LocalRendezvous, RanksPassTheSameCounts) {
  Ranks ranks;
  ranks.first = ranks.calls = {8, TUTTI_ALL_GATHER_V, TUTTI_INT32};
  ranks.plans[1].plan.common_hash = ranks.plans[0].plan.common_hash + 1;
  const std::string text = ranks.trouble();
  EXPECT_NE(text.find("rank 1 called all_gather_v"), std::string::npos) << text;
  EXPECT_NE(text.find("with other counts than rank 0 did"), std::string::npos) << text;
}

TEST(LocalRendezvous, RanksAreCapturedTogether) {
  for (const uint32_t captured : {0u, 1u}) {
    Ranks ranks;
    ranks.launches[captured].counter = nullptr;
    const std::string text = ranks.trouble();
    EXPECT_NE(text.find("the stream of rank " + std::to_string(captured) + " is being captured"), std::string::npos)
        << text;
  }
}

// The rank that comes last has no memory left for the words in which the others would hear why not.
TEST(LocalRendezvous, ATurnEndsWithoutMemory) {
  Ranks ranks;
  const Shape other{0, TUTTI_BARRIER};
  const std::function<void()> meanwhile = [] {};
  DeviceTables device;
  device.memory = &ranks.memory;
  device.executor = &ranks.executor;
  bool ran_out = true;
  for (int64_t n = 0; ran_out; ++n) {
    LocalRendezvous meeting({0, 1});
    const uint64_t turn = meeting.arrive({&ranks.launches[0], device, ranks.all_reduce, &meanwhile});
    test::failed = false;
    test::lasts = true;
    test::allocations_left = n;
    bool came = true;
    try {
      meeting.arrive({&ranks.launches[1], device, other, &meanwhile});
    } catch (const std::bad_alloc&) {
      came = false;
    }
    test::allocations_left = -1;
    test::lasts = false;
    ran_out = test::failed;
    EXPECT_FALSE(meeting.issuer()) << "allocation " << n;
    if (came) {
      EXPECT_THROW(meeting.passed(turn, no_time), std::exception) << "allocation " << n;
    }
    EXPECT_TRUE(meeting.leave(1, {TUTTI_NO_RESOURCES, "is out of memory"}, no_time));
    EXPECT_THROW(meeting.passed(turn, no_time), std::exception) << "allocation " << n;
  }
}

TEST(LocalRendezvous, TheDefaultStreamIsThatOfTheLastToCome) {
  Ranks ranks;
  for (StreamLaunch& launch : ranks.launches) launch.device = 1;
  ranks.launches[0].stream = nullptr;
  current_device = 0;
  const std::string text = ranks.trouble();
  EXPECT_NE(text.find("rank 0 passes the default stream of device 1, and in the thread of the rank that came last the "
                      "current device is 0"),
            std::string::npos)
      << text;
}

TEST(LocalRendezvous, MessagesOfAPairAreTakenInTheirOrder) {
  LocalRendezvous meeting({0, 1, 2});
  std::byte data[3];
  tutti_event* const ready = reinterpret_cast<tutti_event*>(data);
  EXPECT_EQ(meeting.take(0, 1, no_time), nullptr);
  Handover& first = meeting.offer(0, 1, data, 5, ready);
  Handover& second = meeting.offer(0, 1, data + 1, 5, ready);
  Handover& other = meeting.offer(0, 2, data + 2, 5, ready);
  EXPECT_EQ(meeting.take(1, 0, no_time), nullptr);
  EXPECT_EQ(meeting.take(0, 1, no_time), &first);
  EXPECT_EQ(meeting.take(0, 1, no_time), &second);
  EXPECT_EQ(meeting.take(0, 1, no_time), nullptr);
  EXPECT_EQ(second.data, data + 1);
  EXPECT_EQ(second.device, 5u);
  EXPECT_EQ(meeting.await(first, no_time), Handover::Stage::taken);
  EXPECT_EQ(meeting.await(other, no_time), Handover::Stage::offered);
  first.done = ready;
  std::thread receiver([&] { meeting.advance(first, Handover::Stage::fetched); });
  while (meeting.await(first, one_minute) != Handover::Stage::fetched) continue;
  receiver.join();
  meeting.close(first);
  EXPECT_EQ(&meeting.offer(0, 1, data, 5, ready), &first) << "its event is of use to messages of this pair alone";
  EXPECT_EQ(first.done, ready);
  EXPECT_EQ(meeting.await(first, no_time), Handover::Stage::offered);
}

// Collectives and transfers alike end, so no call of the process waits for a rank that does not come.
TEST(LocalRendezvous, ARankThatGivesUpEndsAllThatTheRanksMeetFor) {
  LocalRendezvous meeting({0, 1});
  Handover& offered = meeting.offer(0, 1, nullptr, 0, nullptr);
  Handover& taken = meeting.offer(1, 0, nullptr, 0, nullptr);
  EXPECT_EQ(meeting.take(1, 0, no_time), &taken);
  EXPECT_NO_THROW(meeting.require_no_failure());
  EXPECT_TRUE(meeting.leave(0, {TUTTI_TIMEOUT, "has waited"}, no_time));
  StreamLaunch launch;
  const std::function<void()> meanwhile = [] {};
  const std::function<void()> calls[] = {[&] { meeting.require_no_failure(); }, [&] { meeting.take(0, 1, one_minute); },
                                         [&] { meeting.offer(1, 0, nullptr, 0, nullptr); },
                                         [&] {
                                           meeting.arrive({&launch, {}, {}, &meanwhile});
                                         }};
  for (const auto& call : calls) try {
      call();
      ADD_FAILURE() << "call " << &call - calls;
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.status, TUTTI_TIMEOUT);
      EXPECT_EQ(failure.text, "ends its calls with rank 0 of its process, which has waited");
    }
  EXPECT_EQ(meeting.await(offered, no_time), Handover::Stage::offered);
  EXPECT_EQ(meeting.await(taken, no_time), Handover::Stage::taken) << "its receiver says when it needs it no more";
}

}  // namespace
}  // namespace tutti::core
