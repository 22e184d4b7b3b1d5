// SPDX-License-Identifier: Apache-2.0
//
// The CUDA device: what can be said without a GPU, and, where there is one, every kernel against the fold that defines
// it.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <tutti/plugin/device.h>
#include <tutti/plugin/entry.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <tutti/sdk/arithmetic.hpp>
#include <utility>
#include <vector>

namespace {

std::string last_error;

class Cuda : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    static tutti_host host{};
    host.struct_size = sizeof host;
    host.get_config = [](void*, const char* key) -> const char* { return std::getenv(key); };
    host.set_error = [](void*, tutti_status, const char* text) { last_error = text; };
    void* library = dlopen(TUTTI_CUDA_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    const auto* entry = static_cast<const tutti_plugin_entry_table*>(dlsym(library, TUTTI_PLUGIN_ENTRY_SYMBOL));
    ASSERT_NE(entry, nullptr);
    ASSERT_EQ(entry->init(&host), TUTTI_OK);
    device = static_cast<const tutti_device*>(entry->get_interface(TUTTI_DEVICE_ID, 0));
    executor = static_cast<const tutti_executor*>(entry->get_interface(TUTTI_EXECUTOR_ID, 0));
    tutti_device_caps caps{};
    caps.struct_size = sizeof caps;
    there = device->query(nullptr, &caps);
    reason = last_error;
  }
  static const tutti_device* device;
  static const tutti_executor* executor;
  static tutti_status there;
  static std::string reason;
};
const tutti_device* Cuda::device = nullptr;
const tutti_executor* Cuda::executor = nullptr;
tutti_status Cuda::there = TUTTI_OK;
std::string Cuda::reason;

TEST_F(Cuda, SaysWhyThereIsNone) {
  if (there == TUTTI_OK) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(there, TUTTI_NOT_SUPPORTED) << reason;
  EXPECT_NE(reason.find("cuda"), std::string::npos) << reason;
}

TEST_F(Cuda, RefusesWhatCannotBeACommand) {
  const auto refused = [](tutti_command command, const char* words) {
    last_error.clear();
    EXPECT_LT(executor->enqueue(nullptr, nullptr, &command, 1), 0);
    EXPECT_NE(last_error.find(words), std::string::npos) << last_error;
  };
  tutti_command command{};
  refused(command, "unknown command 0");
  command.kind = TUTTI_COMMAND_COPY;
  refused(command, "0 sources");
  command.kind = TUTTI_COMMAND_REDUCE;
  command.sources = 2;
  command.dtype = 99;
  refused(command, "data type 99");
  command.dtype = TUTTI_FLOAT32;
  command.op = TUTTI_AVG;
  refused(command, "operator 5");
  command.op = TUTTI_SUM;
  command.sources = 100000;
  refused(command, "100000 sources");
  command.kind = TUTTI_COMMAND_WAIT;
  refused(command, "word");
  command.kind = TUTTI_COMMAND_MARK;
  refused(command, "mark is NULL");
}

// Device memory with what is put in and taken out through mapped host memory.
class Gpu : public Cuda {
 protected:
  void SetUp() override {
    if (there != TUTTI_OK) GTEST_SKIP() << "no GPU: " << reason;
    ASSERT_EQ(executor->prepare(nullptr, 0), TUTTI_OK) << last_error;
    ASSERT_EQ(executor->create_stream(nullptr, 0, &stream_), TUTTI_OK) << last_error;
    ASSERT_EQ(executor->create_mark(nullptr, 0, &mark_), TUTTI_OK) << last_error;
  }
  void TearDown() override {
    if (there != TUTTI_OK) return;
    executor->destroy_mark(nullptr, mark_);
    executor->destroy_stream(nullptr, stream_);
  }
  void run(std::vector<tutti_command> commands) {
    tutti_command mark{};
    mark.kind = TUTTI_COMMAND_MARK;
    mark.mark = mark_;
    commands.push_back(mark);
    ASSERT_EQ(executor->enqueue(nullptr, stream_, commands.data(), static_cast<uint32_t>(commands.size())), TUTTI_OK)
        << last_error;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    tutti_status state = TUTTI_AGAIN;
    while ((state = executor->poll_mark(nullptr, mark_)) == TUTTI_AGAIN && std::chrono::steady_clock::now() < limit)
      std::this_thread::yield();
    ASSERT_EQ(state, TUTTI_OK) << last_error;
  }
  void* stream_ = nullptr;
  tutti_mark* mark_ = nullptr;
};

