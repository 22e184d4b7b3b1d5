// SPDX-License-Identifier: Apache-2.0
//
// The CUDA device: what can be said without a GPU, and, where there is one, every kernel against the fold that defines
// it. TUTTI_CUDA_PLUGIN names the plugin where it is not where it was built; TUTTI_CUDA_FEW leaves most sizes out.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <tutti/plugin/device.h>
#include <tutti/plugin/entry.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <tutti/sdk/arithmetic.hpp>
#include <utility>
#include <vector>

#include "../src/import_cache.hpp"
#include "../src/mapped_host.hpp"

namespace {

std::string last_error;

class Cuda : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    static tutti_host host{};
    host.struct_size = sizeof host;
    host.get_config = [](void*, const char* key) -> const char* { return std::getenv(key); };
    host.set_error = [](void*, tutti_status, const char* text) { last_error = text; };
    const char* elsewhere = std::getenv("TUTTI_CUDA_PLUGIN");
    void* library = dlopen(elsewhere ? elsewhere : TUTTI_CUDA_PLUGIN, RTLD_NOW | RTLD_LOCAL);
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
  refused(command, "flag");
  command.kind = TUTTI_COMMAND_RECORD;
  refused(command, "event is NULL");
}

TEST_F(Cuda, RefusesWhatCannotBePartOfALaunch) {
  const auto refused = [](const std::vector<tutti_command>& list, const char* words) {
    last_error.clear();
    EXPECT_EQ(executor->enqueue_fused(nullptr, nullptr, list.data(), static_cast<uint32_t>(list.size())),
              TUTTI_NOT_SUPPORTED);
    EXPECT_NE(last_error.find(words), std::string::npos) << last_error;
  };
  uint32_t at = 0;
  tutti_command event{}, flag{}, large{};
  event.kind = TUTTI_COMMAND_RECORD;
  event.event = reinterpret_cast<tutti_event*>(&at);
  refused({event}, "command 5 cannot be part of one launch");
  flag.kind = TUTTI_COMMAND_WAIT;
  flag.flag = &at;
  refused(std::vector<tutti_command>(251, flag), "more than 500 entries");
  const void* source = &at;
  large.kind = TUTTI_COMMAND_COPY;
  large.sources = 1;
  large.src = &source;
  large.count = uint64_t{1} << 32;
  refused({large}, "4294967296 elements");
}

