// SPDX-License-Identifier: Apache-2.0
//
// Checked mode warns of ranks that use two communicators in different order, where no call blocks and so nothing hangs.
#include <optional>
#include <regex>

#include "../../tests/harness/ranks.hpp"

namespace tutti::test {
namespace {

using Body = std::function<void(Communicator& world, Communicator& a, Communicator& b)>;

// The warnings about order while `n` ranks use two duplicates of a communicator, whose names are world.1:0 and so on.
std::vector<std::string> warnings(uint32_t n, const Body& body, uint32_t flags = TUTTI_COMM_CHECK_CALLS) {
  testing::internal::CaptureStderr();
  run_ranks(n,
            [&](Communicator& world) {
              Communicator a = world.duplicate(), b = world.duplicate();
              body(world, a, b);
            },
            {nullptr, nullptr, flags});
  const std::string log = testing::internal::GetCapturedStderr();
  std::vector<std::string> found;
  const std::regex line("tutti warn: [^\n]*order[^\n]*");
  for (std::sregex_iterator at(log.begin(), log.end(), line), end; at != end; ++at) found.push_back(at->str());
  return found;
}

struct Started {
  float x = 1;
  Request request;
  explicit Started(const Communicator& comm) : request(comm.async().all_reduce<float>({&x, 1}, {&x, 1}, Op::max)) {}
};

void call(const Communicator& comm) { Started(comm).request.wait(); }

TEST(CallOrder, ADifferenceIsToldOnce) {
  for (const uint32_t n : {2u, 3u, 5u})
    for (uint32_t odd = 0; odd < n; ++odd) {
      SCOPED_TRACE(testing::Message() << "rank " << odd << " of " << n);
      const auto told = warnings(n, [&](Communicator& world, Communicator& a, Communicator& b) {
        for (int repeat = 0; repeat < 3; ++repeat) {
          call(a);
          call(b);
        }
        for (uint32_t repeat = 0; repeat <= odd; ++repeat) {
          Started first(world.rank() == odd ? b : a), second(world.rank() == odd ? a : b);
          second.request.wait();
          first.request.wait();
        }
      });
      ASSERT_EQ(told.size(), 1u) << (told.empty() ? "" : told[1]);
      const std::regex expected(
          R"(tutti warn: world\.(\d):0: rank (\d) called all_reduce #(\d) of world\.(\d):0 before all_reduce #(\d) of )"
          R"(world\.(\d):0, rank (\d) the other way round: where calls block this is a deadlock; use the )"
          R"(communicators in the same order on every rank.*)");
      std::smatch of;
      ASSERT_TRUE(std::regex_match(told[0], of, expected)) << told[0];
      const uint32_t one = std::stoul(of[2]), other = std::stoul(of[7]);
      EXPECT_EQ((one == odd) + (other == odd), 1) << told[0];
      EXPECT_EQ(of[1], of[6]) << told[0];
      EXPECT_EQ(of[3], of[5]) << told[0];
      EXPECT_EQ(of[4], one == odd ? "2" : "1") << told[0];  // the odd rank calls b first
      EXPECT_EQ(of[6], one == odd ? "1" : "2") << told[0];
    }
}

TEST(CallOrder, CallsOfOtherCommunicatorsBetweenHideNothing) {
  const auto told = warnings(2, [](Communicator& world, Communicator& a, Communicator& b) {
    const auto own = world.split(world.rank());  // another one on each rank
    const auto use = [&](const Communicator& one, const Communicator& other) {
      Started first(one);
      call(*own);
      Started second(other);
      second.request.wait();
      first.request.wait();
    };
    for (int repeat = 0; repeat < 2; ++repeat) world.rank() ? use(b, a) : use(a, b);
  });
  EXPECT_EQ(told.size(), 1u);
}

TEST(CallOrder, TheSameOrderIsNotTold) {
  for (const uint32_t n : {2u, 3u})
    EXPECT_EQ(warnings(n,
                       [](Communicator& world, Communicator& a, Communicator& b) {
                         for (int repeat = 0; repeat < 300; ++repeat) {  // more than a recorder keeps
                           Started first(repeat % 3 ? a : b), second(repeat % 3 ? b : a), third(world);
                           third.request.wait();
                           (world.rank() ? first : second).request.wait();
                           (world.rank() ? second : first).request.wait();
                         }
                       }),
              std::vector<std::string>());
}

// Threads of a rank have no order.
TEST(CallOrder, CallsOfDifferentThreadsAreNotTold) {
  EXPECT_EQ(warnings(2,
                     [](Communicator& world, Communicator& a, Communicator& b) {
                       for (int repeat = 0; repeat < 3; ++repeat) {
                         std::optional<Started> here, there;
                         if (world.rank() == 0) here.emplace(a);
                         std::thread([&] { there.emplace(b); }).join();
                         if (world.rank() == 1) here.emplace(a);
                         here->request.wait();
                         there->request.wait();
                       }
                     }),
            std::vector<std::string>());
}

TEST(CallOrder, IsNotComparedOutsideOfCheckedMode) {
  EXPECT_EQ(warnings(
                2,
                [](Communicator& world, Communicator& a, Communicator& b) {
                  Started first(world.rank() ? a : b), second(world.rank() ? b : a);
                  first.request.wait();
                  second.request.wait();
                },
                0),
            std::vector<std::string>());
}

}  // namespace
}  // namespace tutti::test
