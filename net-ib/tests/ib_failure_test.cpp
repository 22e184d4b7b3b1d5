// SPDX-License-Identifier: Apache-2.0
//
// Bad settings, connecting, cables that are pulled, peers that are given up.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <tutti/sdk/pair_messages.hpp>

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
  EXPECT_EQ(open_with("mlx5_9"), TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(Host::error.find("rxe0:1: left out by TUTTI_IB_HCA=mlx5_9"), std::string::npos) << Host::error;
  EXPECT_EQ(open_with("rxe0:7"), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(open_with("^rxe"), TUTTI_INVALID_ARGUMENT);
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
  EXPECT_EQ(caps().flags, uint64_t{TUTTI_TRANSPORT_MARKS});
  std::vector<unsigned char> memory(64);
  EXPECT_EQ(a->register_memory(memory.data(), memory.size(), TUTTI_MEMORY_CUDA, STDERR_FILENO), nullptr);
  EXPECT_NE(a->error.find("rxe0 takes no dma-buf: "), std::string::npos) << a->error;
}

// Both ends' connect, until neither is under way.
std::pair<tutti_status, tutti_status> connect_both(Rank& first, Rank& second) {
  tutti_status one = TUTTI_AGAIN, two = TUTTI_AGAIN;
  EXPECT_TRUE(drive({&first, &second}, [&] {
    if (one == TUTTI_AGAIN) one = first.connect(1);
    if (two == TUTTI_AGAIN) two = second.connect(0);
    return one != TUTTI_AGAIN && two != TUTTI_AGAIN;
  }));
  return {one, two};
}
tutti_status connect_one(Rank& from, Rank& to, uint32_t peer) {
  tutti_status status = TUTTI_AGAIN;
  EXPECT_TRUE(drive({&from, &to}, [&] { return (status = from.connect(peer)) != TUTTI_AGAIN; }));
  return status;
}

TEST_F(Connecting, OnlyOneEndCalls) {
  ASSERT_NO_FATAL_FAILURE(open(1));
  ASSERT_EQ(connect_one(*a, *b, 1), TUTTI_OK) << a->error;
  EXPECT_EQ(a->connect(0), TUTTI_INVALID_ARGUMENT) << "itself";
  EXPECT_EQ(a->connect(2), TUTTI_INVALID_ARGUMENT);
  tutti_link* const link = a->link(1);
  EXPECT_EQ(a->connect(1), TUTTI_OK);
  EXPECT_EQ(a->link(1), link) << "the same again";
  unsigned char in = 0, out = 7;
  ASSERT_EQ(a->send(1, 0, &out, 1, 1, TUTTI_TRANSFER_INLINE), TUTTI_OK);  // before that end has called
  ASSERT_EQ(connect_one(*b, *a, 0), TUTTI_OK) << b->error;
  ASSERT_EQ(b->receive(0, 0, &in, 1, 1), TUTTI_OK);
  ASSERT_TRUE(both([&] { return b->has(1); }));
  EXPECT_EQ(in, 7);
}

// The core may have no room for pair messages.
TEST_F(Connecting, PairMessagesWaitForRoom) {
  ASSERT_NO_FATAL_FAILURE(open(1));
  PairMail::job().full = true;
  EXPECT_EQ(a->connect(1), TUTTI_AGAIN);
  EXPECT_FALSE(drive(
      {a.get(), b.get()}, [&] { return b->connect(0) != TUTTI_AGAIN; }, std::chrono::milliseconds(50)));
  PairMail::job().full = false;
  join(*a, *b);
}

// Frames and pair messages take different ways: the first may be there before the peer is known to be ready.
TEST_F(Connecting, FramesMayOvertakeTheLastPairMessage) {
  ASSERT_NO_FATAL_FAILURE(open(1));
  EXPECT_EQ(a->connect(1), TUTTI_AGAIN);
  b->progress();  // its offer and that it is ready
  a->progress();
  PairMail::Letter ready;
  ASSERT_TRUE(PairMail::job().take(7, 1, ready));
  ASSERT_EQ(a->connect(1), TUTTI_OK) << a->error;
  constexpr uint32_t kMany = 40;
  std::vector<unsigned char> out = pattern(kMany, 3), in(kMany);
  uint32_t sent = 0, posted = 0;
  drive(
      {a.get(), b.get()},
      [&] {
        if (sent < 4 && a->send(1, sent % 4, &out[sent], 1, sent, TUTTI_TRANSFER_INLINE) == TUTTI_OK) ++sent;
        return sent == 4;
      });
  EXPECT_EQ(sent, 4u);
  for (int i = 0; i < 1000; ++i) a->progress(), b->progress();
  EXPECT_EQ(b->connect(0), TUTTI_AGAIN);
  PairMail::job().put(7, 1, ready);
  ASSERT_EQ(connect_one(*b, *a, 0), TUTTI_OK) << b->error;
  ASSERT_TRUE(both([&] {
    if (sent < kMany && a->send(1, sent % 4, &out[sent], 1, sent, TUTTI_TRANSFER_INLINE) == TUTTI_OK) ++sent;
    if (posted < kMany && b->receive(0, posted % 4, &in[posted], 1, posted) == TUTTI_OK) ++posted;
    return b->ended.size() == kMany;
  }));
  EXPECT_EQ(in, out);
}

// The core's device is a hint; the user's setting is an order (rdma-jobs).
TEST_F(Connecting, ADomainsDeviceThatIsNotHereIsAWarning) {
  crosses_ = false;
  host().settings["TUTTI_IB_HCA"] = "=rxe0";
  tutti_domain_config config{};
  config.struct_size = sizeof config;
  config.device_pci = "0000:99:00.0";
  tutti_domain* domain = nullptr;
  ASSERT_EQ(table().open_domain(table().self, &config, &domain), TUTTI_OK) << Host::error;
  table().close_domain(domain);
  EXPECT_TRUE(host().logged("device 0000:99:00.0 is no PCI device of this host"));
  host().settings["TUTTI_IB_NEAR"] = "0000:98:00.0";
  EXPECT_EQ(table().open_domain(table().self, &config, &domain), TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(Host::error.find("TUTTI_IB_NEAR=0000:98:00.0 is no PCI device of this host"), std::string::npos)
      << Host::error;
}

TEST_F(Connecting, ARailWithoutAWayIsLeftOutAndNamed) {
  ASSERT_NO_FATAL_FAILURE(open(2));
  EXPECT_EQ(b->connect(0), TUTTI_AGAIN);
  PairMail::Letter offer;
  ASSERT_TRUE(PairMail::job().take(7, 0, offer));
  const size_t second = offer.bytes.find(std::string("\xff\xff\x0a\x02\x00\x02", 6));  // 10.2.0.2
  ASSERT_NE(second, std::string::npos);
  offer.bytes[second + 5] = 77;  // nobody's
  PairMail::job().put(7, 0, offer);
  const auto [one, two] = connect_both(*a, *b);
  ASSERT_EQ(one, TUTTI_OK) << a->error;
  ASSERT_EQ(two, TUTTI_OK) << b->error;
  EXPECT_TRUE(host().logged("to rank 1 without this rail: rxe2:1: cannot direct a queue pair to 10.2.0.77"));
  for (const char* told : {"rank 0: net-ib: rail rxe2:1 (", "rank 1: net-ib: rail rxe3:1 ("})
    EXPECT_TRUE(host().logged(told)) << told;
  EXPECT_TRUE(host().logged("carries nothing to rank 1: ") && host().logged("carries nothing to rank 0: "));
  unsigned char in = 0, out = 7;  // lane 1 keeps to the second pair of rails where there is one
  ASSERT_EQ(b->receive(0, 1, &in, 1, 1), TUTTI_OK);
  ASSERT_EQ(a->send(1, 1, &out, 1, 1), TUTTI_OK);
  ASSERT_TRUE(both([&] { return a->has(1) && b->has(1); }));
  EXPECT_EQ(in, 7);
}

TEST_F(Connecting, DifferentSettingsAreNamedAtBothEnds) {
  crosses_ = false;
  for (const bool both_call : {true, false}) {
    host().settings["TUTTI_IB_HCA"] = "=rxe0";
    host().settings["TUTTI_IB_EAGER_BYTES"] = "8192";
    Rank first(0);
    host().settings["TUTTI_IB_HCA"] = "=rxe1";
    host().settings["TUTTI_IB_EAGER_BYTES"] = "4096";
    Rank second(1);
    tutti_status one = TUTTI_AGAIN, two = TUTTI_AGAIN;
    if (both_call)
      std::tie(one, two) = connect_both(first, second);
    else
      one = connect_one(first, second, 1), two = second.connect(0);
    EXPECT_EQ(one, TUTTI_MISMATCH);
    EXPECT_EQ(two, TUTTI_MISMATCH);
    EXPECT_NE(first.error.find("TUTTI_IB_EAGER_BYTES is 8192 on rank 0 and 4096 on rank 1"), std::string::npos)
        << first.error;
    EXPECT_NE(second.error.find("TUTTI_IB_EAGER_BYTES is 4096 on rank 1 and 8192 on rank 0"), std::string::npos)
        << second.error;
    EXPECT_EQ(first.pair_status, TUTTI_OK) << "connect tells, not the message";
  }
}

TEST_F(Connecting, APeerOfAnotherVersionIsNamedAtBothEnds) {
  crosses_ = false;
  ASSERT_NO_FATAL_FAILURE(open(1));
  EXPECT_EQ(b->connect(0), TUTTI_AGAIN);
  PairMail::Letter offer;
  ASSERT_TRUE(PairMail::job().take(7, 0, offer));
  offer.bytes[offsetof(tutti::sdk::PairFormat::Head, version)] = 9;
  EXPECT_EQ(a->receive_pair(1, offer.bytes), TUTTI_MISMATCH);
  EXPECT_NE(a->error.find("from rank 1: it speaks version 9 of the ib transport, this rank version "),
            std::string::npos)
      << a->error;
  EXPECT_TRUE(PairMail::job().take(7, 1, offer)) << "that end must see this one's version";
}

TEST_F(Connecting, PairMessagesThatAreNoneAreRefused) {
  ASSERT_NO_FATAL_FAILURE(open(1));
  EXPECT_EQ(b->connect(0), TUTTI_AGAIN);
  PairMail::Letter offer;
  ASSERT_TRUE(PairMail::job().take(7, 0, offer));
  const std::string right = offer.bytes;
  EXPECT_EQ(a->receive_pair(1, ""), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(a->receive_pair(1, "tcp"), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(a->receive_pair(1, std::string(TUTTI_PAIR_BYTES, 'x')), TUTTI_INVALID_ARGUMENT);
  for (size_t n = 0; n < right.size(); n += 7)
    EXPECT_EQ(a->receive_pair(1, right.substr(0, n)), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(a->receive_pair(1, right + "x"), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(a->receive_pair(2, right), TUTTI_INVALID_ARGUMENT);
  PairMail::job().put(7, 0, offer);  // nothing has come of all this
  join(*a, *b);
  EXPECT_EQ(a->receive_pair(1, right), TUTTI_INVALID_ARGUMENT) << "a second offer";
  EXPECT_NE(a->error.find("a second card"), std::string::npos) << a->error;
}

TEST_F(Connecting, APeerThatHasGivenThisRankUpEndsItsConnect) {
  crosses_ = false;
  ASSERT_NO_FATAL_FAILURE(open(1));
  ASSERT_EQ(table().fail_peer(a->endpoint, 1), TUTTI_OK);
  EXPECT_EQ(a->connect(1), TUTTI_PEER_FAILED);
  EXPECT_EQ(connect_one(*b, *a, 0), TUTTI_PEER_FAILED);
  EXPECT_NE(b->error.find("it cannot connect: rank 0 has given this rank up"), std::string::npos) << b->error;
  EXPECT_EQ(a->pair_status, TUTTI_OK);
}

// In the middle: both offers are under way.
TEST_F(Connecting, APeerThatAbortsEndsTheConnect) {
  crosses_ = false;
  ASSERT_NO_FATAL_FAILURE(open(1));
  EXPECT_EQ(a->connect(1), TUTTI_AGAIN);
  EXPECT_EQ(b->connect(0), TUTTI_AGAIN);
  ASSERT_EQ(table().abort(a->endpoint), TUTTI_OK);
  EXPECT_EQ(a->connect(1), TUTTI_ABORTED);
  EXPECT_EQ(connect_one(*b, *a, 0), TUTTI_PEER_FAILED);
  EXPECT_NE(b->error.find("it has aborted the communicator"), std::string::npos) << b->error;
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
  const auto [one, two] = connect_both(first, second);
  EXPECT_EQ(one, TUTTI_MISMATCH);
  EXPECT_EQ(two, TUTTI_MISMATCH);
  for (const Rank* rank : {&first, &second})
    EXPECT_NE(rank->error.find("suits any of the peer's"), std::string::npos) << rank->error;
}

// The traffic class of what rank 0 sends, as it stands in the IP headers on the cable.
TEST_F(Connecting, TheTrafficClassIsTheEndpointsUnlessTheUserSetsOne) {
  const auto seen = [&](const std::map<std::string, std::string>& more) {
    for (const auto& [key, value] : more) host().settings[key] = value;
    host().settings["TUTTI_IB_HCA"] = "=rxe0";
    a = std::make_unique<Rank>(0, Shape{.traffic_class = 0x68});
    host().settings["TUTTI_IB_HCA"] = "=rxe1";
    b = std::make_unique<Rank>(1);
    const auto watch = watch_traffic_class();
    join(*a, *b);
    unsigned char byte = 1;
    EXPECT_EQ(a->send(1, 0, &byte, 1, 1, TUTTI_TRANSFER_INLINE), TUTTI_OK);
    int found = -1;
    both([&] { return (found = watch()) >= 0; });
    return found;
  };
  EXPECT_EQ(seen({}), 0x68);
  EXPECT_EQ(seen({{"TUTTI_IB_TC", "32"}}), 32);
  EXPECT_EQ(Rank(0, Shape{.traffic_class = 256}).open_status, TUTTI_INVALID_ARGUMENT);
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

TEST_F(Failing, TheLastRailThatGoesDownIsAClearError) {
  ASSERT_NO_FATAL_FAILURE(open_joined(1, {{"TUTTI_IB_RECOVERY", "0"}}));
  cable(0, "down");
  unsigned char byte = 1;
  ASSERT_EQ(a->send(1, 0, &byte, 1, 1, TUTTI_TRANSFER_INLINE), TUTTI_OK);
  ASSERT_TRUE(both([&] { return a->failures.contains(1); }));
  EXPECT_NE(a->failures[1].find("this rank's own port is down"), std::string::npos) << a->failures[1];
  cable(0, "up");
}

TEST_F(Failing, APeerThatDoesNotAnswerIsAClearError) {
  ASSERT_NO_FATAL_FAILURE(open_joined(1, {{"TUTTI_IB_RECOVERY", "0"}}));
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
  EXPECT_FALSE(drive(
      {a.get(), b.get()}, [&] { return a->failures.contains(1); }, std::chrono::seconds(2)));
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
  std::atomic<bool> closed{false};
  std::thread closing([&] {
    a->close();
    closed = true;
  });
  while (!closed) b->progress();
  closing.join();
  for (int i = 0; i < 1000; ++i) b->progress();
  EXPECT_TRUE(b->failures.empty()) << b->failures[0];
  std::vector<unsigned char> in(3000);
  for (uint32_t lane = 0; lane < 4; ++lane) {
    ASSERT_EQ(b->receive(0, lane, in.data(), 3000, lane), TUTTI_OK) << b->error;
    b->progress();
    EXPECT_TRUE(b->has(lane));
    EXPECT_EQ(in, out);
  }
  EXPECT_EQ(table().send_control(b->link(0), in.data(), 8), TUTTI_OK) << "nothing was expected of it";
  b->progress();
  EXPECT_TRUE(b->failures.empty());
  EXPECT_EQ(b->receive(0, 0, in.data(), 8, 9), TUTTI_AGAIN) << "no error before the record";
  EXPECT_EQ(b->connect(0), TUTTI_OK);
  b->progress();
  EXPECT_NE(b->failures[0].find("it has closed its endpoint"), std::string::npos) << b->failures[0];
  EXPECT_EQ(b->receive(0, 0, in.data(), 8, 9), TUTTI_PEER_FAILED);
  EXPECT_EQ(b->send(0, 0, in.data(), 8, 9), TUTTI_PEER_FAILED);
  EXPECT_EQ(table().send_control(b->link(0), in.data(), 8), TUTTI_PEER_FAILED);
  EXPECT_EQ(b->connect(0), TUTTI_PEER_FAILED);
}

}  // namespace
}  // namespace tutti_test
