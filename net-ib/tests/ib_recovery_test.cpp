// SPDX-License-Identifier: Apache-2.0
//
// What adapters tell by events, rails that come back, and adapters of other kinds, on the model (model/adapters.hpp).
#include <sys/mman.h>

#include <deque>
#include <utility>

#include "ib_ranks.hpp"
#include "model/adapters.hpp"

namespace tutti_test {
namespace {

constexpr uint64_t kLoad = 3000;

class Recovering : public OverCables {
 protected:
  // Messages in both directions on every lane; all must arrive.
  void exchange(uint32_t lanes = 4) {
    const auto out = pattern(kLoad, static_cast<unsigned>(++round_));
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      begin(*a, 1, *b, 0, lane, out);
      begin(*b, 0, *a, 1, lane, out);
    }
    ASSERT_TRUE(both([&] { return a->ended.size() == ended_ && b->ended.size() == ended_; })) << "round " << round_;
    for (const auto& in : in_) EXPECT_EQ(in, out);
    in_.clear();
  }
  void begin(Rank& from, uint32_t peer, Rank& to, uint32_t self, uint32_t lane, const std::vector<unsigned char>& out) {
    auto& in = in_.emplace_back(kLoad);
    ASSERT_NO_FATAL_FAILURE(
        post({a.get(), b.get()}, to, Rank::transfer(to.link(self), TUTTI_TRANSFER_RECV, lane, in.data(), kLoad, ++cookie_)));
    ASSERT_NO_FATAL_FAILURE(post(
        {a.get(), b.get()}, from, Rank::transfer(from.link(peer), TUTTI_TRANSFER_SEND, lane, out.data(), kLoad, ++cookie_)));
    if (&from == a.get()) ended_ += 2;
  }
  bool logged(const std::string& text) { return host().logged(text); }
  bool wait_for(const std::string& text) {
    return both([&] { return logged(text); });
  }
  void wait(std::chrono::milliseconds time) {
    drive({a.get(), b.get()}, [] { return false; }, time);
  }

