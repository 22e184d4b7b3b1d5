// SPDX-License-Identifier: Apache-2.0
//
// Memory of a device on adapters that take dma-buf. Soft-RoCE takes none: there ibv_reg_dmabuf_mr is
// dma_buf_stand_in.cpp's. At the address that the transport is given nothing can be read or written: whatever
// arrives was carried by the adapter.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "ib_ranks.hpp"

namespace tutti_test {
namespace {

constexpr uint64_t kBytes = 256 << 10, kBefore = 4096, kStripe = 16384;

// Small messages, a large one in one piece, striped ones. The last piece of some is so short that an adapter could take
// it inline.
std::vector<uint64_t> sizes() {
  std::vector<uint64_t> all{0, 1, 8, 64, 8192, 8193, kBytes - 16};
  for (const uint64_t tail : {1, 8, 32, 64, 256, 257}) all.push_back(5 * kStripe + tail);
  return all;
}

class DeviceMemory {
 public:
  DeviceMemory() : fd(memfd_create("device", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd, kBefore + kBytes), 0);
    address = static_cast<unsigned char*>(mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    seen = static_cast<unsigned char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, kBefore));
    EXPECT_TRUE(address != MAP_FAILED && seen != MAP_FAILED);
  }
  ~DeviceMemory() {
    munmap(address, kBytes);
    munmap(seen, kBytes);
    close(fd);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  tutti_region* registered_by(Rank& rank) const {
    return rank.register_memory(address, kBytes, TUTTI_MEMORY_CUDA, fd, kBefore);
  }

  const int fd;
  unsigned char* address;  // what transfers name
  unsigned char* seen;     // what lies there
};

class OnDevice : public OverCables {
 protected:
  void SetUp() override {
    has_dma_buf_ = true;
    OverCables::SetUp();
    if (IsSkipped()) return;
    open_joined(2, {{"TUTTI_IB_FRAGMENT_BYTES", "262144"}, {"TUTTI_IB_STRIPE_BYTES", std::to_string(kStripe)}});
    from = source.registered_by(*a);
    into = target.registered_by(*b);
    ASSERT_TRUE(from && into) << a->error << b->error;
    const auto bytes = pattern(kBytes, 3);
    std::memcpy(source.seen, bytes.data(), kBytes);
  }
  void TearDown() override {
    if (from) a->deregister(from);
    if (into) b->deregister(into);
    OverCables::TearDown();
  }

