// SPDX-License-Identifier: Apache-2.0
//
// The simulated device keeps the promises of device/1 and executor/1 that the core relies on.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tutti/plugin/device.h>
#include <tutti/plugin/entry.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_simulated_device;

namespace {

std::string last_error;

class SimulatedDevice : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("TUTTI_SIMULATED_DEVICES", "3", 0);  // each has one queue
    static tutti_host host{};
    host.struct_size = sizeof host;
    host.get_config = [](void*, const char* key) -> const char* { return std::getenv(key); };
    host.memory_kind = [](void*, const char* name) {
      return std::string_view(name) == "simulated" ? uint32_t{TUTTI_MEMORY_SIMULATED} : UINT32_MAX;
    };
    host.set_error = [](void*, tutti_status, const char* text) { last_error = text; };
    const auto& entry = tutti_plugin_entry_simulated_device;
    ASSERT_EQ(entry.init(&host), TUTTI_OK);
    device = static_cast<const tutti_device*>(entry.get_interface(TUTTI_DEVICE_ID, 0));
    executor = static_cast<const tutti_executor*>(entry.get_interface(TUTTI_EXECUTOR_ID, 0));
    ASSERT_TRUE(device && executor);
  }
  template <typename T>
  T* memory(uint64_t n, uint32_t of = 0) {
    void* address = nullptr;
    EXPECT_EQ(device->allocate(nullptr, of, n * sizeof(T), &address), TUTTI_OK) << last_error;
    return static_cast<T*>(address);
  }
  void* stream(uint32_t of = 0) {
    void* made = nullptr;
    EXPECT_EQ(executor->create_stream(nullptr, of, &made), TUTTI_OK) << last_error;
    return made;
  }
  tutti_event* event() {
    tutti_event* made = nullptr;
    EXPECT_EQ(executor->create_event(nullptr, 0, &made), TUTTI_OK);
    events_.push_back(made);
    return made;
  }
  void TearDown() override {
    for (tutti_event* made : events_) executor->destroy_event(nullptr, made);
  }
  tutti_status run(void* on, std::vector<tutti_command> commands) {
    return executor->enqueue(nullptr, on, commands.data(), static_cast<uint32_t>(commands.size()));
  }
  void finish(tutti_event* m) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (executor->query_event(nullptr, m) == TUTTI_AGAIN && std::chrono::steady_clock::now() < limit)
      std::this_thread::yield();
    EXPECT_EQ(executor->query_event(nullptr, m), TUTTI_OK);
  }
  static tutti_command command(uint32_t kind, tutti_event* m = nullptr) {
    tutti_command c{};
    c.kind = kind;
    c.event = m;
    return c;
  }
  static tutti_command flag(uint32_t kind, uint32_t* w, uint32_t value) {
    tutti_command c = command(kind);
    c.flag = w;
    c.value = value;
    return c;
  }
  static const tutti_device* device;
  static const tutti_executor* executor;

 private:
  std::vector<tutti_event*> events_;
};
const tutti_device* SimulatedDevice::device = nullptr;
const tutti_executor* SimulatedDevice::executor = nullptr;

TEST_F(SimulatedDevice, TellsItsMemoryFromTheHosts) {
  auto* ours = memory<float>(100, 1);
  tutti_pointer p{};
  p.struct_size = sizeof p;
  ASSERT_EQ(device->classify(nullptr, ours + 99, &p), TUTTI_OK);
  EXPECT_EQ(p.kind, uint32_t{TUTTI_MEMORY_SIMULATED});
  EXPECT_EQ(p.device, 1u);
  EXPECT_EQ(p.base, ours);
  int local = 0;
  ASSERT_EQ(device->classify(nullptr, &local, &p), TUTTI_OK);
  EXPECT_EQ(p.kind, uint32_t{TUTTI_MEMORY_HOST});
  ASSERT_EQ(device->release(nullptr, ours), TUTTI_OK);
  EXPECT_EQ(device->classify(nullptr, ours, &p), TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(last_error.find("released"), std::string::npos) << last_error;
}

TEST_F(SimulatedDevice, ReducesInOrder) {
  auto *a = memory<int32_t>(1000), *b = memory<int32_t>(1000), *c = memory<int32_t>(1000), *d = memory<int32_t>(1000);
  for (int i = 0; i < 1000; ++i) a[i] = i, b[i] = -3 * i;
  void* s = stream();
  tutti_event* m = event();
  const void* sources[] = {a, b};
  tutti_command reduce = command(TUTTI_COMMAND_REDUCE);
  reduce.dtype = TUTTI_INT32;
  reduce.op = TUTTI_SUM;
  reduce.sources = 2;
  reduce.src = sources;
  reduce.dst = c;
  reduce.count = 1000;
  reduce.divisor = 4;
  tutti_command again = reduce;
  again.dst = d;
  ASSERT_EQ(run(s, {reduce, again, command(TUTTI_COMMAND_RECORD, m)}), TUTTI_OK) << last_error;
  finish(m);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(c[i], -2 * i / 4);
    ASSERT_EQ(d[i], -2 * i / 4);
  }
  reduce.op = TUTTI_AVG;
  EXPECT_EQ(run(s, {reduce}), TUTTI_NOT_SUPPORTED);
  EXPECT_EQ(executor->destroy_stream(nullptr, s), TUTTI_OK);
}

