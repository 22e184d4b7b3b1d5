// SPDX-License-Identifier: Apache-2.0
//
// The sequences of calls that NCCL makes, for every version and several transports.
#include <thread>

#include "connected.hpp"

namespace nccl_driver {
namespace {

struct Place {
  int version;
  const char* transport;
};
std::string name_of(const testing::TestParamInfo<Place>& info) {
  return std::string(info.param.transport) + "_v" + std::to_string(info.param.version);
}
class NcclSequence : public testing::TestWithParam<Place> {
 protected:
  void SetUp() override { ASSERT_EQ(plugin.result, Result::kSuccess) << Said::all().take(); }
  Plugin plugin{SERVE, GetParam().version, GetParam().transport};
  const Calls& calls = plugin.calls();
};
INSTANTIATE_TEST_SUITE_P(All, NcclSequence,
                         testing::Values(Place{6, "tcp"}, Place{7, "tcp"}, Place{8, "tcp"}, Place{9, "tcp"},
                                         Place{10, "tcp"}, Place{11, "tcp"}, Place{12, "tcp"}, Place{8, "shm"},
                                         Place{12, "shm"}, Place{8, "template"}, Place{11, "template"}),
                         name_of);

TEST_P(NcclSequence, DescribesItsAdapter) {
  int n = 0;
  ASSERT_EQ(calls.devices(&n), Result::kSuccess);
  EXPECT_EQ(n, 1);
  tutti::nccl::Description d{};
  ASSERT_EQ(calls.describe(0, &d), Result::kSuccess);
  EXPECT_STREQ(d.name, GetParam().transport);
  EXPECT_EQ(d.pointers, tutti::nccl::kHostPointer);
  EXPECT_GT(d.speed, 0);
  EXPECT_EQ(d.max_receives, 8);
  EXPECT_EQ(calls.describe(1, &d), Result::kInvalidUsage);
  EXPECT_NE(Said::all().take().find("there is adapter 0 only, not 1"), std::string::npos);
}

// Three ranks in a ring, as NCCL's proxy serves them: eight messages of two slices are under way on each comm, and what
// was posted last is tested first.
TEST_P(NcclSequence, Ring) {
  constexpr size_t ranks = 3, messages = 8, bytes = 100'000;
  std::array<Handle, ranks> handles;
  std::array<void*, ranks> listeners{}, next{}, previous{};
  for (size_t r = 0; r < ranks; ++r) ASSERT_EQ(plugin.listen(handles[r], &listeners[r]), Result::kSuccess);
  std::array<Handle, ranks> to;
  for (size_t r = 0; r < ranks; ++r) to[r] = handles[(r + 1) % ranks];
  ASSERT_TRUE(until([&] {
    size_t there = 0;
    for (size_t r = 0; r < ranks; ++r) {
      if (!next[r]) {
        EXPECT_EQ(plugin.connect(to[r], &next[r]), Result::kSuccess);
      }
      if (!previous[r]) {
        EXPECT_EQ(calls.accept(listeners[r], &previous[r]), Result::kSuccess);
      }
      there += next[r] && previous[r];
    }
    return there == ranks;
  })) << Said::all().take();
  {
    std::vector<std::unique_ptr<Buffer>> out, in;
    std::vector<Transfer> sends, receives;
    for (size_t k = 0; k < ranks * messages; ++k) {
      const size_t r = k % ranks;
      out.push_back(std::make_unique<Buffer>(calls, next[r], bytes + k, static_cast<unsigned>(k + 1)));
      in.push_back(std::make_unique<Buffer>(calls, previous[r], bytes + 64));
      sends.emplace_back(calls);
      receives.emplace_back(calls);
      ASSERT_EQ(receives[k].receive(previous[r], {in[k].get()}, {static_cast<int>(k / ranks)}), Result::kSuccess);
      ASSERT_NE(receives[k].request, nullptr);
    }
    std::vector<Transfer*> all;
    for (size_t k = 0; k < sends.size(); ++k) all.push_back(&receives[receives.size() - 1 - k]);
    for (size_t k = 0; k < sends.size(); ++k)
      ASSERT_NO_FATAL_FAILURE(
          post_send(sends[k], next[k % ranks], *out[k], bytes + k, static_cast<int>(k / ranks), all));
    for (size_t k = sends.size(); k-- > 0;) all.push_back(&sends[k]);
    ASSERT_NO_FATAL_FAILURE(finish(all));
    for (size_t k = 0; k < sends.size(); ++k) {
      const size_t r = k % ranks, from = (r + ranks - 1) % ranks, sent = k - r + from;
      EXPECT_EQ(receives[k].sizes[0], static_cast<int>(bytes + sent));
      EXPECT_TRUE(in[k]->begins_like(*out[sent], bytes + sent)) << "message " << k;
      EXPECT_EQ(in[k]->bytes[bytes + sent], 0xEE);
    }
    void* data = in[0]->bytes.data();
    int size = 64;
    void* flush = nullptr;
    EXPECT_EQ(calls.flush(previous[0], 1, &data, &size, &in[0]->memory, &flush), Result::kSuccess);
    EXPECT_EQ(flush, nullptr);  // host memory needs none
  }
  for (size_t r = 0; r < ranks; ++r) {
    EXPECT_EQ(calls.close_send(next[r]), Result::kSuccess);
    EXPECT_EQ(calls.close_receive(previous[r]), Result::kSuccess);
    EXPECT_EQ(calls.close_listen(listeners[r]), Result::kSuccess);
  }
}

TEST_P(NcclSequence, GroupsAreMatchedByTagAndInOrder) {
  Connected c(plugin);
  ASSERT_TRUE(c.sender && c.receiver) << Said::all().take();
  constexpr size_t n = 8, groups = 2;
  std::vector<std::unique_ptr<Buffer>> out, in;
  std::vector<Transfer> receives(groups, Transfer(calls)), sends(groups * n, Transfer(calls));
  for (size_t k = 0; k < groups * n; ++k) {
    out.push_back(std::make_unique<Buffer>(calls, c.sender, k % 3 ? 40 * k : 9000 + k, static_cast<unsigned>(k + 1)));
    in.push_back(std::make_unique<Buffer>(calls, c.receiver, 10'000));
  }
  for (size_t g = 0; g < groups; ++g) {
    std::vector<Buffer*> into;
    std::vector<int> tags;
    for (size_t i = 0; i < n; ++i) into.push_back(in[g * n + i].get()), tags.push_back(static_cast<int>(70 + i));
    ASSERT_EQ(receives[g].receive(c.receiver, into, tags), Result::kSuccess);
  }
  // The last tag first; two messages of a tag go to the two groups in their order.
  std::vector<Transfer*> all{&receives[0], &receives[1]};
  for (size_t i = n; i-- > 0;)
    for (size_t g = 0; g < groups; ++g) {
      EXPECT_FALSE(receives[0].done && i > 0);
      ASSERT_NO_FATAL_FAILURE(post_send(sends[g * n + i], c.sender, *out[g * n + i], out[g * n + i]->bytes.size(),
                                        static_cast<int>(70 + i), all));
    }
  for (Transfer& s : sends) all.push_back(&s);
  ASSERT_NO_FATAL_FAILURE(finish(all));
  for (size_t k = 0; k < groups * n; ++k) {
    EXPECT_EQ(receives[k / n].sizes[k % n], static_cast<int>(out[k]->bytes.size()));
    EXPECT_TRUE(in[k]->begins_like(*out[k], out[k]->bytes.size())) << "message " << k;
  }
}

TEST_P(NcclSequence, SizesFromNothingToManyFragments) {
  Connected c(plugin);
  ASSERT_TRUE(c.sender && c.receiver) << Said::all().take();
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{216}, size_t{217}, size_t{4096}, size_t{65'537},
                             (size_t{3} << 20) + 5}) {
    Buffer out(calls, c.sender, bytes + 1, 5), in(calls, c.receiver, bytes + 1);
    Transfer send(calls), receive(calls);
    ASSERT_EQ(receive.receive(c.receiver, {&in}, {3}), Result::kSuccess);
    ASSERT_NO_FATAL_FAILURE(post_send(send, c.sender, out, bytes, 3, {&receive}, 1));
    ASSERT_NO_FATAL_FAILURE(finish({&send, &receive}));
    EXPECT_EQ(receive.sizes[0], static_cast<int>(bytes));
    EXPECT_EQ(send.sizes[0], static_cast<int>(bytes));
    EXPECT_TRUE(std::equal(out.bytes.begin() + 1, out.bytes.end(), in.bytes.begin()));
    EXPECT_EQ(in.bytes.back(), 0xEE);
  }
}

// A proxy thread serves comms that another thread has made, several at a time, while that thread registers memory.
TEST_P(NcclSequence, AnotherThreadUsesTheComms) {
  constexpr size_t n = 3, messages = 20, bytes = 5000;
  std::vector<std::unique_ptr<Connected>> comms;
  for (size_t i = 0; i < n; ++i) comms.push_back(std::make_unique<Connected>(plugin));
  for (const auto& c : comms) ASSERT_TRUE(c->sender && c->receiver);
  Buffer out(calls, comms[0]->sender, bytes, 9), in(calls, comms[0]->receiver, n * bytes);
  std::atomic<bool> over{false};
  std::thread proxy([&] {
    for (size_t m = 0; m < messages; ++m) {
      std::vector<Transfer> sends(n, Transfer(calls)), receives(n, Transfer(calls));
      std::vector<Transfer*> all;
      for (size_t i = 0; i < n; ++i) {
        // Memory that one comm has registered serves all (regIsGlobal).
        void *data = in.bytes.data() + i * bytes, *memory = in.memory;
        size_t size = bytes;
        int tag = 0;
        EXPECT_EQ(calls.receive(comms[i]->receiver, 1, &data, &size, &tag, &memory, &receives[i].request),
                  Result::kSuccess);
        all.push_back(&receives[i]);
      }
      for (size_t i = 0; i < n; ++i) {
        post_send(sends[i], comms[i]->sender, out, bytes, 0, all);
        all.push_back(&sends[i]);
      }
      finish(all);
    }
    over = true;
  });
  while (!over) Buffer(calls, comms[1]->sender, 4096);
  proxy.join();
  for (size_t i = 0; i < n; ++i)
    EXPECT_TRUE(std::equal(out.bytes.begin(), out.bytes.end(),
                           in.bytes.begin() + static_cast<std::ptrdiff_t>(i * bytes)));
}

TEST_P(NcclSequence, WhatAnIsendHasSentArrivesAfterCloseSend) {
  Connected c(plugin);
  ASSERT_TRUE(c.sender && c.receiver) << Said::all().take();
  constexpr size_t bytes = 3000;
  Buffer in(calls, c.receiver, bytes), small(calls, c.receiver, 8);
  Transfer receive(calls), receive_small(calls);
  ASSERT_EQ(receive.receive(c.receiver, {&in}, {0}), Result::kSuccess);
  ASSERT_EQ(receive_small.receive(c.receiver, {&small}, {0}), Result::kSuccess);
  {
    Buffer out(calls, c.sender, bytes, 4);
    Transfer send(calls), send_small(calls);
    ASSERT_NO_FATAL_FAILURE(post_send(send, c.sender, out, bytes, 0, {&receive}));
    ASSERT_NO_FATAL_FAILURE(finish({&send, &receive}));
    EXPECT_TRUE(in.begins_like(out, bytes));
    ASSERT_NO_FATAL_FAILURE(post_send(send_small, c.sender, out, 8, 0));
    ASSERT_NO_FATAL_FAILURE(finish({&send_small}));
  }
  EXPECT_EQ(calls.close_send(std::exchange(c.sender, nullptr)), Result::kSuccess);
  ASSERT_NO_FATAL_FAILURE(finish({&receive_small}));
  EXPECT_EQ(receive_small.sizes[0], 8) << Said::all().take();
}

TEST_P(NcclSequence, AdaptersCannotBeJoined) {
  if (!calls.can_fuse(1)) return;
  int device = -1;
  const int one[] = {0}, two[] = {0, 1};
  EXPECT_EQ(calls.fuse(one, &device), Result::kSuccess);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(calls.fuse(two, &device), Result::kInvalidUsage);
}

}  // namespace
}  // namespace nccl_driver