template <uint32_t Dtype, uint32_t Op>
void expect_fold(const std::vector<std::vector<unsigned char>>& sources, uint64_t count, uint64_t divisor,
                 const unsigned char* got) {
  using Element = typename tutti::sdk::ElementOf<Dtype>::type;
  using Stored = typename Element::Stored;
  for (uint64_t i = 0; i < count; ++i) {
    const Stored expected =
        tutti::sdk::fold<Element, Op>(static_cast<uint32_t>(sources.size()), divisor, [&](uint32_t k) {
          Stored value;
          std::memcpy(&value, sources[k].data() + i * sizeof value, sizeof value);
          return value;
        });
    ASSERT_EQ(std::memcmp(&expected, got + i * sizeof expected, sizeof expected), 0)
        << "type " << Dtype << " operator " << Op << " element " << i << " of " << count;
  }
}

TEST_F(Gpu, EveryKernelGivesTheFoldsBits) {
  constexpr uint64_t room = 1 << 16;
  constexpr uint32_t most = 20;
  std::vector<unsigned char*> mapped;
  const size_t bytes = (most + 2) * room;
  auto* host = static_cast<unsigned char*>(std::aligned_alloc(4096, bytes));
  void* seen = nullptr;
  ASSERT_EQ(device->map_host(nullptr, host, bytes, &seen), TUTTI_OK) << last_error;
  auto* base = static_cast<unsigned char*>(seen);
  uint64_t random = 1;
  for (size_t i = 0; i < (most * room); ++i)
    host[i] = static_cast<unsigned char>((random = random * 6364136223846793005u + 1442695040888963407u) >> 56);
  const auto check = [&]<uint32_t Dtype, uint32_t Op>() {
    using Stored = typename tutti::sdk::ElementOf<Dtype>::type::Stored;
    for (const uint32_t n : {1u, 2u, 3u, most})
      for (const uint64_t count : {uint64_t{1}, uint64_t{33}, uint64_t{4001}})
        for (const uint64_t shift : {uint64_t{0}, uint64_t{sizeof(Stored)}, uint64_t{1}})
          for (const uint64_t divisor : {uint64_t{0}, uint64_t{7}}) {
            std::vector<const void*> sources;
            std::vector<std::vector<unsigned char>> values;
            for (uint32_t k = 0; k < n; ++k) {
              const uint64_t at = k * room + (k == 0 ? shift : shift / 2);
              sources.push_back(base + at);
              values.emplace_back(host + at, host + at + count * sizeof(Stored));
            }
            tutti_command command{};
            command.kind = TUTTI_COMMAND_REDUCE;
            command.dtype = Dtype;
            command.op = Op;
            command.sources = n;
            command.src = sources.data();
            command.dst = base + most * room + shift;
            command.dst2 = base + (most + 1) * room;
            command.count = count;
            command.divisor = divisor;
            std::memset(host + most * room, 0xa5, 2 * room);
            run({command});
            if (HasFatalFailure()) return;
            expect_fold<Dtype, Op>(values, count, divisor, host + most * room + shift);
            expect_fold<Dtype, Op>(values, count, divisor, host + (most + 1) * room);
            ASSERT_EQ(host[most * room + shift + count * sizeof(Stored)], 0xa5) << "written past the end";
          }
  };
  [&]<uint32_t... I>(std::integer_sequence<uint32_t, I...>) {
    (check.template operator()<TUTTI_INT8 + I / 4, TUTTI_SUM + I % 4>(), ...);
  }(std::make_integer_sequence<uint32_t, 12 * 4>());
  EXPECT_EQ(device->unmap_host(nullptr, host), TUTTI_OK);
  std::free(host);
}

TEST_F(Gpu, ClassifiesItsMemory) {
  void* ours = nullptr;
  ASSERT_EQ(device->allocate(nullptr, 0, 1000, &ours), TUTTI_OK) << last_error;
  tutti_pointer pointer{};
  pointer.struct_size = sizeof pointer;
  ASSERT_EQ(device->classify(nullptr, static_cast<char*>(ours) + 999, &pointer), TUTTI_OK) << last_error;
  EXPECT_EQ(pointer.kind, uint32_t{TUTTI_MEMORY_CUDA});
  EXPECT_EQ(pointer.base, ours);
  int local = 0;
  ASSERT_EQ(device->classify(nullptr, &local, &pointer), TUTTI_OK) << last_error;
  EXPECT_EQ(pointer.kind, uint32_t{TUTTI_MEMORY_HOST});
  EXPECT_EQ(device->release(nullptr, ours), TUTTI_OK);
}

}  // namespace