TEST_F(Cuda, RefusesWhatCannotBeAnExport) {
  tutti_memory_export memory{};
  void* base = nullptr;
  last_error.clear();
  EXPECT_EQ(device->import_memory(nullptr, 0, &memory, -1, &base), TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(last_error.find("form 0"), std::string::npos) << last_error;
  memory.form = 1;
  memory.offset = memory.bytes = 4096;
  EXPECT_EQ(device->import_memory(nullptr, 0, &memory, -1, &base), TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(last_error.find("offset 4096 of 4096"), std::string::npos) << last_error;
  memory.offset = 0;
  EXPECT_EQ(device->import_memory(nullptr, 0, &memory, 0, &base), TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(last_error.find("form 1 with a descriptor"), std::string::npos) << last_error;
  memory.form = 2;
  EXPECT_EQ(device->import_memory(nullptr, 0, &memory, -1, &base), TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(last_error.find("form 2 without a descriptor"), std::string::npos) << last_error;
  memory.form = 1;
  const tutti::cuda::Process self = tutti::cuda::this_process();
  EXPECT_GT(self.name_space, 0u);
  EXPECT_GT(self.started, 0u);
  std::memcpy(memory.data + 64, &self, sizeof self);
  EXPECT_EQ(device->import_memory(nullptr, 0, &memory, -1, &base), TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(last_error.find("use the address itself"), std::string::npos) << last_error;
  EXPECT_EQ(device->close_import(nullptr, &memory), TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(last_error.find("not the base of an import"), std::string::npos) << last_error;
  int32_t fd = -1;
  uint64_t offset = 0;
  EXPECT_EQ(device->export_dmabuf(nullptr, &memory, sizeof memory, &fd, &offset),
            there == TUTTI_OK ? TUTTI_INVALID_ARGUMENT : TUTTI_NOT_SUPPORTED);
  EXPECT_EQ(fd, -1);
}

// The mapping calls are recorded here: this is the bookkeeping alone.
TEST(ImportCache, MapsOnceAndUnmapsWithTheLast) {
  tutti::cuda::ImportCache cache;
  std::vector<std::string> calls;
  int places[4];
  int next = 0;
  const auto open = [&] {
    calls.emplace_back("open");
    return static_cast<void*>(&places[next++]);
  };
  const auto close = [&](const tutti::cuda::ImportCache::Key&, void* base) {
    calls.push_back("close " + std::to_string(static_cast<int*>(base) - places));
  };
  const tutti::cuda::ImportCache::Key first{0, 1, {1, 2, 3}, 7, 64, {}}, other_device{1, 1, {1, 2, 3}, 7, 64, {}},
      other_buffer{0, 1, {1, 2, 3}, 8, 64, {}}, other_process{0, 1, {1, 2, 4}, 7, 64, {}};
  EXPECT_EQ(cache.take(first, open), &places[0]);
  EXPECT_EQ(cache.take(first, open), &places[0]);
  EXPECT_EQ(cache.take(other_device, open), &places[1]);
  EXPECT_EQ(cache.take(other_buffer, open), &places[2]);
  EXPECT_EQ(cache.take(other_process, open), &places[3]) << "the number of a process came again";
  EXPECT_EQ(calls.size(), 4u);
  cache.give_back(&places[0], close);
  EXPECT_EQ(calls.size(), 4u) << "one import is still open";
  cache.give_back(&places[0], close);
  EXPECT_EQ(calls.back(), "close 0");
  EXPECT_THROW(cache.give_back(&places[0], close), tutti::sdk::Error);
  EXPECT_THROW(cache.take(first, []() -> void* { throw std::bad_alloc(); }), std::bad_alloc);
  EXPECT_THROW(cache.give_back(&places[0], close), tutti::sdk::Error) << "what could not be mapped was kept";
  cache.give_back(&places[1], close);
  cache.give_back(&places[2], close);
  cache.give_back(&places[3], close);
  EXPECT_EQ(calls.size(), 8u);
}

// A driver that waits while it maps or unmaps holds up nobody who wants something else, and who wants the same waits.
TEST(ImportCache, MappingHoldsUpNothingElse) {
  tutti::cuda::ImportCache cache;
  using Key = tutti::cuda::ImportCache::Key;
  const Key one{0, 1, {1, 2, 3}, 7, 64, {}}, other{0, 1, {1, 2, 3}, 8, 64, {}};
  int places[3];
  std::atomic<int> opened{0};
  std::thread same;
  EXPECT_EQ(cache.take(one,
                       [&]() -> void* {
                         EXPECT_EQ(cache.take(other, [&] { return static_cast<void*>(&places[1]); }), &places[1]);
                         same = std::thread([&] {
                           EXPECT_EQ(cache.take(one, [&] { return ++opened, static_cast<void*>(&places[2]); }),
                                     &places[0]);
                         });
                         return &places[0];
                       }),
            &places[0]);
  same.join();
  EXPECT_EQ(opened, 0) << "it was mapped twice";
  const auto nothing = [](const Key&, void*) {};
  cache.give_back(&places[0], nothing);
  cache.give_back(&places[0], [&](const Key&, void*) { cache.give_back(&places[1], nothing); });
  EXPECT_THROW(cache.give_back(&places[1], nothing), tutti::sdk::Error);
  EXPECT_EQ(cache.take(one, [&] { return static_cast<void*>(&places[2]); }), &places[2]);
  EXPECT_THROW(cache.give_back(&places[2], [](const Key&, void*) { throw std::bad_alloc(); }), std::bad_alloc);
  cache.give_back(&places[2], nothing);
}

TEST(MappedHost, KnowsWhatStreamsSee) {
  tutti::cuda::MappedHost mapped;
  const std::vector<char> place(600);
  const char *host = place.data(), *seen = host + 300;
  EXPECT_FALSE(mapped.holds(seen));
  mapped.add(host + 100, seen + 100, 50);
  mapped.add(host + 200, seen + 200, 50);
  for (const size_t inside : {100u, 149u, 200u, 249u}) EXPECT_TRUE(mapped.holds(seen + inside)) << inside;
  for (const size_t outside : {99u, 150u, 199u, 250u}) EXPECT_FALSE(mapped.holds(seen + outside)) << outside;
  EXPECT_FALSE(mapped.holds(host + 100)) << "streams see it elsewhere";
  mapped.remove(host + 200);
  EXPECT_FALSE(mapped.holds(seen + 200));
  EXPECT_TRUE(mapped.holds(seen + 100)) << "another range was removed";
}

// Device memory with what is put in and taken out through mapped host memory.
class Gpu : public Cuda {
 protected:
  void SetUp() override {
    if (there != TUTTI_OK) GTEST_SKIP() << "no GPU: " << reason;
    ASSERT_EQ(executor->prepare(nullptr, 0), TUTTI_OK) << last_error;
    ASSERT_EQ(executor->create_stream(nullptr, 0, &stream_), TUTTI_OK) << last_error;
    ASSERT_EQ(executor->create_event(nullptr, 0, &event_), TUTTI_OK) << last_error;
  }
  void TearDown() override {
    if (there != TUTTI_OK) return;
    executor->destroy_event(nullptr, event_);
    executor->destroy_stream(nullptr, stream_);
  }
  // In one launch.
  void run_fused(const std::vector<tutti_command>& commands) {
    ASSERT_EQ(executor->enqueue_fused(nullptr, stream_, commands.data(), static_cast<uint32_t>(commands.size())),
              TUTTI_OK)
        << last_error;
    run({});
  }
  void run(std::vector<tutti_command> commands) {
    tutti_command event{};
    event.kind = TUTTI_COMMAND_RECORD;
    event.event = event_;
    commands.push_back(event);
    ASSERT_EQ(executor->enqueue(nullptr, stream_, commands.data(), static_cast<uint32_t>(commands.size())), TUTTI_OK)
        << last_error;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    tutti_status state = TUTTI_AGAIN;
    while ((state = executor->query_event(nullptr, event_)) == TUTTI_AGAIN && std::chrono::steady_clock::now() < limit)
      std::this_thread::yield();
    ASSERT_EQ(state, TUTTI_OK) << last_error;
  }
  static tutti_command copy(void* to, const void* const* from, uint64_t bytes) {
    tutti_command command{};
    command.kind = TUTTI_COMMAND_COPY;
    command.dst = to;
    command.src = from;
    command.sources = 1;
    command.count = bytes;
    return command;
  }
  static tutti_command flag(uint32_t kind, uint32_t* at, uint32_t value) {
    tutti_command command{};
    command.kind = kind;
    command.flag = at;
    command.value = value;
    return command;
  }
  void* stream_ = nullptr;
  tutti_event* event_ = nullptr;
};

// Host memory that the device sees.
struct Mapped {
  Mapped(const tutti_device* of, uint64_t bytes)
      : device(of), host(static_cast<unsigned char*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096))) {
    void* address = nullptr;
    EXPECT_EQ(device->map_host(nullptr, host, (bytes + 4095) / 4096 * 4096, &address), TUTTI_OK) << last_error;
    seen = static_cast<unsigned char*>(address);
  }
  ~Mapped() {
    EXPECT_EQ(device->unmap_host(nullptr, host), TUTTI_OK) << last_error;
    std::free(host);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  const tutti_device* device;
  unsigned char* host;
  unsigned char* seen = nullptr;
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
  const Mapped mapped(device, (most + 2) * room);
  unsigned char *host = mapped.host, *base = mapped.seen;
  const bool few = std::getenv("TUTTI_CUDA_FEW") != nullptr;
  uint64_t random = 1;
  for (size_t i = 0; i < (most * room); ++i)
    host[i] = static_cast<unsigned char>((random = random * 6364136223846793005u + 1442695040888963407u) >> 56);
  constexpr uint32_t first_dtype = tutti::sdk::first_dtype, first_fold = tutti::sdk::first_fold;
  constexpr uint32_t folds = tutti::sdk::last_fold - first_fold + 1;
  const auto check = [&]<uint32_t Dtype, uint32_t Op>() {
    using Stored = typename tutti::sdk::ElementOf<Dtype>::type::Stored;
    for (const uint32_t n : {1u, 2u, 3u, most})
      for (const uint64_t count :
           few ? std::vector<uint64_t>{33} : std::vector<uint64_t>{uint64_t{1}, uint64_t{33}, uint64_t{4001}})
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
            command.count = count;
            command.divisor = divisor;
            tutti_command again = command;
            again.dst = base + (most + 1) * room;
            for (const bool fused : {false, true}) {
              std::memset(host + most * room, 0xa5, 2 * room);
              fused ? run_fused({command, again}) : run({command, again});
              if (HasFatalFailure()) return;
              expect_fold<Dtype, Op>(values, count, divisor, host + most * room + shift);
              expect_fold<Dtype, Op>(values, count, divisor, host + (most + 1) * room);
              ASSERT_EQ(host[most * room + shift + count * sizeof(Stored)], 0xa5) << "written past the end";
            }
          }
  };
  [&]<uint32_t... I>(std::integer_sequence<uint32_t, I...>) {
    const auto check_one = [&]<uint32_t Dtype, uint32_t Op>() {
      if constexpr (tutti::sdk::has_fold(Dtype, Op)) check.template operator()<Dtype, Op>();
    };
    (check_one.template operator()<first_dtype + I / folds, first_fold + I % folds>(), ...);
  }
  (std::make_integer_sequence<uint32_t, (tutti::sdk::last_dtype - first_dtype + 1) * folds>());
}

TEST_F(Gpu, ADestinationMayBeASource) {
  constexpr uint64_t count = 5000;
  const Mapped mapped(device, 2 * count * sizeof(int32_t));
  auto* values = reinterpret_cast<int32_t*>(mapped.host);
  for (uint64_t i = 0; i < 2 * count; ++i) values[i] = static_cast<int32_t>(i);
  const void* sources[] = {mapped.seen, mapped.seen + count * sizeof(int32_t)};
  tutti_command command{};
  command.kind = TUTTI_COMMAND_REDUCE;
  command.dtype = TUTTI_INT32;
  command.op = TUTTI_SUM;
  command.sources = 2;
  command.src = sources;
  command.dst = mapped.seen;
  command.count = count;
  run({command});
  for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(values[i], static_cast<int32_t>(2 * i + count)) << i;
}

TEST_F(Gpu, CopiesAtAnyAlignment) {
  constexpr uint64_t room = 8192;
  const Mapped mapped(device, 3 * room);
  for (uint64_t i = 0; i < room; ++i) mapped.host[i] = static_cast<unsigned char>(i * 7);
  for (const uint64_t count : {uint64_t{1}, uint64_t{15}, uint64_t{4097}})
    for (const uint64_t from : {0, 3})
      for (const uint64_t to : {0, 3, 8}) {
        for (const bool fused : {false, true}) {
          std::memset(mapped.host + room, 0xa5, 2 * room);
          const void* source = mapped.seen + from;
          const std::vector<tutti_command> both{copy(mapped.seen + room + to, &source, count),
                                                copy(mapped.seen + 2 * room + 3, &source, count)};
          fused ? run_fused(both) : run(both);
          EXPECT_EQ(std::memcmp(mapped.host + from, mapped.host + room + to, count), 0) << count << from << to;
          EXPECT_EQ(std::memcmp(mapped.host + from, mapped.host + 2 * room + 3, count), 0) << count << from << to;
          EXPECT_EQ(mapped.host[room + to + count], 0xa5);
          EXPECT_EQ(mapped.host[2 * room + 3 + count], 0xa5);
        }
      }
}

// One launch, in the middle of which the host sets flags, sees results and sets the next.
TEST_F(Gpu, ALaunchWaitsByItself) {
  constexpr uint32_t bytes = 20000;
  const Mapped flags(device, 4096), data(device, 3 * bytes);
  void* ours = nullptr;
  ASSERT_EQ(device->allocate(nullptr, 0, bytes, &ours), TUTTI_OK) << last_error;
  std::memset(flags.host, 0, 4096);
  auto *host = reinterpret_cast<uint32_t*>(flags.host), *seen = reinterpret_cast<uint32_t*>(flags.seen);
  const void *source = data.seen, *middle = ours;
  const void* both[] = {data.seen + bytes, ours};
  tutti_command sum = copy(data.seen + 2 * bytes, both, bytes);
  sum.kind = TUTTI_COMMAND_REDUCE;
  sum.dtype = TUTTI_UINT8;
  sum.op = TUTTI_SUM;
  sum.sources = 2;
  const std::vector<tutti_command> list{flag(TUTTI_COMMAND_WAIT, seen, 1),
                                        flag(TUTTI_COMMAND_WRITE, seen, 0),
                                        copy(ours, &source, bytes),
                                        copy(data.seen + bytes, &middle, bytes),
                                        flag(TUTTI_COMMAND_WRITE, seen + 16, 1),
                                        flag(TUTTI_COMMAND_WAIT, seen + 32, 1),
                                        flag(TUTTI_COMMAND_WRITE, seen + 32, 0),
                                        sum,
                                        flag(TUTTI_COMMAND_WRITE, seen + 48, 1)};
  const auto until = [&](uint32_t at) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::atomic_ref(host[at]).load(std::memory_order_acquire) != 1 && std::chrono::steady_clock::now() < limit)
      std::this_thread::yield();
    ASSERT_EQ(std::atomic_ref(host[at]).exchange(0), 1u) << "the flag at " << at << " was not set";
  };
  for (uint32_t round = 0; round < 50; ++round) {
    ASSERT_EQ(executor->enqueue_fused(nullptr, stream_, list.data(), static_cast<uint32_t>(list.size())), TUTTI_OK)
        << last_error;
    std::memset(data.host, static_cast<int>(round), bytes);
    std::atomic_ref(host[0]).store(1, std::memory_order_release);
    until(16);
    ASSERT_EQ(data.host[bytes], round);
    ASSERT_EQ(data.host[2 * bytes - 1], round);
    EXPECT_EQ(std::atomic_ref(host[48]).load(), 0u) << "the second flag was not waited for";
    std::memset(data.host + bytes, 3, bytes);
    std::atomic_ref(host[32]).store(1, std::memory_order_release);
    until(48);
    for (uint32_t i = 0; i < bytes; ++i) ASSERT_EQ(data.host[2 * bytes + i], round + 3) << i;
  }
  run({});
  EXPECT_EQ(host[0] + host[32], 0u) << "flags are reset";
  EXPECT_EQ(device->release(nullptr, ours), TUTTI_OK);
}

TEST_F(Gpu, SaysWhichDeviceItIs) {
  tutti_device_caps caps{};
  caps.struct_size = sizeof caps;
  ASSERT_EQ(device->query(nullptr, &caps), TUTTI_OK);
  std::vector<std::vector<uint8_t>> all;
  for (uint32_t k = 0; k < caps.devices; ++k) {
    std::vector<uint8_t> id(16);
    ASSERT_EQ(device->identify(nullptr, k, id.data()), TUTTI_OK) << last_error;
    EXPECT_NE(id, std::vector<uint8_t>(16));
    EXPECT_EQ(std::count(all.begin(), all.end(), id), 0) << "device " << k << " is one before it";
    all.push_back(id);
  }
  uint8_t none[16];
  EXPECT_LT(device->identify(nullptr, caps.devices, none), 0);
}

// More elements than an int counts, and the far end is right.
TEST_F(Gpu, MoreThanTwoToThe31Elements) {
  constexpr uint64_t count = (uint64_t{1} << 31) + 17, block = 1 << 20;
  void *from = nullptr, *to = nullptr;
  if (device->allocate(nullptr, 0, count, &from) != TUTTI_OK || device->allocate(nullptr, 0, count, &to) != TUTTI_OK) {
    if (from) device->release(nullptr, from);
    GTEST_SKIP() << last_error;
  }
  const Mapped mapped(device, 2 * block);
  for (uint64_t i = 0; i < block; ++i) mapped.host[i] = static_cast<unsigned char>(i % 61);
  auto *source = static_cast<unsigned char*>(from), *target = static_cast<unsigned char*>(to);
  const void* pattern = mapped.seen;
  std::vector<tutti_command> commands;
  for (uint64_t at = 0; at < count; at += block)
    commands.push_back(copy(source + at, &pattern, std::min(block, count - at)));
  run(commands);
  const void* sources[] = {source, source};
  tutti_command command{};
  command.kind = TUTTI_COMMAND_REDUCE;
  command.dtype = TUTTI_UINT8;
  command.op = TUTTI_SUM;
  command.sources = 2;
  command.src = sources;
  command.dst = target;
  command.count = count;
  run({command});
  for (const uint64_t at : {uint64_t{0}, (uint64_t{1} << 31) - 4096, count - 4096}) {
    const void* there_now = target + at;
    run({copy(mapped.seen + block, &there_now, 4096)});
    for (uint64_t i = 0; i < 4096; ++i)
      ASSERT_EQ(mapped.host[block + i], 2 * ((at + i) % block % 61)) << "at " << at + i;
  }
  device->release(nullptr, from);
  device->release(nullptr, to);
}

// Streams and the host order each other by flags, many in a row.
TEST_F(Gpu, FlagsOrderTheStreamAndTheHost) {
  const Mapped mapped(device, 4096);
  auto *host = reinterpret_cast<uint32_t*>(mapped.host), *seen = reinterpret_cast<uint32_t*>(mapped.seen);
  std::memset(mapped.host, 0, 4096);
  std::vector<tutti_command> commands;
  for (uint32_t i = 1; i <= 600; ++i) commands.push_back(flag(TUTTI_COMMAND_WRITE, seen, i));
  commands.push_back(flag(TUTTI_COMMAND_WAIT, seen + 16, 1));
  commands.push_back(flag(TUTTI_COMMAND_WRITE, seen + 32, 1));
  tutti_command event{};
  event.kind = TUTTI_COMMAND_RECORD;
  event.event = event_;
  commands.push_back(event);
  ASSERT_EQ(executor->enqueue(nullptr, stream_, commands.data(), static_cast<uint32_t>(commands.size())), TUTTI_OK)
      << last_error;
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(std::atomic_ref(host[0]).load(), 600u);
  EXPECT_EQ(std::atomic_ref(host[32]).load(), 0u);
  EXPECT_EQ(executor->query_event(nullptr, event_), TUTTI_AGAIN);
  std::atomic_ref(host[16]).store(1);
  run({});
  EXPECT_EQ(std::atomic_ref(host[32]).load(), 1u);
}

// CUDA's own copy from host memory to host memory would wait here for the flag that is set only afterwards.
TEST_F(Gpu, NoCopyWaitsForTheStream) {
  constexpr uint64_t bytes = 300'000;
  const Mapped flags(device, 4096), from(device, bytes), to(device, bytes);
  std::memset(flags.host, 0, 4096);
  std::memset(from.host, 1, bytes);
  std::memset(to.host, 0, bytes);
  void* between = nullptr;
  ASSERT_EQ(device->allocate(nullptr, 0, bytes, &between), TUTTI_OK) << last_error;
  auto* gate = reinterpret_cast<uint32_t*>(flags.host);
  // The stream continues after a while in any case.
  std::atomic<bool> released = false;
  std::thread releasing([&] {
    for (int i = 0; i < 200 && !released; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::atomic_ref(*gate).store(1);
  });
  const void *first = from.seen, *second = between;
  const tutti_command commands[] = {flag(TUTTI_COMMAND_WAIT, reinterpret_cast<uint32_t*>(flags.seen), 1),
                                    copy(to.seen, &first, bytes), copy(between, &first, bytes),
                                    copy(to.seen, &second, bytes)};
  const tutti_status status = executor->enqueue(nullptr, stream_, commands, 4);
  EXPECT_EQ(std::atomic_ref(*gate).load(), 0u) << "enqueue has waited for the stream";
  EXPECT_EQ(std::atomic_ref(to.host[bytes - 1]).load(), 0);
  released = true;
  releasing.join();
  ASSERT_EQ(status, TUTTI_OK) << last_error;
  run({});
  EXPECT_EQ(std::memcmp(from.host, to.host, bytes), 0);
  EXPECT_EQ(device->release(nullptr, between), TUTTI_OK) << last_error;
}

// A thread that never called CUDA has no context of its own.
TEST_F(Gpu, AnyThreadMayCall) {
  const Mapped mapped(device, 4096);
  void* ours = nullptr;
  ASSERT_EQ(device->allocate(nullptr, 0, 1000, &ours), TUTTI_OK) << last_error;
  std::thread([&] {
    tutti_pointer pointer{};
    pointer.struct_size = sizeof pointer;
    EXPECT_EQ(device->classify(nullptr, ours, &pointer), TUTTI_OK) << last_error;
    EXPECT_EQ(pointer.kind, uint32_t{TUTTI_MEMORY_CUDA}) << "taken for host memory";
  }).join();
  std::thread([&] {
    auto* at = reinterpret_cast<uint32_t*>(mapped.seen);
    run({flag(TUTTI_COMMAND_WRITE, at, 7), flag(TUTTI_COMMAND_WAIT, at, 7)});
  }).join();
  std::thread([&] { EXPECT_EQ(executor->query_event(nullptr, event_), TUTTI_OK) << last_error; }).join();
  std::thread([&] { EXPECT_EQ(device->release(nullptr, ours), TUTTI_OK) << last_error; }).join();
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