  std::deque<std::vector<unsigned char>> in_;
  uint64_t cookie_ = 0, ended_ = 0;
  int round_ = 0;
};

TEST_F(Recovering, APortThatGoesDownIsLeftAtOnce) {
  // Retries alone would take minutes.
  ASSERT_NO_FATAL_FAILURE(open_joined(2, {{"TUTTI_IB_TIMEOUT", "22"}, {"TUTTI_IB_RETRY_CNT", "7"}}));
  ASSERT_NO_FATAL_FAILURE(exchange());
  cable(0, "down");
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_NO_FATAL_FAILURE(exchange());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  EXPECT_TRUE(logged("its port is down"));
  EXPECT_TRUE(logged("going on with the 1 left"));
}

TEST_F(Recovering, ARailThatComesBackIsUsedAgain) {
  ASSERT_NO_FATAL_FAILURE(open_joined(2));
  for (int flap = 0; flap < 3; ++flap) {
    host().log.clear();
    ASSERT_NO_FATAL_FAILURE(exchange());
    cable(0, "down");
    ASSERT_NO_FATAL_FAILURE(exchange());
    cable(0, "up");
    ASSERT_TRUE(wait_for("rank 0: net-ib: to rank 1: rail rxe0:1 is used again"));
    ASSERT_TRUE(wait_for("rank 1: net-ib: to rank 0: rail rxe1:1 is used again"));
    const uint64_t before = packets(0);
    ASSERT_NO_FATAL_FAILURE(exchange());
    EXPECT_GT(packets(0), before + 2) << "its lanes use it";
  }
  EXPECT_EQ(model::live_queue_pairs(), 4u);
  EXPECT_EQ(model::counts("rxe0").not_ready + model::counts("rxe1").not_ready, 0u) << "receive requests were lost";
}

// Messages cross the moment at which lanes change their rails. Small ones run ahead of their receives.
TEST_F(Recovering, LanesKeepTheirOrderWhileRailsComeAndGo) {
  constexpr uint64_t kBytes = 64, kAhead = 12;
  for (const char* name : {"rxe0", "rxe1"})
    model::change(name, [](model::Manners& manners) { manners.latency = std::chrono::microseconds(300); });
  ASSERT_NO_FATAL_FAILURE(open_joined(2));
  const auto out = pattern(256 + kBytes, 5);
  std::vector<unsigned char> in(256 * kBytes);
  uint64_t sent = 0, posted = 0, wrong = 0, checked = 0, changed = 0;
  int flips = 0;
  const auto is_back = [&] { return logged("rank 0: net-ib: to rank 1: rail rxe0:1 is used again"); };
  EXPECT_TRUE(both([&] {
    while (flips < 6 && sent < checked + kAhead && a->send(1, 0, &out[sent % 256], kBytes, sent) == TUTTI_OK) ++sent;
    if (posted < sent && b->receive(0, 0, &in[posted % 256 * kBytes], kBytes, posted) == TUTTI_OK) ++posted;
    for (; checked < posted && b->has(checked); ++checked)
      wrong += !std::equal(&out[checked % 256], &out[checked % 256] + kBytes, &in[checked % 256 * kBytes]);
    const bool is_up = flips % 2 == 0;
    if (flips < 6 && checked > changed + 60 && (!is_up || flips == 0 || is_back())) {
      host().log.clear();
      cable(0, is_up ? "down" : "up");
      changed = checked;
      ++flips;
    }
    return flips == 6 && checked == sent && is_back();
  })) << "checked " << checked << " of " << sent << ", cable changes " << flips
      << (b->failures.empty() ? "" : b->failures[0]);
  EXPECT_EQ(wrong, 0u);
}

TEST_F(Recovering, RealTimeTheOnlyRailMayFlap) {
  ASSERT_NO_FATAL_FAILURE(open_joined(1));
  ASSERT_NO_FATAL_FAILURE(exchange());
  cable(0, "down");
  const auto out = pattern(kLoad, 9);
  std::vector<unsigned char> in(kLoad);
  ASSERT_EQ(b->receive(0, 0, in.data(), kLoad, 900), TUTTI_OK);
  ASSERT_EQ(a->send(1, 0, out.data(), kLoad, 900), TUTTI_OK);
  wait(std::chrono::milliseconds(3500));  // longer than the adapter's retries, and than a silent peer is waited for
  EXPECT_TRUE(a->failures.empty() && b->failures.empty());
  EXPECT_TRUE(logged("waiting up to 20 s for a rail to come back"));
  cable(0, "up");
  ASSERT_TRUE(both([&] { return b->has(900); }));
  EXPECT_EQ(in, out);
}

// Neither port is down: packets are lost in between.
TEST_F(Recovering, RealTimeTheOnlyWayMayBreakInBetween) {
  ASSERT_NO_FATAL_FAILURE(open_joined(1));
  lose_everything(true);
  const auto out = pattern(kLoad, 9);
  std::vector<unsigned char> in(kLoad);
  ASSERT_EQ(b->receive(0, 0, in.data(), kLoad, 900), TUTTI_OK);
  ASSERT_EQ(a->send(1, 0, out.data(), kLoad, 900), TUTTI_OK);
  wait(std::chrono::milliseconds(3000));
  EXPECT_TRUE(a->failures.empty() && b->failures.empty());
  lose_everything(false);
  ASSERT_TRUE(both([&] { return b->has(900); }));
  EXPECT_EQ(in, out);
}

TEST_F(Recovering, RealTimeTheWaitEndsWithAClearError) {
  ASSERT_NO_FATAL_FAILURE(open_joined(1, {{"TUTTI_IB_RECOVERY", "1"}}));
  cable(0, "down");
  ASSERT_TRUE(both([&] { return a->failures.contains(1) && b->failures.contains(0); }));
  EXPECT_NE(a->failures[1].find("no rail came back within 1 s (TUTTI_IB_RECOVERY)"), std::string::npos) << a->failures[1];
}

// Its process does not run: no pair message comes.
TEST_F(Recovering, RealTimeASilentPeerIsNotWaitedForLong) {
  ASSERT_NO_FATAL_FAILURE(open_joined(1, {{"TUTTI_IB_TIMEOUT", "10"}}));
  lose_everything(true);
  unsigned char byte = 1;
  ASSERT_EQ(a->send(1, 0, &byte, 1, 1), TUTTI_OK);
  ASSERT_TRUE(drive({a.get()}, [&] { return a->failures.contains(1); }));
  EXPECT_NE(a->failures[1].find("no sign of life"), std::string::npos) << a->failures[1];
}

TEST_F(Recovering, AnAddressThatChangesIsNoticed) {
  ASSERT_NO_FATAL_FAILURE(open_joined(2));
  ASSERT_NO_FATAL_FAILURE(exchange());
  model::set_address("rxe0", {10, 1, 0, 77});
  ASSERT_TRUE(wait_for("its address has changed: 10.1.0.1 is gone"));
  ASSERT_TRUE(wait_for("rank 0: net-ib: to rank 1: rail rxe0:1 is used again"));
  ASSERT_NO_FATAL_FAILURE(exchange());
}

TEST_F(Recovering, AQueuePairThatFailsIsReplaced) {
  ASSERT_NO_FATAL_FAILURE(open_joined(2));
  ASSERT_NO_FATAL_FAILURE(exchange());
  model::fail_a_queue_pair("rxe1");
  ASSERT_TRUE(wait_for("rank 1: net-ib: to rank 0: rail rxe1:1 is used again"));
  ASSERT_NO_FATAL_FAILURE(exchange());
}

TEST_F(Recovering, AnAdapterThatFailsForGoodIsLeft) {
  ASSERT_NO_FATAL_FAILURE(open_joined(2));
  ASSERT_NO_FATAL_FAILURE(exchange());
  model::set_fatal("rxe2");
  ASSERT_TRUE(wait_for("its adapter has failed (IBV_EVENT_DEVICE_FATAL)"));
  ASSERT_NO_FATAL_FAILURE(exchange());
  ASSERT_NO_FATAL_FAILURE(exchange());
  EXPECT_TRUE(a->failures.empty() && b->failures.empty());
}

// It has been offered, and cannot be connected any more. The other end has made its link by then, and drops it.
TEST_F(Recovering, AnAdapterThatFailsWhileItConnectsIsTheReasonAtBothEnds) {
  ASSERT_NO_FATAL_FAILURE(open(1));
  ASSERT_EQ(a->connect(1), TUTTI_AGAIN) << a->error;
  ASSERT_EQ(b->connect(0), TUTTI_AGAIN) << b->error;
  model::set_fatal("rxe1");
  a->progress();
  tutti_status sa = TUTTI_AGAIN, sb = TUTTI_AGAIN;
  ASSERT_TRUE(both([&] {
    if (sa == TUTTI_AGAIN) sa = a->connect(1);
    if (sb == TUTTI_AGAIN) sb = b->connect(0);
    return sa != TUTTI_AGAIN && sb != TUTTI_AGAIN;
  }));
  EXPECT_EQ(sa, TUTTI_SYSTEM) << a->error;
  EXPECT_EQ(sb, TUTTI_SYSTEM) << b->error;
  EXPECT_NE(a->error.find("it cannot connect"), std::string::npos) << a->error;
  for (int i = 0; i < 1000; ++i) a->progress(), b->progress();
  EXPECT_TRUE(a->failures.empty() && b->failures.empty());
}

TEST_F(Recovering, RealTimeTheOnlyAdapterThatFailsIsAClearError) {
  ASSERT_NO_FATAL_FAILURE(open_joined(1, {{"TUTTI_IB_RECOVERY", "1"}}));
  model::set_fatal("rxe0");
  ASSERT_TRUE(both([&] { return a->failures.contains(1); }));
  EXPECT_NE(a->failures[1].find("IBV_EVENT_DEVICE_FATAL"), std::string::npos) << a->failures[1];
}

// ---- Adapters of other kinds

class Adapters : public OverCables {
 protected:
  void with(const std::function<void(model::Adapter&, int)>& change) {
    auto adapters = model::two_cables();
    for (size_t i = 0; i < adapters.size(); ++i) change(adapters[i], static_cast<int>(i));
    model::install(adapters);
  }
  std::string refusal() {
    host().settings["TUTTI_IB_HCA"] = "=rxe0";
    EXPECT_EQ(Rank(0).open_status, TUTTI_NOT_SUPPORTED);
    return Host::error;
  }
  void carry() {
    for (uint32_t lane = 0; lane < 2; ++lane)
      for (const size_t bytes : {size_t{8}, size_t{200}, size_t{30000}}) ASSERT_NO_FATAL_FAILURE(move(*a, *b, lane, bytes));
  }
};

TEST_F(Adapters, GlobalRoutesAreUsedWherePortsNeedThem) {
  for (const int needing : {0, 1, 2}) {  // this end, that end, both
    with([&](model::Adapter& adapter, int i) {
      adapter.infiniband = true;
      adapter.grh_required = needing == 2 || i % 2 == needing;
    });
    ASSERT_NO_FATAL_FAILURE(open_joined(1));
    ASSERT_NO_FATAL_FAILURE(carry());
    a.reset();
    b.reset();
  }
}

TEST_F(Adapters, SmallMessagesKeepToTheFastRail) {
  with([](model::Adapter& adapter, int i) { adapter.speed = i < 2 ? 32 : 4; });  // 100 and 40 Gb/s
  ASSERT_NO_FATAL_FAILURE(open_joined(2, {{"TUTTI_IB_STRIPE_BYTES", "4096"}}));
  for (uint32_t lane = 0; lane < 4; ++lane) ASSERT_NO_FATAL_FAILURE(move(*a, *b, lane, 100));
  EXPECT_EQ(model::counts("rxe2").sends, 0u);
  std::vector<unsigned char> out = pattern(200000, 3), in(200000);
  tutti_region *from = a->register_memory(out.data(), out.size()), *into = b->register_memory(in.data(), in.size());
  ASSERT_EQ(b->transfer_region(TUTTI_TRANSFER_RECV, 0, 0, in.data(), in.size(), 1, into), TUTTI_OK);
  ASSERT_EQ(a->transfer_region(TUTTI_TRANSFER_SEND, 1, 0, out.data(), out.size(), 1, from), TUTTI_OK);
  ASSERT_TRUE(both([&] { return a->has(1) && b->has(1); }));
  EXPECT_EQ(in, out);
  EXPECT_GT(model::counts("rxe2").sends, 0u) << "large ones use it, too";
  EXPECT_LT(model::counts("rxe2").bytes, model::counts("rxe0").bytes);
  a->deregister(from);
  b->deregister(into);
}

// Ports of one speed, but one of the ways carries a tenth.
TEST_F(Adapters, LargeMessagesFollowTheSpeedThatIsMeasured) {
  constexpr uint64_t kBytes = 1 << 20;
  for (const auto& [name, speed] : {std::pair{"rxe0", 1000u}, std::pair{"rxe2", 100u}})
    model::change(name, [speed = speed](model::Manners& manners) { manners.bytes_per_us = speed; });
  ASSERT_NO_FATAL_FAILURE(open_joined(2, {{"TUTTI_IB_STRIPE_BYTES", "32768"}}));
  std::vector<unsigned char> out = pattern(kBytes, 3), in(kBytes);
  tutti_region *from = a->register_memory(out.data(), out.size()), *into = b->register_memory(in.data(), in.size());
  // A rank that is held up in a measurement learns later, so the last eight messages are judged, until they have learnt.
  constexpr uint64_t counted = 8, most = 400;
  std::deque<std::pair<uint64_t, uint64_t>> last;  // bytes on the slow one, and on both
  uint64_t on_slow = 0, all = 0;
  for (uint64_t i = 1; i <= most && (last.size() < counted || on_slow >= all / 4); ++i) {
    const uint64_t fast_before = model::counts("rxe0").bytes, slow_before = model::counts("rxe2").bytes;
    ASSERT_EQ(b->transfer_region(TUTTI_TRANSFER_RECV, 0, 0, in.data(), in.size(), i, into), TUTTI_OK);
    ASSERT_EQ(a->transfer_region(TUTTI_TRANSFER_SEND, 1, 0, out.data(), out.size(), i, from), TUTTI_OK);
    ASSERT_TRUE(both([&] { return a->has(i) && b->has(i); }));
    const uint64_t slow = model::counts("rxe2").bytes - slow_before, fast = model::counts("rxe0").bytes - fast_before;
    last.emplace_back(slow, slow + fast);
    if (last.size() > counted) last.pop_front();
    on_slow = all = 0;
    for (const auto& [one, both_of_them] : last) {
      on_slow += one;
      all += both_of_them;
    }
  }
  EXPECT_EQ(in, out);
  EXPECT_LT(on_slow, all / 4) << "of " << all;
  a->deregister(from);
  b->deregister(into);
}

TEST_F(Adapters, SeveralQueuePairsShareARail) {
  ASSERT_NO_FATAL_FAILURE(open_joined(2, {{"TUTTI_IB_QUEUE_PAIRS", "3"}}));
  EXPECT_EQ(model::live_queue_pairs(), 12u);
  EXPECT_EQ(model::flow_labels(), 12u);
  for (uint32_t lane = 0; lane < 4; ++lane)
    for (const size_t bytes : {size_t{8}, size_t{200}, size_t{300000}}) ASSERT_NO_FATAL_FAILURE(move(*a, *b, lane, bytes));
  cable(0, "down");
  for (uint32_t lane = 0; lane < 4; ++lane) ASSERT_NO_FATAL_FAILURE(move(*a, *b, lane, 200));
  cable(0, "up");
  ASSERT_TRUE(both([&] { return host().logged("rail rxe0:1 is used again"); }));
  for (uint32_t lane = 0; lane < 4; ++lane) ASSERT_NO_FATAL_FAILURE(move(*a, *b, lane, 300000));
}

// The processor cannot read the memory, and there is no dma-buf descriptor of it.
TEST_F(Adapters, PeerMemoryIsRegisteredByItsAddress) {
  constexpr uint64_t kBytes = 100000;
  with([](model::Adapter& adapter, int) { adapter.peer_memory = true; });
  ASSERT_NO_FATAL_FAILURE(open_joined(2, {{"TUTTI_IB_PEER_MEMORY", "1"}}));
  EXPECT_EQ(caps().memory_kinds, uint64_t{1} << TUTTI_MEMORY_HOST | uint64_t{1} << TUTTI_MEMORY_CUDA);
  void* device = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  tutti_region* region = a->register_memory(device, kBytes, TUTTI_MEMORY_CUDA);
  ASSERT_TRUE(region) << a->error;
  auto out = pattern(kBytes, 3);
  std::vector<unsigned char> in(kBytes);
  for (uint64_t i = 1; i <= 2; ++i) {  // there and back
    Rank &source = i == 1 ? *b : *a, &target = i == 1 ? *a : *b;
    ASSERT_EQ(target.transfer_region(TUTTI_TRANSFER_RECV, source.number, 0, i == 1 ? device : in.data(), kBytes, i,
                                     i == 1 ? region : nullptr),
              TUTTI_OK);
    ASSERT_EQ(source.transfer_region(TUTTI_TRANSFER_SEND, target.number, 0, i == 1 ? out.data() : device, kBytes, i,
                                     i == 1 ? nullptr : region),
              TUTTI_OK);
    ASSERT_TRUE(both([&] { return a->has(i) && b->has(i); }));
  }
  EXPECT_EQ(in, out);
  a->deregister(region);
  munmap(device, kBytes);
}

TEST_F(Adapters, RelaxedOrderingIsAskedForUnlessTheUserRefuses) {
  std::vector<unsigned char> memory(100);
  for (const bool relaxed : {true, false}) {
    renew_cables(false);
    crosses_ = false;
    ASSERT_NO_FATAL_FAILURE(open(1, {{"TUTTI_IB_RELAXED_ORDERING", relaxed ? "1" : "0"}}));
    a->deregister(a->register_memory(memory.data(), memory.size()));
    EXPECT_EQ(model::counts("rxe0").relaxed_regions, relaxed ? 1u : 0u);
    a.reset();
    b.reset();
  }
}

TEST_F(Adapters, QueuePairsDifferInTheirFlowLabels) {
  ASSERT_NO_FATAL_FAILURE(open_joined(2));
  EXPECT_EQ(model::flow_labels(), 4u);
  EXPECT_TRUE(model::fork_is_safe());
  crosses_ = false;
}

TEST_F(Adapters, ThoseThatCannotCarryItSayWhatToDo) {
  crosses_ = false;
  with([](model::Adapter& adapter, int) { adapter.has_shared_receives = false; });
  EXPECT_NE(refusal().find("rxe0:1: its device has no shared receive queues; use TCP"), std::string::npos) << Host::error;
  with([](model::Adapter& adapter, int) { adapter.iwarp = true; });
  EXPECT_NE(refusal().find("rxe0:1: it speaks iWARP"), std::string::npos) << Host::error;
  with([](model::Adapter& adapter, int) {
    adapter.has_reliable_queue_pairs = false;
    adapter.pci_vendor = 0x1d0f;
  });
  EXPECT_NE(refusal().find("rxe0:1: it is an EFA adapter"), std::string::npos) << Host::error;
}

TEST_F(Adapters, DevicesWithoutInlineBytesWork) {
  with([](model::Adapter& adapter, int) { adapter.has_inline = false; });
  ASSERT_NO_FATAL_FAILURE(open_joined(2));
  ASSERT_NO_FATAL_FAILURE(carry());
}

}  // namespace
}  // namespace tutti_test
