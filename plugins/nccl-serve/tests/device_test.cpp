// SPDX-License-Identifier: Apache-2.0
//
// Device memory: the transport "stand-in" (stand_in_device.cpp) claims NCCL_PTR_CUDA. It also breaks its contract.
#include <fcntl.h>
#include <unistd.h>

#include "connected.hpp"

namespace nccl_driver {
namespace {

struct DeviceMemory {
  explicit DeviceMemory(size_t n) : bytes(static_cast<unsigned char*>(std::aligned_alloc(64, n + 64 - n % 64))) {
    std::fill(bytes, bytes + n, static_cast<unsigned char>(0xEE));
  }
  ~DeviceMemory() { std::free(bytes); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  unsigned char* const bytes;
};

TEST(NcclServeDevice, ReceivedMemoryIsVisibleAfterTheFlush) {
  const Plugin plugin{SERVE, 12, "stand-in"};
  ASSERT_EQ(plugin.result, Result::kSuccess) << Said::all().take();
  const Calls& calls = plugin.calls();
  tutti::nccl::Description d{};
  ASSERT_EQ(calls.describe(0, &d), Result::kSuccess);
  EXPECT_EQ(d.pointers, tutti::nccl::kHostPointer | tutti::nccl::kCudaPointer | tutti::nccl::kDmaBuf);
  Connected c(plugin);
  ASSERT_TRUE(c.sender && c.receiver) << Said::all().take();
  for (const size_t n : {size_t{64}, size_t{100'000}}) {
    Buffer out(calls, c.sender, n, 6);
    DeviceMemory in(n);
    void *data = in.bytes, *memory = nullptr;
    ASSERT_EQ(calls.register_memory(c.receiver, data, n, tutti::nccl::kCudaPointer, &memory), Result::kSuccess)
        << Said::all().take();
    Transfer send(calls), receive(calls), flush(calls);
    int tag = 0, size = static_cast<int>(n);
    ASSERT_EQ(calls.receive(c.receiver, 1, &data, &n, &tag, &memory, &receive.request), Result::kSuccess);
    ASSERT_NO_FATAL_FAILURE(post_send(send, c.sender, out, n, 0, {&receive}));
    ASSERT_NO_FATAL_FAILURE(finish({&send, &receive}));
    EXPECT_EQ(receive.sizes[0], size);
    EXPECT_EQ(in.bytes[0], 0xEE);
    ASSERT_EQ(calls.flush(c.receiver, 1, &data, &size, &memory, &flush.request), Result::kSuccess);
    ASSERT_NE(flush.request, nullptr);
    ASSERT_NO_FATAL_FAILURE(finish({&flush}));
    EXPECT_TRUE(std::equal(out.bytes.begin(), out.bytes.end(), in.bytes));
    EXPECT_EQ(calls.deregister_memory(c.receiver, memory), Result::kSuccess);
  }
}

// From memory of a device to the host's; no flush is needed, and no message of a device's travels in an announcement.
TEST(NcclServeDevice, ADmaBufIsHandedOn) {
  const Plugin plugin{SERVE, 8, "stand-in"};
  const Calls& calls = plugin.calls();
  Connected c(plugin);
  ASSERT_TRUE(c.sender && c.receiver) << Said::all().take();
  constexpr size_t n = 200;
  DeviceMemory out(n + 1);
  std::iota(out.bytes, out.bytes + n + 1, static_cast<unsigned char>(1));
  void *data = out.bytes + 1, *memory = nullptr;
  const int file = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(calls.register_memory(c.sender, data, n, tutti::nccl::kCudaPointer, &memory), Result::kInvalidUsage);
  EXPECT_NE(Said::all().take().find("stand-in: no dma-buf"), std::string::npos);
  EXPECT_EQ(calls.register_dma_buf(c.sender, data, n, tutti::nccl::kCudaPointer, 4096, -1, &memory),
            Result::kInvalidUsage);
  ASSERT_EQ(calls.register_dma_buf(c.sender, data, n, tutti::nccl::kCudaPointer, 4096, file, &memory),
            Result::kSuccess)
      << Said::all().take();
  ::close(file);
  Buffer in(calls, c.receiver, n);
  Transfer send(calls), receive(calls);
  ASSERT_EQ(receive.receive(c.receiver, {&in}, {2}), Result::kSuccess);
  ASSERT_TRUE(until([&] {
    EXPECT_TRUE(receive.poll());
    EXPECT_EQ(calls.send(c.sender, data, n, 2, memory, &send.request), Result::kSuccess);
    return send.request != nullptr;
  }));
  ASSERT_NO_FATAL_FAILURE(finish({&send, &receive}));
  EXPECT_TRUE(std::equal(in.bytes.begin(), in.bytes.end(), out.bytes + 1));
  EXPECT_EQ(calls.deregister_memory(c.sender, memory), Result::kSuccess);
}

// One irecv is pending over the stand-in, which then does what an environment variable says.
class NcclServeTransport : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(c.sender && c.receiver) << Said::all().take();
    ASSERT_EQ(receive.receive(c.receiver, {&in}, {0}), Result::kSuccess);
  }
  void TearDown() override {
    unsetenv("STAND_IN_WAITS");
    unsetenv("STAND_IN_LIES");
  }
  const Plugin plugin{SERVE, 12, "stand-in"};
  const Calls& calls = plugin.calls();
  Connected c{plugin};
  Buffer in{calls, c.receiver, 64};
  Transfer receive{calls};
};

TEST_F(NcclServeTransport, AMessageThatComesAfterTheGoodbyeIsReceived) {
  {
    Buffer out(calls, c.sender, 64, 4);
    Transfer send(calls);
    ASSERT_NO_FATAL_FAILURE(post_send(send, c.sender, out, 64, 0, {&receive}));
    ASSERT_NO_FATAL_FAILURE(finish({&send}));
  }
  setenv("STAND_IN_WAITS", "1", 1);
  EXPECT_EQ(calls.close_send(std::exchange(c.sender, nullptr)), Result::kSuccess);
  constexpr int kUntilTheGoodbyeIsRead = 1000;
  for (int i = 0; i < kUntilTheGoodbyeIsRead; ++i) ASSERT_TRUE(receive.poll()) << Said::all().take();
  unsetenv("STAND_IN_WAITS");
  ASSERT_NO_FATAL_FAILURE(finish({&receive}));
}

TEST_F(NcclServeTransport, MoreCompletionsThanThereIsRoomForAreAnError) {
  setenv("STAND_IN_LIES", "1", 1);
  EXPECT_FALSE(receive.poll());
  unsetenv("STAND_IN_LIES");
  EXPECT_EQ(receive.result, Result::kInternalError);
  const std::string said = Said::all().take();
  EXPECT_NE(said.find("transport stand-in reports 33 completions, expected at most 32"), std::string::npos) << said;
}

}  // namespace
}  // namespace nccl_driver