// 1 + 2^-24 lies halfway between two floats, and the least number decides: a fold loses it.
TEST_F(SimulatedDevice, SumsExactly) {
  const std::vector<float> in[] = {{1, 0x1p127f, 1}, {0x1p-24f, 0x1p127f, 2}, {0x1p-149f, -0x1p127f, 4}};
  std::vector<const void*> sources;
  for (const auto& values : in) {
    float* source = memory<float>(3);
    std::memcpy(source, values.data(), 3 * sizeof(float));
    sources.push_back(source);
  }
  void* s = stream();
  tutti_event* m = event();
  auto *sum = memory<float>(3), *average = memory<float>(3);
  tutti_command reduce = command(TUTTI_COMMAND_REDUCE);
  reduce.dtype = TUTTI_FLOAT32;
  reduce.op = TUTTI_SUM;
  reduce.sources = 3;
  reduce.src = sources.data();
  reduce.dst = sum;
  reduce.count = 3;
  reduce.flags = TUTTI_COMMAND_EXACT;
  tutti_command divided = reduce;
  divided.dst = average;
  divided.divisor = 3;
  ASSERT_EQ(run(s, {reduce, divided, command(TUTTI_COMMAND_RECORD, m)}), TUTTI_OK) << last_error;
  finish(m);
  EXPECT_EQ(sum[0], 1 + 0x1p-23f);
  EXPECT_EQ(sum[1], 0x1p127f);
  EXPECT_EQ(average[2], 7.0f / 3);
  for (const auto& [dtype, op] : {std::pair{TUTTI_FLOAT32, TUTTI_MAX}, {TUTTI_INT32, TUTTI_SUM}}) {
    reduce.dtype = dtype, reduce.op = op;
    EXPECT_EQ(run(s, {reduce}), TUTTI_NOT_SUPPORTED);
    EXPECT_NE(last_error.find("no exact results of operator"), std::string::npos) << last_error;
  }
  EXPECT_EQ(executor->destroy_stream(nullptr, s), TUTTI_OK);
}

// A list in one launch is one entry of the queue, whatever it does; the counter tells.
TEST_F(SimulatedDevice, CountsLaunches) {
  const auto* count = static_cast<const std::atomic<uint64_t>*>(
      tutti_plugin_entry_simulated_device.get_interface("tutti.simulated_launches/1", 0));
  ASSERT_NE(count, nullptr);
  auto *a = memory<int32_t>(10), *b = memory<int32_t>(10);
  auto* flags = static_cast<uint32_t*>(std::aligned_alloc(4096, 4096));
  std::memset(flags, 0, 4096);
  void* seen = nullptr;
  ASSERT_EQ(device->map_host(nullptr, flags, 4096, &seen), TUTTI_OK);
  std::fill_n(a, 10, 7);
  void* s = stream();
  tutti_event* m = event();
  const void* source = a;
  tutti_command copy = command(TUTTI_COMMAND_COPY);
  copy.sources = 1;
  copy.src = &source;
  copy.dst = b;
  copy.count = 40;
  auto* flag_of = static_cast<uint32_t*>(seen);
  const std::vector<tutti_command> list{flag(TUTTI_COMMAND_WRITE, flag_of, 1), flag(TUTTI_COMMAND_WAIT, flag_of, 1),
                                        copy, copy, flag(TUTTI_COMMAND_WRITE, flag_of, 2)};
  const uint64_t before = *count;
  ASSERT_EQ(run(s, list), TUTTI_OK) << last_error;
  EXPECT_EQ(*count - before, 4u) << "two flags together, two copies, a flag";
  ASSERT_EQ(run(s, {command(TUTTI_COMMAND_RECORD, m)}), TUTTI_OK);
  finish(m);
  std::fill_n(b, 10, 0);
  ASSERT_EQ(executor->enqueue_fused(nullptr, s, list.data(), static_cast<uint32_t>(list.size())), TUTTI_OK)
      << last_error;
  EXPECT_EQ(*count - before, 5u);
  ASSERT_EQ(run(s, {command(TUTTI_COMMAND_RECORD, m)}), TUTTI_OK);
  finish(m);
  EXPECT_EQ(b[9], 7);
  EXPECT_EQ(flags[0], 2u);
  EXPECT_EQ(*count - before, 5u) << "events do not count";
  EXPECT_EQ(executor->destroy_stream(nullptr, s), TUTTI_OK);
  ASSERT_EQ(device->unmap_host(nullptr, flags), TUTTI_OK);
  std::free(flags);
}