  DeviceMemory source, target;
  tutti_region *from = nullptr, *into = nullptr;
};

TEST_F(OnDevice, EverySizeGoesFromAndToIt) {
  EXPECT_TRUE(caps().memory_kinds & uint64_t{1} << TUTTI_MEMORY_CUDA);
  EXPECT_TRUE(caps().flags & TUTTI_TRANSPORT_NEEDS_FLUSH);
  std::vector<unsigned char> in(kBytes), out(source.seen, source.seen + kBytes);
  tutti_region* host_into = b->register_memory(in.data(), in.size());
  ASSERT_TRUE(host_into) << b->error;
  uint64_t cookie = 0;
  const struct {
    unsigned char* data;
    tutti_region* region;
    const unsigned char* seen;
  } sources[] = {{source.address, from, source.seen}, {out.data(), nullptr, out.data()}},
    targets[] = {
        {target.address, into, target.seen}, {in.data(), host_into, in.data()}, {in.data(), nullptr, in.data()}};
  for (const auto& s : sources)
    for (const auto& t : targets)
      for (const uint64_t bytes : sizes()) {
        const bool receive_first = ++cookie % 2;
        std::memset(target.seen, 0xaa, kBytes);
        std::fill(in.begin(), in.end(), 0xaa);
        const uint64_t receive_cookie = ++cookie, send_cookie = ++cookie;
        const auto receive = [&] {
          return b->transfer_region(TUTTI_TRANSFER_RECV, 0, 1, t.data + 8, bytes, receive_cookie, t.region);
        };
        if (receive_first) {
          ASSERT_EQ(receive(), TUTTI_OK) << b->error;
        }
        ASSERT_EQ(a->transfer_region(TUTTI_TRANSFER_SEND, 1, 1, s.data + 16, bytes, send_cookie, s.region), TUTTI_OK)
            << a->error;
        if (!receive_first) {
          for (int i = 0; i < 20; ++i) a->progress(), b->progress();
          ASSERT_EQ(receive(), TUTTI_OK) << b->error;
        }
        ASSERT_TRUE(both([&] { return a->has(send_cookie) && b->has(receive_cookie); })) << bytes << " bytes";
        if (t.region == into) {
          EXPECT_EQ(table().flush(b->link(0), into, t.data + 8, bytes), TUTTI_OK) << Host::error;
        }
        EXPECT_EQ(std::memcmp(t.seen + 8, s.seen + 16, bytes), 0) << bytes << " bytes";
        EXPECT_EQ(t.seen[7], 0xaa) << "wrote before " << bytes;
        EXPECT_EQ(t.seen[8 + bytes], 0xaa) << "wrote past " << bytes;
      }
  b->deregister(host_into);
}

// Frames in flight from a device's memory are sent again from there; the memory is in use until they have arrived.
TEST_F(OnDevice, NothingIsLostWhenARailFails) {
  constexpr uint64_t kMessages = 40, kHalf = kMessages / 2, kSize = 4000;
  for (uint64_t i = 0; i < kMessages; ++i)
    ASSERT_EQ(b->transfer_region(TUTTI_TRANSFER_RECV, 0, 0, target.address + i * kSize, kSize, i, into), TUTTI_OK);
  const auto send = [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i)
      ASSERT_EQ(a->transfer_region(TUTTI_TRANSFER_SEND, 1, 0, source.address + i * kSize, kSize, i, from), TUTTI_OK);
  };
  ASSERT_NO_FATAL_FAILURE(send(0, kHalf));
  ASSERT_TRUE(both([&] { return a->has(kHalf - 1) && b->has(kHalf - 1); }));
  cable(0, "down");
  ASSERT_NO_FATAL_FAILURE(send(kHalf, kMessages));
  a->progress();
  for (uint64_t i = kHalf; i < kMessages; ++i) EXPECT_FALSE(a->has(i)) << "nobody can have acknowledged " << i;
  ASSERT_TRUE(both([&] { return a->has(kMessages - 1) && b->has(kMessages - 1); }));
  EXPECT_TRUE(host().logged("going on with the 1 left"));
  ASSERT_EQ(table().flush(b->link(0), into, target.address, kMessages * kSize), TUTTI_OK) << Host::error;
  EXPECT_EQ(std::memcmp(target.seen, source.seen, kMessages * kSize), 0);
  cable(0, "up");
}

TEST_F(OnDevice, WhatCannotBeDoneSaysWhy) {
  crosses_ = false;
  EXPECT_EQ(a->post([&] {
    auto t = Rank::transfer(a->link(1), TUTTI_TRANSFER_SEND, 0, source.address, 8, 1, TUTTI_TRANSFER_INLINE);
    t.region = from;
    return t;
  }()),
            TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(a->error.find("INLINE is for host memory"), std::string::npos) << a->error;
  EXPECT_EQ(a->register_memory(source.address, kBytes, TUTTI_MEMORY_CUDA), nullptr);
  EXPECT_NE(a->error.find("there is no dma-buf descriptor of it"), std::string::npos) << a->error;
  EXPECT_EQ(table().flush(b->link(0), into, target.address, kBytes + 1), TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(Host::error.find("that its region does not hold"), std::string::npos) << Host::error;
  ASSERT_EQ(table().fail_peer(b->endpoint, 0), TUTTI_OK);
  EXPECT_EQ(table().flush(b->link(0), into, target.address, 1), TUTTI_PEER_FAILED) << Host::error;
}

}  // namespace
}  // namespace tutti_test
