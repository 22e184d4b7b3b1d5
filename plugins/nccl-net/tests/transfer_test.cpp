// SPDX-License-Identifier: Apache-2.0
//
// Messages between two ranks over plugins of both ends of the range of versions.
#include <sys/mman.h>
#include <unistd.h>

#include <tutti/sdk/file_descriptor.hpp>

#include "nccl_ranks.hpp"

namespace tutti_test {
namespace {

struct Way {
  const char* file;
  const char* eager;
};

class NcclTransfer : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    use_network(GetParam().file, {{"TUTTI_NCCL_NET_EAGER_BYTES", GetParam().eager}});
    a = std::make_unique<Rank>(0);
    b = std::make_unique<Rank>(1);
    ASSERT_EQ(a->open_status, TUTTI_OK) << Host::error;
    ASSERT_NO_FATAL_FAILURE(join(*a, *b));
  }
  bool both(const std::function<bool()>& until) { return drive({a.get(), b.get()}, until); }
  std::unique_ptr<Rank> a, b;
};

INSTANTIATE_TEST_SUITE_P(Ways, NcclTransfer,
                         testing::Values(Way{SAMPLE_8, "8192"}, Way{SAMPLE_8, "0"}, Way{SAMPLE_11, "8192"}),
                         [](const auto& p) { return "way" + std::to_string(p.index); });

TEST_P(NcclTransfer, SizesAroundEveryLimitOnEveryLaneBothWays) {
  const uint64_t fragment = caps().fragment_bytes;
  for (uint32_t lane = 0; lane < 4; ++lane)
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{8191}, uint64_t{8192}, uint64_t{8193}, fragment}) {
      ASSERT_NO_FATAL_FAILURE(move(*a, *b, lane, bytes));
      ASSERT_NO_FATAL_FAILURE(move(*b, *a, lane, bytes));
    }
  ASSERT_NO_FATAL_FAILURE(move(*a, *b, 0, 0, TUTTI_TRANSFER_INLINE));
  EXPECT_EQ(a->send(1, 0, "", fragment + 1, 1), TUTTI_INVALID_ARGUMENT);
}

TEST_P(NcclTransfer, RegisteredMemoryIsSentAndReceivedWhereItLies) {
  const uint64_t bytes = caps().fragment_bytes;
  auto out = pattern(bytes, 3);
  std::vector<unsigned char> in(bytes + 1, 0xaa);
  tutti_region* from = a->register_memory(out.data(), bytes);
  tutti_region* to = b->register_memory(in.data(), bytes);
  ASSERT_TRUE(from && to) << a->error << b->error;
  for (uint64_t k = 0; k < 3; ++k) {
    std::fill(in.begin(), in.end(), 0xaa);
    ASSERT_EQ(b->transfer_region(TUTTI_TRANSFER_RECV, 0, 2, in.data(), bytes, 10 + k, to), TUTTI_OK);
    ASSERT_EQ(a->transfer_region(TUTTI_TRANSFER_SEND, 1, 2, out.data(), bytes, 20 + k, from), TUTTI_OK);
    ASSERT_TRUE(both([&] { return a->has(20 + k) && b->has(10 + k); }));
    EXPECT_TRUE(std::equal(out.begin(), out.end(), in.begin()));
    EXPECT_EQ(in[bytes], 0xaa);
  }
  EXPECT_EQ(a->transfer_region(TUTTI_TRANSFER_SEND, 1, 2, out.data() + 1, bytes, 30, from), TUTTI_INVALID_ARGUMENT);
  a->deregister(from);
  b->deregister(to);
}

