// SPDX-License-Identifier: Apache-2.0
//
// Bad settings, strangers, cables that are pulled, peers that are given up.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ib_ranks.hpp"

namespace tutti_test {
namespace {

using Connecting = OverCables;
using Failing = OverCables;

tutti_status open_with(const std::string& filter) {
  host().settings["TUTTI_IB_HCA"] = filter;
  return Rank(0).open_status;
}

TEST_F(Connecting, BadFiltersAndDevicesAreNamed) {
  crosses_ = false;
  EXPECT_EQ(open_with("mlx5_9"), TUTTI_NOT_SUPPORTED);
  EXPECT_NE(Host::error.find("rxe0:1: left out by TUTTI_IB_HCA=mlx5_9"), std::string::npos) << Host::error;
  EXPECT_EQ(open_with("rxe0:7"), TUTTI_NOT_SUPPORTED);
  EXPECT_EQ(open_with("^rxe"), TUTTI_NOT_SUPPORTED);
  EXPECT_EQ(open_with("rxe0:x"), TUTTI_INVALID_ARGUMENT);
  host().settings["TUTTI_IB_GID_INDEX"] = "77";
  EXPECT_EQ(open_with("rxe0"), TUTTI_NOT_SUPPORTED);
  EXPECT_NE(Host::error.find("TUTTI_IB_GID_INDEX=77"), std::string::npos) << Host::error;
}

TEST_F(Connecting, APortThatIsDownIsNamed) {
  crosses_ = false;
  cable(0, "down");
  EXPECT_EQ(open_with("rxe0"), TUTTI_NOT_SUPPORTED);
  EXPECT_NE(Host::error.find("rxe0:1: the port is down"), std::string::npos) << Host::error;
  cable(0, "up");
}

TEST_F(Connecting, AMemoryLockLimitThatIsTooLowIsNamed) {
  crosses_ = false;
  host().settings["TUTTI_IB_HCA"] = "=rxe0";
  const pid_t child = fork();  // as an ordinary user: root may lock whatever it likes
  if (child == 0) {
    const rlimit limit{64 << 10, 64 << 10};
    const bool ready = setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && setgid(65534) == 0 && setuid(65534) == 0;
    Rank rank(0);
    const bool named = Host::error.find("limited to 64 KiB (RLIMIT_MEMLOCK)") != std::string::npos;
    std::fprintf(stderr, "%s\n", Host::error.c_str());
    _exit(ready && rank.open_status == TUTTI_NO_RESOURCES && named ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(Connecting, MemoryOfADeviceIsRefused) {
  crosses_ = false;
  ASSERT_NO_FATAL_FAILURE(open(1));
  EXPECT_EQ(caps().memory_kinds, uint64_t{1} << TUTTI_MEMORY_HOST);
  EXPECT_EQ(caps().flags, 0u);
  std::vector<unsigned char> memory(64);
  EXPECT_EQ(a->register_memory(memory.data(), memory.size(), TUTTI_MEMORY_CUDA, STDERR_FILENO), nullptr);
  EXPECT_NE(a->error.find("rxe0 takes no dma-buf: "), std::string::npos) << a->error;
}

TEST_F(Connecting, OnlyOneEndCalls) {
  ASSERT_NO_FATAL_FAILURE(open(1));
  tutti_status status = TUTTI_AGAIN;
  const std::string at = b->address();
  ASSERT_TRUE(both([&] { return (status = a->connect(1, at)) != TUTTI_AGAIN; }));
  ASSERT_EQ(status, TUTTI_OK) << a->error;
  const std::string back = a->address();
  ASSERT_TRUE(both([&] { return (status = b->connect(0, back)) != TUTTI_AGAIN; }));
  EXPECT_EQ(status, TUTTI_OK) << b->error;
}

TEST_F(Connecting, AWrongSecretIsNotAnswered) {
  host().settings["TUTTI_IB_CONNECT_TIMEOUT"] = "3";
  host().settings["TUTTI_IB_HCA"] = "=rxe0";
  Rank first(0);
  host().settings["TUTTI_IB_HCA"] = "=rxe1";
  Rank second(1, {.secret = "another secret"});
  tutti_status status = TUTTI_AGAIN;
  const std::string at = second.address();
  ASSERT_TRUE(drive({&first, &second}, [&] { return (status = first.connect(1, at)) != TUTTI_AGAIN; }));
  EXPECT_EQ(status, TUTTI_TIMEOUT);
  EXPECT_NE(first.error.find("no answer within 3 s"), std::string::npos) << first.error;
  EXPECT_TRUE(host().logged("cannot prove that it knows the job's secret"));
}

TEST_F(Connecting, DifferentSettingsAreNamed) {
  host().settings["TUTTI_IB_HCA"] = "=rxe0";
  Rank first(0);
  host().settings["TUTTI_IB_HCA"] = "=rxe1";
  host().settings["TUTTI_IB_EAGER_BYTES"] = "4096";
  Rank second(1);
  tutti_status one = TUTTI_AGAIN, two = TUTTI_AGAIN;
  const std::string at = second.address(), back = first.address();
  ASSERT_TRUE(drive({&first, &second}, [&] {
    if (one == TUTTI_AGAIN) one = first.connect(1, at);
    if (two == TUTTI_AGAIN) two = second.connect(0, back);
    return one != TUTTI_AGAIN && two != TUTTI_AGAIN;
  }));
  EXPECT_EQ(one, TUTTI_MISMATCH);
  EXPECT_EQ(two, TUTTI_MISMATCH);
  EXPECT_NE(first.error.find("TUTTI_IB_EAGER_BYTES is 8192 on rank 0 and 4096 on rank 1"), std::string::npos)
      << first.error;
}

TEST_F(Connecting, AddressesAreUntrusted) {
  crosses_ = false;
  ASSERT_NO_FATAL_FAILURE(open(1));
  const std::string right = b->address();
  EXPECT_EQ(a->connect(1, ""), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(a->connect(1, "tcp"), TUTTI_INVALID_ARGUMENT);
  for (size_t n = 0; n < right.size(); n += 7) EXPECT_EQ(a->connect(1, right.substr(0, n)), TUTTI_INVALID_ARGUMENT);
  for (size_t i = 8; i < 16; ++i) {
    std::string wrong = right;
    wrong[i] = '\x7f';
    EXPECT_LT(a->connect(1, wrong), 0) << "byte " << i;
  }
  EXPECT_EQ(a->connect(1, right + "x"), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(a->connect(0, right), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(a->connect(2, right), TUTTI_INVALID_ARGUMENT);
}

TEST_F(Connecting, NoCommonFamilyOrSubnetIsNamed) {
  crosses_ = false;
  host().settings["TUTTI_IB_GID_INDEX"] = "0";  // link-local IPv6
  host().settings["TUTTI_IB_HCA"] = "=rxe0";
  Rank first(0);
  ASSERT_EQ(first.open_status, TUTTI_OK) << Host::error;
  host().settings["TUTTI_IB_GID_INDEX"] = "1";  // IPv4
  host().settings["TUTTI_IB_HCA"] = "=rxe1";
  Rank second(1);
  EXPECT_EQ(first.connect(1, second.address()), TUTTI_NOT_SUPPORTED);
  EXPECT_NE(first.error.find("suits any of the peer's"), std::string::npos) << first.error;
}

// Cables
// ---------------------------------------------------------------------------------------------------------------

constexpr uint32_t kMessages = 24;
uint64_t size_of(uint32_t i) {
  const uint64_t sizes[] = {8, 40000, 3000, 100000, 1, 8192};
  return sizes[i % 6];
}

// Streams messages a -> b on two lanes, pulls cable `pulled` on the way, checks every byte.
void stream_over_failure(Rank& a, Rank& b, int pulled, const std::function<bool(const std::function<bool()>&)>& both) {
  auto source = pattern(100000 + kMessages * 2, 5);
  std::vector<unsigned char> target(kMessages * 2 * 100000);
  tutti_region* from = a.register_memory(source.data(), source.size());
  tutti_region* into = b.register_memory(target.data(), target.size());
  ASSERT_TRUE(from && into);
  uint32_t sent[2] = {}, posted[2] = {};
  bool is_pulled = false;
  ASSERT_TRUE(both([&] {
    for (uint32_t lane = 0; lane < 2; ++lane) {
      while (posted[lane] < kMessages &&
             b.transfer_region(TUTTI_TRANSFER_RECV, 0, lane, target.data() + (lane * kMessages + posted[lane]) * 100000,
                               size_of(posted[lane]), lane * kMessages + posted[lane],
                               posted[lane] % 4 ? into : nullptr) == TUTTI_OK)
        ++posted[lane];
      while (sent[lane] < kMessages &&
             a.transfer_region(TUTTI_TRANSFER_SEND, 1, lane, source.data() + lane * kMessages + sent[lane],
                               size_of(sent[lane]), lane * kMessages + sent[lane],
                               sent[lane] % 3 ? from : nullptr) == TUTTI_OK)
        ++sent[lane];
    }
    if (!is_pulled && b.ended.size() >= 5) {
      is_pulled = true;
      cable(pulled, "down");
    }
    return a.ended.size() == 2 * kMessages && b.ended.size() == 2 * kMessages;
  })) << "sent "
      << a.ended.size() << ", received " << b.ended.size();
  for (uint32_t lane = 0; lane < 2; ++lane)
    for (uint32_t i = 0; i < kMessages; ++i) {
      const uint32_t name = lane * kMessages + i;
      EXPECT_TRUE(a.has(name) && b.has(name)) << name;
      const unsigned char* memory = target.data() + name * 100000;
      EXPECT_TRUE(std::equal(memory, memory + size_of(i), source.begin() + name)) << name;
    }
  a.deregister(from);
  b.deregister(into);
}

TEST_F(Failing, ARailThatGoesDownHandsOverToTheOther) {
  for (const int pulled : {0, 1}) {
    ASSERT_NO_FATAL_FAILURE(open_joined(2, {{"TUTTI_IB_STRIPE_BYTES", "8192"}}));
    ASSERT_NO_FATAL_FAILURE(stream_over_failure(*a, *b, pulled, [&](const auto& until) { return both(until); }));
    EXPECT_TRUE(host().logged("going on with the 1 left"));
    cable(pulled, "up");
    a.reset();
    b.reset();
    host().log.clear();
  }
}

// What is sent at this end of rail 0 is lost from now on; or no longer.
void lose_everything(bool on) {
  ASSERT_EQ(std::system(on ? "tc qdisc add dev v0 root netem loss 100%" : "tc qdisc del dev v0 root"), 0);
}

TEST_F(Failing, TheLastRailThatGoesDownIsAClearError) {
  ASSERT_NO_FATAL_FAILURE(open_joined(1));
  cable(0, "down");
  unsigned char byte = 1;
  ASSERT_EQ(a->send(1, 0, &byte, 1, 1, TUTTI_TRANSFER_INLINE), TUTTI_OK);
  ASSERT_TRUE(both([&] { return a->failures.contains(1); }));
  EXPECT_NE(a->failures[1].find("this rank's own port is down"), std::string::npos) << a->failures[1];
  cable(0, "up");
}

TEST_F(Failing, APeerThatDoesNotAnswerIsAClearError) {
  ASSERT_NO_FATAL_FAILURE(open_joined(1));
  lose_everything(true);
  unsigned char byte = 1;
  std::vector<unsigned char> large(30000);
  ASSERT_EQ(a->receive(1, 0, large.data(), large.size(), 2), TUTTI_OK);
  ASSERT_EQ(a->send(1, 0, &byte, 1, 1, TUTTI_TRANSFER_INLINE), TUTTI_OK);
  ASSERT_EQ(a->send(1, 0, large.data(), large.size(), 3), TUTTI_OK);
  ASSERT_TRUE(both([&] { return a->failures.contains(1); }));
  EXPECT_NE(a->failures[1].find("transport retry counter exceeded: peer unreachable or its port is down"),
            std::string::npos)
      << a->failures[1];
  EXPECT_TRUE(a->has(2, TUTTI_PEER_FAILED) && a->has(3, TUTTI_PEER_FAILED));
  EXPECT_EQ(a->send(1, 0, &byte, 1, 4), TUTTI_PEER_FAILED);
  lose_everything(false);
}

// Soft-RoCE takes a retry count of 7 as endless: whoever waits must be able to end it all the same.
TEST_F(Failing, AnEndlessRetryEndsWhenThePeerIsGivenUp) {
  ASSERT_NO_FATAL_FAILURE(open_joined(1, {{"TUTTI_IB_RETRY_CNT", "7"}}));
  lose_everything(true);
  std::vector<unsigned char> memory(8);
  ASSERT_EQ(a->receive(1, 0, memory.data(), 8, 1), TUTTI_OK);
  ASSERT_EQ(a->send(1, 0, memory.data(), 8, 2, TUTTI_TRANSFER_INLINE), TUTTI_OK);
  EXPECT_FALSE(drive({a.get(), b.get()}, [&] { return a->failures.contains(1); }, std::chrono::seconds(2)));
  EXPECT_EQ(table().fail_peer(a->endpoint, 1), TUTTI_OK);
  ASSERT_TRUE(both([&] { return a->has(1, TUTTI_PEER_FAILED); }));
  EXPECT_TRUE(a->failures.empty()) << "the caller knows already";
  lose_everything(false);
}

TEST_F(Failing, AbortEndsEverything) {
  ASSERT_NO_FATAL_FAILURE(open_joined(2));
  std::vector<unsigned char> memory(30000);
  ASSERT_EQ(a->receive(1, 0, memory.data(), 8, 1), TUTTI_OK);
  ASSERT_EQ(a->send(1, 1, memory.data(), 30000, 2), TUTTI_OK);
  EXPECT_EQ(table().abort(a->endpoint), TUTTI_OK);
  ASSERT_TRUE(both([&] { return a->has(1, TUTTI_ABORTED) && a->has(2, TUTTI_ABORTED); }));
  EXPECT_EQ(a->send(1, 0, memory.data(), 8, 3), TUTTI_ABORTED);
}

TEST_F(Failing, APeerThatClosesWasReceivedBefore) {
  ASSERT_NO_FATAL_FAILURE(open_joined(2));
  const auto out = pattern(3000, 2);
  for (uint32_t lane = 0; lane < 4; ++lane) ASSERT_EQ(a->send(1, lane, out.data(), 3000, lane), TUTTI_OK);
  std::thread closing([&] { a->close(); });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  while (std::chrono::steady_clock::now() < end) b->progress();
  closing.join();
  EXPECT_TRUE(b->failures.empty()) << b->failures[0];
  std::vector<unsigned char> in(3000);
  for (uint32_t lane = 0; lane < 4; ++lane) {
    ASSERT_EQ(b->receive(0, lane, in.data(), 3000, lane), TUTTI_OK) << b->error;
    b->progress();
    EXPECT_TRUE(b->has(lane));
    EXPECT_EQ(in, out);
  }
  EXPECT_EQ(b->receive(0, 0, in.data(), 8, 9), TUTTI_PEER_FAILED);
  EXPECT_EQ(b->send(0, 0, in.data(), 8, 9), TUTTI_PEER_FAILED);
}

}  // namespace
}  // namespace tutti_test
