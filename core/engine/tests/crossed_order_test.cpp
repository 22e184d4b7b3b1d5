// SPDX-License-Identifier: Apache-2.0
//
// A rank's deadline passes while the rank that it waits for waits in another communicator: the error says in which, and
// where the two wait for each other it names the cycle.
#include <future>
#include <regex>

#include "../../tests/harness/ranks.hpp"
#include "../../tests/harness/virtual_time/virtual_time.hpp"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kDeadline = 100s;  // of the rank whose error is read; the others have the default
constexpr const char* kCycle =
    "waits here for rank 1: a cycle; use the communicators in the same order on every rank; no progress for 100.0 s";

// Also without the call sites that the text has.
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos ||
         std::regex_replace(text, std::regex(R"( \(at [^)]*\))"), "").find(part) != std::string::npos;
}

void call(const Communicator& comm, Options options = {}) {
  float x = 1;
  comm.all_reduce<float>({&x, 1}, {&x, 1}, Op::max, options);
}

// A part of the world and its duplicates, made by all ranks in the same order: the names are world.1 and so on.
void run(uint32_t n, const std::function<void(Communicator& world, Communicator& a, Communicator& b)>& body) {
  const VirtualTime time;
  run_ranks(n,
            [&](Communicator& world) {
              Communicator a = world.duplicate(), b = world.duplicate();
              body(world, a, b);
            },
            {nullptr, nullptr, 0, default_timeout});
  EXPECT_GE(time.passed(), kDeadline);
  EXPECT_LT(time.passed(), late(kDeadline));
}

TEST(CrossedOrder, OfTwoCommunicatorsIsNamed) {
  run(2, [](Communicator& world, Communicator& a, Communicator& b) {
    call(a);
    call(b);
    if (world.rank() == 0) {
      const Failed failed = failure_of([&] { call(a, {.timeout = kDeadline}); });
      EXPECT_EQ(failed.status, TUTTI_TIMEOUT);
      EXPECT_TRUE(has(failed.text,
                      "rank 1 has not entered operation #1: its last was #0, all_reduce(1 x float32, max); it "
                      "waits in all_reduce #1 of world.2:0 for rank 0, which " +
                          std::string(kCycle)))
          << failed.text;
      call(b);
    } else {
      call(b);
      EXPECT_LT(failure_of([&] { call(a); }).status, 0);
    }
  });
}

TEST(CrossedOrder, OfAReceiveAndACollectiveIsNamed) {
  run(2, [](Communicator& world, Communicator& a, Communicator& b) {
    float x = 1;
    if (world.rank() == 0) {
      const Failed failed = failure_of([&] { a.receive<float>({&x, 1}, 1, 7, {.timeout = kDeadline}); });
      EXPECT_EQ(failed.status, TUTTI_TIMEOUT);
      EXPECT_TRUE(has(failed.text,
                      "rank 1 waits in all_reduce #0 of world.2:0 for rank 0, which waits here for rank 1: a "
                      "cycle; use the communicators in the same order on every rank"))
          << failed.text;
      call(b);
    } else {
      call(b);
    }
  });
  run(2, [](Communicator& world, Communicator& a, Communicator& b) {
    float x = 1;
    if (world.rank() == 0) {
      const Failed failed = failure_of([&] { call(a, {.timeout = kDeadline}); });
      EXPECT_TRUE(
          has(failed.text, "it waits in a receive with tag 7 of world.2:0 for rank 0, which " + std::string(kCycle)))
          << failed.text;
      b.send<float>({&x, 1}, 1, 7);
    } else {
      b.receive<float>({&x, 1}, 0, 7);
    }
  });
}

// Any other rank can end it: that is a cycle only where there is no third one.
TEST(CrossedOrder, OfAReceiveFromAnyRankIsNamed) {
  for (const uint32_t n : {2u, 3u}) {
    std::promise<void> failed_promise;
    const std::shared_future<void> over = failed_promise.get_future().share();
    run(n, [&](Communicator& world, Communicator& a, Communicator& b) {
      std::vector<float> x(1);
      tutti_envelope envelope = any_message();
      if (world.rank() == 0) {
        const Failed failed = failure_of([&] { a.receive(x, 1, 7, {.timeout = kDeadline}); });
        EXPECT_TRUE(has(failed.text, "rank 1 waits in a receive with any tag of world.2:0")) << failed.text;
        EXPECT_EQ(has(failed.text, "world.2:0 for rank 0, which waits here for rank 1: a cycle"), n == 2)
            << failed.text;
        failed_promise.set_value();
        b.send(x, 1, 7);
      } else if (world.rank() == 1) {
        b.receive_any(x, envelope);
      } else {
        over.wait();
      }
    });
  }
}

