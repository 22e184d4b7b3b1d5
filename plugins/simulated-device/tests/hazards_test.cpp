// SPDX-License-Identifier: Apache-2.0
//
// TUTTI_SIMULATED_HAZARDS: each hazard does what README.md says, and none of it without its name. A case is a process
// of its own, since a plugin reads settings once.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <tutti/plugin/device.h>
#include <tutti/plugin/entry.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_simulated_device;

namespace {

std::string last_error;

struct Device {
  const tutti_device* memory = nullptr;
  const tutti_executor* executor = nullptr;
  const tutti_plugin_entry_table& entry = tutti_plugin_entry_simulated_device;
  explicit Device(bool usable = true) {
    static tutti_host host{};
    host.struct_size = sizeof host;
    host.get_config = [](void*, const char* key) -> const char* { return std::getenv(key); };
    host.memory_kind = [](void*, const char*) { return uint32_t{TUTTI_MEMORY_SIMULATED}; };
    host.set_error = [](void*, tutti_status, const char* text) { last_error = text; };
    entry.init(&host);
    memory = static_cast<const tutti_device*>(entry.get_interface(TUTTI_DEVICE_ID, 0));
    executor = static_cast<const tutti_executor*>(entry.get_interface(TUTTI_EXECUTOR_ID, 0));
    if (usable) map(&flag);
  }
  void map(uint32_t* word) const {
    void* seen = nullptr;
    EXPECT_EQ(memory->map_host(nullptr, word, sizeof *word, &seen), TUTTI_OK);
  }
  void* stream() const {
    void* made = nullptr;
    EXPECT_EQ(executor->create_stream(nullptr, 0, &made), TUTTI_OK) << last_error;
    return made;
  }
  tutti_event* event() const {
    tutti_event* made = nullptr;
    EXPECT_EQ(executor->create_event(nullptr, 0, &made), TUTTI_OK);
    return made;
  }
  void* allocate(uint64_t bytes = 4096) const {
    void* made = nullptr;
    EXPECT_EQ(memory->allocate(nullptr, 0, bytes, &made), TUTTI_OK) << last_error;
    return made;
  }
  tutti_status give(void* to, tutti_command command) const { return executor->enqueue(nullptr, to, &command, 1); }
  // The stream waits until let_go().
  void hold(void* held) {
    std::atomic_ref(flag).store(0);
    EXPECT_EQ(give(held, {.kind = TUTTI_COMMAND_WAIT, .flag = &flag, .value = 1}), TUTTI_OK);
  }
  void let_go() { std::atomic_ref(flag).store(1); }
  tutti_status record(void* to, tutti_event* event) const {
    return give(to, {.kind = TUTTI_COMMAND_RECORD, .event = event});
  }
  tutti_status copy(void* to, void* dst, const void* src, uint64_t bytes) const {
    return give(to, {.kind = TUTTI_COMMAND_COPY, .sources = 1, .dst = dst, .src = &src, .count = bytes});
  }
  void finish(tutti_event* event) const {
    while (executor->query_event(nullptr, event) == TUTTI_AGAIN) std::this_thread::yield();
  }
  uint64_t number(void* of) const {
    uint32_t device = 0;
    uint64_t flags = 0;
    EXPECT_EQ(executor->stream_state(nullptr, of, &device, &flags), TUTTI_OK);
    EXPECT_EQ(flags & UINT32_MAX, 0u);
    return flags >> 32;
  }
  alignas(64) uint32_t flag = 0;
};

void in_process(const char* hazards, const std::function<void(Device&)>& body) {
  const pid_t child = fork();
  if (child == 0) {
    if (hazards) setenv("TUTTI_SIMULATED_HAZARDS", hazards, 1);
    setenv("TUTTI_SIMULATED_QUEUES", "4", 0);
    Device device;
    body(device);
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << (hazards ? hazards : "no hazards");
}

// Does a call wait for a stream that is held up? The stream is let go after so many milliseconds; a call that does not
// wait is back before.
constexpr int kMoment = 200, kMinute = 60'000;
bool waits(Device& d, void* held, const std::function<void()>& call, int most) {
  d.hold(held);
  std::atomic<bool> back{false}, let_go{false};
  std::thread caller([&] {
    call();
    back = !let_go;
  });
  for (int k = 0; k < most && !back; ++k) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const bool waited = !back;
  let_go = true;
  d.let_go();
  caller.join();
  return waited;
}

struct Calls {
  const char* hazard;
  std::function<std::function<void()>(Device&)> make;
};
const Calls calls[] = {
    {"alloc", [](Device& d) { return [&d] { d.allocate(); }; }},
    {"free",
     [](Device& d) {
       void* memory = d.allocate();
       return [&d, memory] { EXPECT_EQ(d.memory->release(nullptr, memory), TUTTI_OK); };
     }},
    {"register", [](Device& d) { return [&d] { d.map(new uint32_t); }; }},
    {"import", [](Device& d) { return [&d] { EXPECT_EQ(d.memory->enable_peer(nullptr, 0, 1), TUTTI_OK); }; }},
    {"launch", [](Device& d) { return [&d] { EXPECT_EQ(d.executor->prepare(nullptr, 0), TUTTI_OK); }; }},
};

TEST(Hazards, CallsWaitForTheDeviceWhereTheyAreNamed) {
  for (const auto& [hazard, make] : calls) {
    for (const char* on : {hazard, "all"})
      in_process(on, [&](Device& d) {
        const auto call = make(d);
        EXPECT_TRUE(waits(d, d.stream(), call, kMoment)) << hazard;
      });
    for (const char* other : {"capture,exit", static_cast<const char*>(nullptr)})
      in_process(other, [&](Device& d) {
        const auto call = make(d);
        EXPECT_FALSE(waits(d, d.stream(), call, kMinute)) << hazard;
      });
  }
}

TEST(Hazards, TheFirstUseOfAKernelWaitsUnlessItWasPrepared) {
  in_process("launch", [](Device& d) {
    void *held = d.stream(), *other = d.stream();
    void *from = d.allocate(), *to = d.allocate();
    const auto copy = [&] { EXPECT_EQ(d.copy(other, to, from, 4096), TUTTI_OK) << last_error; };
    EXPECT_TRUE(waits(d, held, copy, kMoment));
    EXPECT_FALSE(waits(d, held, copy, kMinute)) << "it is loaded";
  });
  in_process("launch", [](Device& d) {
    void *held = d.stream(), *other = d.stream();
    void *from = d.allocate(), *to = d.allocate();
    EXPECT_EQ(d.executor->prepare(nullptr, 0), TUTTI_OK);
    const auto copy = [&] { EXPECT_EQ(d.copy(other, to, from, 4096), TUTTI_OK) << last_error; };
    EXPECT_FALSE(waits(d, held, copy, kMinute));
  });
}

TEST(Hazards, RealTimeAQueryWaitsWithAThreadThatFrees) {
  for (const bool on : {true, false})
    in_process(on ? "free,query" : "free", [on](Device& d) {
      void* held = d.stream();
      void* memory = d.allocate();
      tutti_event* event = d.event();
      d.hold(held);
      std::thread freeing([&] { EXPECT_EQ(d.memory->release(nullptr, memory), TUTTI_OK); });
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // it is in the driver, most likely
      std::atomic<bool> back{false};
      std::thread asking([&] {
        EXPECT_EQ(d.executor->query_event(nullptr, event), TUTTI_OK);
        back = true;
      });
      for (int k = 0; k < 200 && !back; ++k) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_EQ(back, !on);
      d.let_go();
      freeing.join();
      asking.join();
    });
}

// Work that begins in order is in order: the default stream is behind the held one, and another stream behind it.
TEST(Hazards, TheDefaultStreamIsOrderedWithAllOthers) {
  for (const bool on : {true, false})
    in_process(on ? "default-stream" : nullptr, [on](Device& d) {
      void *held = d.stream(), *other = d.stream();
      tutti_event *before = d.event(), *behind = d.event();
      EXPECT_EQ(d.record(nullptr, before), TUTTI_OK);
      d.finish(before);
      d.hold(held);
      EXPECT_EQ(d.record(nullptr, before), TUTTI_OK);
      EXPECT_EQ(d.record(other, behind), TUTTI_OK);
      if (on) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        for (tutti_event* event : {before, behind}) EXPECT_EQ(d.executor->query_event(nullptr, event), TUTTI_AGAIN);
        d.let_go();
      }
      for (tutti_event* event : {before, behind}) d.finish(event);
      d.let_go();
    });
}

TEST(Hazards, HandlesComeAgain) {
  in_process("handles", [](Device& d) {
    void* first = d.stream();
    const uint64_t number = d.number(first);
    tutti_event *end = d.event(), *other = d.event();
    d.hold(first);
    EXPECT_EQ(d.record(first, end), TUTTI_OK);
    EXPECT_EQ(d.executor->destroy_stream(nullptr, first), TUTTI_OK) << "while its work waits";
    void* second = d.stream();
    EXPECT_EQ(second, first);
    EXPECT_NE(d.number(second), number);
    EXPECT_EQ(d.record(second, other), TUTTI_OK);
    d.finish(other);
    EXPECT_EQ(d.executor->query_event(nullptr, end), TUTTI_AGAIN) << "the former stream's work goes on by itself";
    d.let_go();
    d.finish(end);
  });
}

// As src/plugin.cpp has them.
struct Memory {
  uint32_t struct_size, reserved;
  tutti_status (*managed)(uint32_t device, uint64_t bytes, void** address);
  tutti_status (*ranges)(uint32_t device, uint64_t n, uint64_t bytes, void** address);
};

TEST(Hazards, ManagedMemoryIsNotExported) {
  in_process("managed", [](Device& d) {
    const auto* more = static_cast<const Memory*>(d.entry.get_interface("tutti.simulated_memory/1", 0));
    void* memory = nullptr;
    ASSERT_EQ(more->managed(1, 100, &memory), TUTTI_OK) << last_error;
    static_cast<char*>(memory)[99] = 5;
    tutti_pointer pointer{};
    pointer.struct_size = sizeof pointer;
    ASSERT_EQ(d.memory->classify(nullptr, memory, &pointer), TUTTI_OK);
    EXPECT_EQ(pointer.kind, uint32_t{TUTTI_MEMORY_SIMULATED});
    EXPECT_EQ(pointer.device, 1u);
    tutti_memory_export record{};
    int32_t fd = -1;
    uint64_t offset = 0;
    EXPECT_EQ(d.memory->export_memory(nullptr, memory, &record, &fd), TUTTI_NOT_SUPPORTED);
    EXPECT_EQ(d.memory->export_dmabuf(nullptr, memory, 100, &fd, &offset), TUTTI_NOT_SUPPORTED);
    EXPECT_EQ(d.memory->release(nullptr, memory), TUTTI_OK);
    EXPECT_EQ(more->ranges(0, 2, 4096, &memory), TUTTI_NOT_SUPPORTED);
    EXPECT_NE(last_error.find("does not name \"ranges\""), std::string::npos) << last_error;
  });
}

TEST(Hazards, ARangeOfAddressesHasSeveralAllocations) {
  for (const char* hidden : {"0", "1"}) {
    setenv("TUTTI_SIMULATED_PRIVATE", hidden, 1);
    in_process("ranges", [](Device& d) {
      const auto* more = static_cast<const Memory*>(d.entry.get_interface("tutti.simulated_memory/1", 0));
      void* memory = nullptr;
      ASSERT_EQ(more->ranges(0, 3, 8192, &memory), TUTTI_OK) << last_error;
      auto* const base = static_cast<char*>(memory);
      tutti_pointer pointer{};
      pointer.struct_size = sizeof pointer;
      ASSERT_EQ(d.memory->classify(nullptr, base + 9000, &pointer), TUTTI_OK);
      EXPECT_EQ(pointer.base, base + 8192);
      EXPECT_EQ(pointer.bytes, 8192u);
      void *s = d.stream(), *plain = d.allocate(3 * 8192);
      tutti_event* end = d.event();
      EXPECT_EQ(d.copy(s, base, plain, 3 * 8192), TUTTI_OK) << last_error << ": a stream finds one piece";
      EXPECT_EQ(d.copy(s, base + 1, plain, 3 * 8192), TUTTI_INVALID_ARGUMENT) << "one byte too many";
      EXPECT_EQ(d.record(s, end), TUTTI_OK);
      d.finish(end);
      EXPECT_EQ(d.memory->release(nullptr, base + 8192), TUTTI_OK) << last_error;
      EXPECT_EQ(d.copy(s, base, plain, 3 * 8192), TUTTI_INVALID_ARGUMENT) << "there is a hole";
      for (const int k : {0, 2}) EXPECT_EQ(d.memory->release(nullptr, base + k * 8192), TUTTI_OK) << last_error;
    });
    unsetenv("TUTTI_SIMULATED_PRIVATE");
  }
}

// As src/plugin.cpp has them.
struct Graphs {
  uint32_t struct_size, reserved;
  tutti_status (*begin)(void* const* streams, uint64_t n, void** graph);
  tutti_status (*end)(void* graph);
};

TEST(Hazards, ACaptureIsByItself) {
  in_process("capture", [](Device& d) {
    const auto* graphs = static_cast<const Graphs*>(d.entry.get_interface("tutti.simulated_graphs/1", 0));
    void *captured = d.stream(), *other = d.stream(), *graph = nullptr;
    tutti_event *outside = d.event(), *inside = d.event();
    EXPECT_EQ(d.record(other, outside), TUTTI_OK);
    ASSERT_EQ(graphs->begin(&captured, 1, &graph), TUTTI_OK);
    const auto after = [&](void* stream, tutti_event* event) {
      return d.give(stream, {.kind = TUTTI_COMMAND_AFTER, .event = event});
    };
    EXPECT_EQ(after(captured, outside), TUTTI_INVALID_USAGE);
    EXPECT_EQ(d.record(captured, inside), TUTTI_OK);
    EXPECT_EQ(after(captured, inside), TUTTI_OK);
    EXPECT_EQ(after(other, inside), TUTTI_INVALID_USAGE);
    EXPECT_EQ(d.executor->query_event(nullptr, inside), TUTTI_INVALID_USAGE);
    EXPECT_EQ(d.record(nullptr, outside), TUTTI_INVALID_USAGE) << "the default stream";
    EXPECT_EQ(graphs->end(graph), TUTTI_OK);
    EXPECT_EQ(d.record(nullptr, outside), TUTTI_OK);
    d.finish(outside);
  });
}

TEST(Hazards, AfterExitNothingWaits) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("TUTTI_SIMULATED_HAZARDS", "all", 1);
    static Device* d = nullptr;
    // Runs after the driver has gone, since it is registered before.
    std::atexit([] {
      void* stream = d->stream();
      tutti_event* event = d->event();
      if (d->executor->query_event(nullptr, event) != TUTTI_OK) std::_Exit(2);
      if (d->record(stream, event) != TUTTI_SYSTEM) std::_Exit(3);
      void* memory = d->allocate();
      if (d->memory->release(nullptr, memory) != TUTTI_OK || d->executor->destroy_stream(nullptr, stream) != TUTTI_OK)
        std::_Exit(4);
      std::_Exit(5);
    });
    d = new Device();
    void* held = d->stream();
    d->hold(held);
    std::exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 5);
}

TEST(Hazards, AnUnknownNameIsAnError) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("TUTTI_SIMULATED_HAZARDS", "free,alocation", 1);
    const Device d(false);
    tutti_device_caps caps{};
    caps.struct_size = sizeof caps;
    EXPECT_EQ(d.memory->query(nullptr, &caps), TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(last_error.find("there is no hazard \"alocation\"; there are all, alloc, free"), std::string::npos)
        << last_error;
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