TEST_F(SimulatedDevice, RefusesHostMemoryThatIsNotMapped) {
  std::vector<char> host(8192);
  auto* ours = memory<char>(8192);
  void* s = stream();
  const void* source[] = {host.data()};
  tutti_command copy = command(TUTTI_COMMAND_COPY);
  copy.sources = 1;
  copy.src = source;
  copy.dst = ours;
  copy.count = 8192;
  EXPECT_EQ(run(s, {copy}), TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(last_error.find("not mapped"), std::string::npos) << last_error;
  void* seen = nullptr;
  ASSERT_EQ(device->map_host(nullptr, host.data(), host.size(), &seen), TUTTI_OK);
  EXPECT_EQ(run(s, {copy}), TUTTI_OK) << last_error;
  EXPECT_EQ(executor->destroy_stream(nullptr, s), TUTTI_OK);
  EXPECT_EQ(device->unmap_host(nullptr, host.data()), TUTTI_OK);
}

TEST_F(SimulatedDevice, FlagsJoinAStreamAndTheHost) {
  alignas(64) static uint32_t flags[32];
  void* seen = nullptr;
  ASSERT_EQ(device->map_host(nullptr, flags, sizeof flags, &seen), TUTTI_OK);
  void* s = stream();
  tutti_event* m = event();
  ASSERT_EQ(run(s, {flag(TUTTI_COMMAND_WAIT, &flags[0], 1), flag(TUTTI_COMMAND_WRITE, &flags[16], 7),
                    command(TUTTI_COMMAND_RECORD, m)}),
            TUTTI_OK);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(executor->query_event(nullptr, m), TUTTI_AGAIN);
  EXPECT_EQ(std::atomic_ref(flags[16]).load(), 0u);
  std::atomic_ref(flags[0]).store(1);
  finish(m);
  EXPECT_EQ(std::atomic_ref(flags[16]).load(), 7u);
  EXPECT_EQ(executor->destroy_stream(nullptr, s), TUTTI_OK);
}

// A waiting command in a queue holds up everything behind it, as on a device with one queue.
TEST_F(SimulatedDevice, StreamsOfADeviceShareItsQueue) {
  alignas(64) static uint32_t flag_of_test = 0;
  void* seen = nullptr;
  ASSERT_EQ(device->map_host(nullptr, &flag_of_test, sizeof flag_of_test, &seen), TUTTI_OK);
  void *first = stream(), *second = stream();
  tutti_event* m = event();
  ASSERT_EQ(run(first, {flag(TUTTI_COMMAND_WAIT, &flag_of_test, 1)}), TUTTI_OK);
  ASSERT_EQ(run(second, {command(TUTTI_COMMAND_RECORD, m)}), TUTTI_OK);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(executor->query_event(nullptr, m), TUTTI_AGAIN);
  std::atomic_ref(flag_of_test).store(1);
  finish(m);
  EXPECT_EQ(executor->destroy_stream(nullptr, first), TUTTI_OK);
  EXPECT_EQ(executor->destroy_stream(nullptr, second), TUTTI_OK);
}

// An event is recorded by streams of several queues, which come to it in another order.
TEST_F(SimulatedDevice, AnEventStandsForItsNewestRecord) {
  alignas(64) static uint32_t flag_of_test = 0;
  void* seen = nullptr;
  ASSERT_EQ(device->map_host(nullptr, &flag_of_test, sizeof flag_of_test, &seen), TUTTI_OK);
  void *held = stream(0), *behind = stream(1), *other = stream(2);
  tutti_event *m = event(), *end = event();
  ASSERT_EQ(run(held, {flag(TUTTI_COMMAND_WAIT, &flag_of_test, 1), command(TUTTI_COMMAND_RECORD, m)}), TUTTI_OK);
  ASSERT_EQ(run(behind, {command(TUTTI_COMMAND_AFTER, m), command(TUTTI_COMMAND_RECORD, end)}), TUTTI_OK);
  ASSERT_EQ(run(other, {command(TUTTI_COMMAND_RECORD, m)}), TUTTI_OK);
  finish(m);
  EXPECT_EQ(executor->query_event(nullptr, end), TUTTI_AGAIN) << "it waits for the record before it";
  std::atomic_ref(flag_of_test).store(1);
  finish(end);
  for (void* s : {held, behind, other}) EXPECT_EQ(executor->destroy_stream(nullptr, s), TUTTI_OK);
  finish(m);
}

// A queue takes as many commands as it is deep beside the one that it carries out, which may take for ever.
TEST_F(SimulatedDevice, AWaitingCommandLeavesItsPlaceInTheQueue) {
  alignas(64) static uint32_t flag_of_test = 0;
  void* seen = nullptr;
  ASSERT_EQ(device->map_host(nullptr, &flag_of_test, sizeof flag_of_test, &seen), TUTTI_OK);
  constexpr size_t depth = 1024;  // TUTTI_SIMULATED_DEPTH
  void* s = stream();
  std::atomic<bool> taken{false};
  std::thread giving([&] {
    const std::vector<tutti_command> all(depth + 1, flag(TUTTI_COMMAND_WAIT, &flag_of_test, 1));
    EXPECT_EQ(run(s, all), TUTTI_OK) << last_error;
    taken = true;
  });
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!taken && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  EXPECT_TRUE(taken) << "the queue has room, and whoever waits for it was not told";
  std::atomic_ref(flag_of_test).store(1);
  giving.join();
  EXPECT_EQ(executor->destroy_stream(nullptr, s), TUTTI_OK);
}

// Memory that is exported, and what another process does with it.
class SharedMemory : public SimulatedDevice {
 protected:
  static constexpr uint64_t bytes = 10000, offset = 4321;
  // Copies between device memory and a vector, by a stream: the memory may be unreadable to processors.
  void copy(const void* from, void* to, uint64_t n) {
    void* s = stream();
    tutti_event* m = event();
    tutti_command c = command(TUTTI_COMMAND_COPY);
    c.sources = 1;
    c.src = &from;
    c.dst = to;
    c.count = n;
    ASSERT_EQ(run(s, {c, command(TUTTI_COMMAND_RECORD, m)}), TUTTI_OK) << last_error;
    finish(m);
    EXPECT_EQ(executor->destroy_stream(nullptr, s), TUTTI_OK);
  }
  void put(void* to, std::vector<char> data) {
    void* seen = nullptr;
    ASSERT_EQ(device->map_host(nullptr, data.data(), data.size(), &seen), TUTTI_OK);
    copy(seen, to, data.size());
    ASSERT_EQ(device->unmap_host(nullptr, data.data()), TUTTI_OK);
  }
  std::vector<char> get(const void* from) {
    std::vector<char> data(bytes);
    void* seen = nullptr;
    EXPECT_EQ(device->map_host(nullptr, data.data(), data.size(), &seen), TUTTI_OK);
    copy(from, seen, bytes);
    EXPECT_EQ(device->unmap_host(nullptr, data.data()), TUTTI_OK);
    return data;
  }
  static std::vector<char> pattern(char seed) {
    std::vector<char> data(bytes);
    for (uint64_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(seed + i * 7);
    return data;
  }
};

// The other process: TUTTI_TEST_EXPORT is the record as text, TUTTI_TEST_DESCRIPTOR what came with it.
TEST_F(SharedMemory, DISABLED_IsImportedHere) {
  tutti_memory_export record{};
  const std::string text = std::getenv("TUTTI_TEST_EXPORT");
  ASSERT_EQ(text.size(), 2 * sizeof record);
  for (size_t i = 0; i < sizeof record; ++i)
    reinterpret_cast<uint8_t*>(&record)[i] = static_cast<uint8_t>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
  const int fd = std::atoi(std::getenv("TUTTI_TEST_DESCRIPTOR"));
  void* base = nullptr;
  ASSERT_EQ(device->import_memory(nullptr, 1, &record, fd, &base), TUTTI_OK) << last_error;
  EXPECT_EQ(record.offset, offset);
  tutti_pointer p{};
  p.struct_size = sizeof p;
  ASSERT_EQ(device->classify(nullptr, static_cast<char*>(base) + bytes - 1, &p), TUTTI_OK);
  EXPECT_EQ(p.kind, uint32_t{TUTTI_MEMORY_SIMULATED});
  EXPECT_EQ(p.device, 1u);
  EXPECT_EQ(p.base, base);
  EXPECT_EQ(p.bytes, bytes);
  EXPECT_EQ(get(base), pattern(1));
  put(base, pattern(2));
  EXPECT_EQ(device->release(nullptr, base), TUTTI_INVALID_ARGUMENT) << "it is not this process's";
  EXPECT_EQ(device->close_import(nullptr, base), TUTTI_OK) << last_error;
  EXPECT_EQ(device->close_import(nullptr, base), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(device->classify(nullptr, base, &p), TUTTI_INVALID_ARGUMENT);
  // A record and a descriptor that do not belong together, and records that were tampered with.
  const auto refused = [&](tutti_memory_export wrong, int with) {
    EXPECT_EQ(device->import_memory(nullptr, 0, &wrong, with, &base), TUTTI_INVALID_ARGUMENT);
  };
  tutti_memory_export larger = record, odd = record, past = record;
  larger.bytes += 4096;
  odd.form = 7;
  past.offset = past.bytes;
  for (const auto& wrong : {larger, odd, past}) refused(wrong, fd);
  refused(record, -1);
  const int other = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  refused(record, other);
  close(other);
}

TEST_F(SharedMemory, AnotherProcessMapsIt) {
  char* ours = memory<char>(bytes, 1);
  tutti_memory_export record{};
  int32_t fd = -1;
  ASSERT_EQ(device->export_memory(nullptr, ours + offset, &record, &fd), TUTTI_OK) << last_error;
  ASSERT_GE(fd, 0);
  void* base = nullptr;
  EXPECT_EQ(device->import_memory(nullptr, 0, &record, fd, &base), TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(last_error.find("this process exported it"), std::string::npos) << last_error;
  const int passed = dup(fd);  // stays open in the child
  std::string text;
  for (size_t i = 0; i < sizeof record; ++i) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", reinterpret_cast<const uint8_t*>(&record)[i]);
    text += two;
  }
  setenv("TUTTI_TEST_EXPORT", text.c_str(), 1);
  setenv("TUTTI_TEST_DESCRIPTOR", std::to_string(passed).c_str(), 1);
  std::string name = "/proc/self/exe", filter = "--gtest_filter=*DISABLED_IsImportedHere",
              all = "--gtest_also_run_disabled_tests";
  char* arguments[] = {name.data(), filter.data(), all.data(), nullptr};
  put(ours, pattern(1));
  pid_t child = 0;
  ASSERT_EQ(posix_spawn(&child, name.c_str(), nullptr, nullptr, arguments, environ), 0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(get(ours), pattern(2));
  close(fd);
  close(passed);
  ASSERT_EQ(device->release(nullptr, ours), TUTTI_OK);
  EXPECT_EQ(device->export_memory(nullptr, ours, &record, &fd), TUTTI_INVALID_ARGUMENT);
  int local = 0;
  EXPECT_EQ(device->export_memory(nullptr, &local, &record, &fd), TUTTI_INVALID_ARGUMENT);
}

TEST_F(SharedMemory, ADescriptorStandsInForADmaBuf) {
  char* ours = memory<char>(bytes, 1);
  put(ours, pattern(3));
  int32_t fd = -1;
  uint64_t at = 0;
  ASSERT_EQ(device->export_dmabuf(nullptr, ours + offset, bytes - offset, &fd, &at), TUTTI_OK) << last_error;
  EXPECT_EQ(at, offset);
  auto* mapped = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_EQ(std::vector<char>(mapped, mapped + bytes), pattern(3));
  const auto other = pattern(4);
  std::copy(other.begin(), other.end(), mapped);
  EXPECT_EQ(get(ours), other) << "it is the memory itself";
  munmap(mapped, bytes);
  close(fd);
  EXPECT_EQ(device->export_dmabuf(nullptr, ours + offset, bytes - offset + 1, &fd, &at), TUTTI_INVALID_ARGUMENT);
  ASSERT_EQ(device->release(nullptr, ours), TUTTI_OK);
  EXPECT_EQ(device->export_dmabuf(nullptr, ours, bytes, &fd, &at), TUTTI_INVALID_ARGUMENT);
}

}  // namespace
