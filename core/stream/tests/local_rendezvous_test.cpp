// SPDX-License-Identifier: Apache-2.0
//
// The facts that the ranks of a process agree on before their work is put into streams. There is no device here:
// nobody gets so far.
#include "stream/local_rendezvous.hpp"

#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <string>

namespace tutti::core {
namespace {

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

}  // namespace
}  // namespace tutti::core