// By their addresses, by the text of a binding, or not at all.
TEST(CrossedOrder, CallSitesAreNamed) {
  constexpr const char* kProgram = R"(crossed_order_test\+0x[0-9a-f]+)";
  const std::string too_long = std::string(100, 'x') + std::string(124, 'y');
  struct {
    const char *mine, *theirs;
    std::string my_pattern, their_pattern;
  } const trials[] = {
      {nullptr, nullptr, std::string(R"( \(at )") + kProgram + R"(\))", std::string(R"( \(at )") + kProgram + R"(\))"},
      {"train.py:14", "eval.py:3", R"( \(at train\.py:14\))", R"( \(at eval\.py:3\))"},
      {"", nullptr, "", std::string(R"( \(at )") + kProgram + R"(\))"},
      {too_long.c_str(), "a\nb", R"( \(at \.\.\.y{124}\))", R"( \(at a\?b\))"},
  };
  for (const auto& trial : trials)
    run(2, [&](Communicator& world, Communicator& a, Communicator& b) {
      tutti_set_call_site(world.rank() == 0 ? trial.mine : trial.theirs);
      if (world.rank() == 0) {
        const Failed failed = failure_of([&] { call(a, {.timeout = kDeadline}); });
        EXPECT_TRUE(std::regex_search(
            failed.text, std::regex("it waits in all_reduce #0 of world\\.2:0" + trial.their_pattern +
                                    " for rank 0, which waits here" + trial.my_pattern + " for rank 1: a cycle")))
            << failed.text;
        call(b);
      } else {
        call(b);
      }
    });
}

// The awaited rank waits for a third one: no cycle that this rank could know of.
TEST(CrossedOrder, AWaitForAnotherRankIsNamed) {
  std::promise<void> failed_promise;
  const std::shared_future<void> over = failed_promise.get_future().share();
  run(3, [&](Communicator& world, Communicator& a, Communicator& b) {
    const auto part = world.split(world.rank() == 0 ? 0 : 1);
    if (world.rank() == 0) {
      const Failed failed = failure_of([&] { call(a, {.timeout = kDeadline}); });
      EXPECT_TRUE(has(failed.text,
                      "rank 1 has not entered operation #0 (in all ranks 1 and 2 have not); it waits in "
                      "all_reduce #0 of world.3:1; no progress"))
          << failed.text;
      failed_promise.set_value();
    } else {
      if (world.rank() == 2) over.wait();
      call(*part);
    }
    call(b);
  });
}

TEST(CrossedOrder, ThisRanksOtherThreadsAreNamed) {
  std::promise<void> failed_promise;
  const std::shared_future<void> over = failed_promise.get_future().share();
  run(2, [&](Communicator& world, Communicator& a, Communicator& b) {
    if (world.rank() == 0) {
      std::thread other([&] { call(b); });
      const Failed failed = failure_of([&] { call(a, {.timeout = kDeadline}); });
      EXPECT_TRUE(has(failed.text,
                      "rank 1 has not entered operation #0; rank 0 also waits in all_reduce #0 of world.2:0, in "
                      "another thread; no progress"))
          << failed.text;
      failed_promise.set_value();
      other.join();
    } else {
      over.wait();
      call(b);
    }
  });
}

// An operation in which nobody waits keeps no rank.
TEST(CrossedOrder, AnOperationThatIsOnlyUnderWayIsNotNamed) {
  std::promise<void> failed_promise;
  const std::shared_future<void> over = failed_promise.get_future().share();
  run(2, [&](Communicator& world, Communicator& a, Communicator& b) {
    float x = 1;
    if (world.rank() == 0) {
      const Failed failed = failure_of([&] { call(a, {.timeout = kDeadline}); });
      EXPECT_TRUE(has(failed.text, "rank 1 has not entered operation #0; no progress")) << failed.text;
      failed_promise.set_value();
      call(b);
    } else {
      Request request = b.async().all_reduce<float>({&x, 1}, {&x, 1}, Op::max);
      EXPECT_FALSE(request.wait_for(60s));
      over.wait();
      request.wait();
    }
  });
}

}  // namespace
}  // namespace tutti::test