TEST_P(NcclTransfer, ManyMessagesKeepTheOrderOfTheirLane) {
  constexpr uint32_t kMessages = 200, kLanes = 4, kAhead = 8;
  const auto size = [](uint32_t i, uint32_t lane) -> uint64_t {
    const uint64_t sizes[] = {8, 0, 3000, 17, 16384, 5000, 40000, 1, 100000, 4096};
    return sizes[(i * 7 + lane * 3) % 10];
  };
  const auto source = pattern(100000 + kMessages * kLanes, 5);
  const auto name = [](uint32_t i, uint32_t lane) { return uint64_t{i} * kLanes + lane; };
  std::vector<uint32_t> sent(kLanes), posted(kLanes), checked(kLanes);
  std::vector<std::vector<std::vector<unsigned char>>> in(kLanes, std::vector<std::vector<unsigned char>>(kAhead));
  ASSERT_TRUE(both([&] {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      for (; sent[lane] < kMessages; ++sent[lane])
        if (a->send(1, lane, source.data() + name(sent[lane], lane), size(sent[lane], lane), name(sent[lane], lane)))
          break;
      for (; posted[lane] < kMessages && posted[lane] < checked[lane] + kAhead; ++posted[lane]) {
        auto& memory = in[lane][posted[lane] % kAhead];
        memory.assign(size(posted[lane], lane), 0);
        if (b->receive(0, lane, memory.data(), memory.size(), name(posted[lane], lane))) break;
      }
      for (; checked[lane] < posted[lane] && b->has(name(checked[lane], lane)); ++checked[lane]) {
        const auto& memory = in[lane][checked[lane] % kAhead];
        EXPECT_TRUE(
            std::equal(memory.begin(), memory.end(), source.begin() + static_cast<long>(name(checked[lane], lane))))
            << "message " << checked[lane] << " of lane " << lane;
      }
    }
    return std::accumulate(checked.begin(), checked.end(), 0u) == kMessages * kLanes;
  }));
  ASSERT_TRUE(both([&] { return a->ended.size() == kMessages * kLanes; }));
  for (Rank* rank : {a.get(), b.get()})  // each lane's completions come in the order of posting
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      uint64_t next = lane;
      for (const uint64_t cookie : rank->order)
        if (cookie % kLanes == lane) {
          EXPECT_EQ(cookie, next);
          next += kLanes;
        }
    }
}

TEST_P(NcclTransfer, ALaneWithoutReceivesHoldsNobodyUp) {
  const auto out = pattern(caps().fragment_bytes, 3);
  std::vector<unsigned char> in(out.size());
  uint64_t stuck = 1000;
  while (a->send(1, 0, out.data(), stuck % 20 == 19 ? out.size() : 100, stuck) == TUTTI_OK) ++stuck;
  EXPECT_GE(stuck, 1016u);
  for (uint64_t i = 0; i < 40; ++i) {
    const uint32_t lane = 1 + i % 3;
    const uint64_t bytes = i % 2 ? out.size() : 64;
    ASSERT_EQ(b->receive(0, lane, in.data(), bytes, 2 * i), TUTTI_OK);
    ASSERT_EQ(a->send(1, lane, out.data(), bytes, 2 * i + 1), TUTTI_OK);
    ASSERT_TRUE(both([&] { return b->has(2 * i) && a->has(2 * i + 1); })) << "lane " << lane << " is held up";
  }
}

TEST_P(NcclTransfer, AMessageOfAnotherSizeOrMarkEndsItsReceive) {
  const auto out = pattern(200'000, 3);
  std::vector<unsigned char> in(200'000);
  uint64_t cookie = 0;
  for (const uint64_t bytes : {uint64_t{8}, uint64_t{150'000}})
    for (const bool other_mark : {false, true}) {
      const uint64_t received = ++cookie, sent = ++cookie;
      ASSERT_EQ(b->transfer_region(TUTTI_TRANSFER_RECV, 0, 1, in.data(), bytes, received, nullptr, 7), TUTTI_OK);
      ASSERT_EQ(a->transfer_region(TUTTI_TRANSFER_SEND, 1, 1, const_cast<unsigned char*>(out.data()),
                                   other_mark ? bytes : bytes + 9, sent, nullptr, other_mark ? 8 : 7),
                TUTTI_OK);
      ASSERT_TRUE(both([&] { return b->has(received, TUTTI_MISMATCH) && a->has(sent); })) << bytes;
      EXPECT_EQ(b->ended[received].mark, other_mark ? 8u : 7u);
      EXPECT_EQ(b->ended[received].bytes, other_mark ? bytes : bytes + 9);
      ASSERT_NO_FATAL_FAILURE(move(*a, *b, 1, bytes));  // the lane goes on
    }
}

TEST_P(NcclTransfer, AMessageThatIsRefusedTakesNoOthersPlace) {
  auto out = pattern(200'000, 3);
  std::vector<unsigned char> first(150'000), second(120'000), third(100'000);
  ASSERT_EQ(a->send(1, 1, out.data(), first.size(), 1), TUTTI_OK);
  ASSERT_EQ(a->send(1, 1, out.data() + 7, second.size() + 1, 2), TUTTI_OK);
  ASSERT_EQ(a->send(1, 1, out.data() + 9, third.size(), 3), TUTTI_OK);
  ASSERT_EQ(b->receive(0, 1, first.data(), first.size(), 4), TUTTI_OK);
  ASSERT_EQ(b->receive(0, 1, second.data(), second.size(), 5), TUTTI_OK);
  ASSERT_EQ(b->receive(0, 1, third.data(), third.size(), 6), TUTTI_OK);
  ASSERT_TRUE(both([&] { return b->has(6) && a->has(3); }));
  EXPECT_TRUE(b->has(4) && b->has(5, TUTTI_MISMATCH) && a->has(1) && a->has(2));
  EXPECT_EQ(b->order, (std::vector<uint64_t>{4, 5, 6}));
  EXPECT_TRUE(std::equal(first.begin(), first.end(), out.begin()));
  EXPECT_TRUE(std::equal(third.begin(), third.end(), out.begin() + 9));
}

TEST_P(NcclTransfer, ControlMessagesNeedNoReceiveAndKeepTheirOrder) {
  std::vector<std::string> sent;
  for (size_t k = 0; k < 100; ++k) {
    sent.push_back(std::string(k % 2 ? caps().control_bytes : 0, static_cast<char>(k)));
    ASSERT_TRUE(both([&] { return table().send_control(a->link(1), sent[k].data(), sent[k].size()) == 0; }));
  }
  ASSERT_TRUE(both([&] { return b->controls.size() == sent.size(); }));
  EXPECT_EQ(b->controls, sent);
}

TEST_P(NcclTransfer, WhatWasSentBeforeTheEndStillArrives) {
  const bool eager = GetParam().eager != std::string("0");  // the sender does not wait for a RECV of a short message
  uint64_t got = 0;
  std::vector<unsigned char> in(100'000);
  const auto out = pattern(in.size(), 9);
  const uint64_t word = 42;
  ASSERT_EQ(a->receive(1, 1, in.data(), in.size(), 3), TUTTI_OK);
  if (!eager) {
    ASSERT_EQ(a->receive(1, 0, &got, 8, 4), TUTTI_OK);
  }
  ASSERT_EQ(b->send(0, 0, &word, 8, 1), TUTTI_OK);
  ASSERT_EQ(b->send(0, 1, out.data(), out.size(), 2), TUTTI_OK);
  ASSERT_TRUE(both([&] { return b->has(1) && b->has(2); }));
  b->close();
  if (eager) {
    ASSERT_EQ(a->receive(1, 0, &got, 8, 4), TUTTI_OK);
  }
  ASSERT_TRUE(drive({a.get()}, [&] { return a->has(3) && a->has(4); }));
  EXPECT_EQ(got, 42u);
  EXPECT_TRUE(std::equal(in.begin(), in.end(), out.begin()));
  EXPECT_TRUE(a->failures.empty()) << "nothing is expected of it";
  // Something is, now: no room until the record, and the record's status after it.
  ASSERT_TRUE(drive({a.get()}, [&] { return a->receive(1, 0, &got, 8, 5) == TUTTI_PEER_FAILED; }));
  EXPECT_TRUE(says(a->failures[1], "closed its endpoint")) << a->failures[1];
}

// A device's memory: a dma-buf, and an address at which the processor cannot access it.
class DeviceMemory {
 public:
  static constexpr size_t kBytes = 4096;
  DeviceMemory()
      : file_(memfd_create("dma-buf", MFD_CLOEXEC)),
        address_(mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_EQ(ftruncate(file_.get(), 2 * kBytes), 0);
    EXPECT_NE(address_, MAP_FAILED);
  }
  ~DeviceMemory() { munmap(address_, kBytes); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  void* address() const { return address_; }
  tutti_region* registered(Rank& rank) const {
    return rank.register_memory(address_, kBytes, TUTTI_MEMORY_CUDA, file_.get(), kBytes);
  }
  void write(const std::vector<unsigned char>& bytes) const {
    EXPECT_EQ(pwrite(file_.get(), bytes.data(), kBytes, kBytes), static_cast<ssize_t>(kBytes));
  }
  std::vector<unsigned char> read() const {
    std::vector<unsigned char> bytes(kBytes);
    EXPECT_EQ(pread(file_.get(), bytes.data(), kBytes, kBytes), static_cast<ssize_t>(kBytes));
    return bytes;
  }

 private:
  tutti::FileDescriptor file_;
  void* const address_;
};

TEST(NcclTransfer, DeviceMemoryIsTheDmaBufs) {
  use_network(SAMPLE_11);
  Shape shape;
  shape.device_kind = TUTTI_MEMORY_CUDA;
  Rank a(0, shape), b(1, shape);
  ASSERT_NO_FATAL_FAILURE(join(a, b));
  const DeviceMemory from, to;
  tutti_region *source = from.registered(a), *goal = to.registered(b);
  ASSERT_TRUE(source && goal) << a.error << b.error;
  from.write(pattern(DeviceMemory::kBytes, 5));
  ASSERT_EQ(b.transfer_region(TUTTI_TRANSFER_RECV, 0, 1, to.address(), DeviceMemory::kBytes, 1, goal), TUTTI_OK);
  ASSERT_EQ(a.transfer_region(TUTTI_TRANSFER_SEND, 1, 1, from.address(), DeviceMemory::kBytes, 2, source), TUTTI_OK);
  ASSERT_TRUE(drive({&a, &b}, [&] { return a.has(2) && b.has(1); }));
  EXPECT_EQ(to.read(), from.read());
  a.deregister(source);
  b.deregister(goal);
}

TEST(NcclTransfer, NoMessageIsLargerThanTheAdaptersLimit) {
  setenv("SAMPLE_NET_MOST_BYTES", "1000", 1);  // isend refuses more
  use_network(SAMPLE_11);
  EXPECT_EQ(caps().fragment_bytes, 1000u);
  Rank a(0), b(1);
  ASSERT_NO_FATAL_FAILURE(join(a, b));
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{976}, uint64_t{977}, uint64_t{1000}})
    ASSERT_NO_FATAL_FAILURE(move(a, b, 0, bytes));
  setenv("SAMPLE_NET_MOST_BYTES", "279", 1);
  tutti_transport_caps unused{};
  EXPECT_EQ(query(&unused), TUTTI_NOT_SUPPORTED);
  EXPECT_TRUE(says(Host::error, "messages of at most 279 bytes (maxP2pBytes), expected 280 or more")) << Host::error;
  unsetenv("SAMPLE_NET_MOST_BYTES");
}

// google/nccl-fastsocket is such a plugin.
TEST(NcclTransfer, APluginThatReportsNoSizesIsNamedOnceAndServes) {
  use_fault("no-sizes");
  Rank a(0), b(1);
  ASSERT_NO_FATAL_FAILURE(join(a, b));
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{8}, uint64_t{100'000}})
    ASSERT_NO_FATAL_FAILURE(move(a, b, 0, bytes));
  ASSERT_TRUE(drive({&a, &b}, [&] { return table().send_control(a.link(1), "word", 4) == 0; }));
  ASSERT_TRUE(drive({&a, &b}, [&] { return b.controls.size() == 1; }));
  EXPECT_EQ(b.controls.front(), "word");
  EXPECT_EQ(std::ranges::count_if(host().log, [](const auto& line) { return says(line, "reports no size"); }), 1);
  choose_fault("none");
}

}  // namespace
}  // namespace tutti_test
