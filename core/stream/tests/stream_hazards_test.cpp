// SPDX-License-Identifier: Apache-2.0
//
// Collectives and transfers over a device whose driver is as unkind as a real one (TUTTI_SIMULATED_HAZARDS). The other
// tests of streams run with all hazards, too; here are the cases that only they can show.
#include <fstream>
#include <string>
#include <thread>

#include "../../tests/harness/simulated_plugin.hpp"
#include "../../tests/harness/stream_ranks.hpp"

namespace tutti::test {
namespace {

using std::chrono::milliseconds;

// The setting is read once in each process: the ranks are processes that are made after it.
struct WithHazards {
  explicit WithHazards(const char* hazards) {
    setenv("TUTTI_SIMULATED_HAZARDS", hazards, 1);
    setenv("TUTTI_SIMULATED_QUEUES", "4", 1);
  }
  WithHazards(const WithHazards&) = delete;
  WithHazards& operator=(const WithHazards&) = delete;
  ~WithHazards() {
    unsetenv("TUTTI_SIMULATED_HAZARDS");
    unsetenv("TUTTI_SIMULATED_QUEUES");
  }
};

void reduce(tutti_comm* comm, Stream& s, int64_t* data, uint64_t count, uint32_t op = TUTTI_SUM) {
  const tutti_options options = on(s);
  ASSERT_EQ(tutti_all_reduce(comm, data, data, count, TUTTI_INT64, op, &options, nullptr), TUTTI_OK)
      << tutti_comm_error(comm);
}

// The application frees memory, which waits for its stream. That waits for bytes which a thread of the library moves;
// it must not ask the driver for anything, also not when the device has been busy for more than a second.
TEST(StreamHazards, BytesMoveBesideAThreadThatFrees) {
  const WithHazards hazards("free,query");
  setenv("TUTTI_TRANSPORT", "shm", 1);
  run_processes(2, 1, [](tutti_comm* comm, uint32_t rank) {
    constexpr uint64_t count = 100'000;
    Stream s;
    auto *data = s.make<int64_t>(count), *spare = s.make<int64_t>(1);
    std::fill_n(data, count, 1);
    reduce(comm, s, data, count);
    ASSERT_TRUE(s.finish());
    ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
    if (rank == 1) std::this_thread::sleep_for(milliseconds(1500));
    reduce(comm, s, data, count);
    s.free(spare);
    ASSERT_TRUE(s.finish());
    EXPECT_EQ(data[count - 1], 4);
    s.free(data);
  });
  unsetenv("TUTTI_TRANSPORT");
}

// A stream is destroyed while its work waits, and the next one has its handle. Its work comes after the former's all
// the same, since both use the same flags: a maximum of sums, not a sum of maxima.
TEST(StreamHazards, AHandleThatComesAgainIsAnotherStream) {
  const WithHazards hazards("handles");
  run_processes(2, 1, [](tutti_comm* comm, uint32_t rank) {
    auto first = std::make_unique<Stream>();
    auto* data = first->make<int64_t>(1);
    *data = 0;
    reduce(comm, *first, data, 1);
    reduce(comm, *first, data, 1, TUTTI_MAX);
    ASSERT_TRUE(first->finish());
    *data = rank + 1;
    Gate gate;
    gate.hold(*first);
    reduce(comm, *first, data, 1);
    const void* handle = first->handle;
    first.reset();
    Stream second;
    ASSERT_EQ(second.handle, handle);
    reduce(comm, second, data, 1, TUTTI_MAX);
    std::this_thread::sleep_for(milliseconds(200));  // it could run by now
    gate.open();
    ASSERT_TRUE(second.finish());
    EXPECT_EQ(*data, 3);
    EXPECT_EQ(tutti_comm_async_error(comm), TUTTI_OK);
    second.free(data);
  });
}

// Peer access is there before any work is: a receive does not wait for the device.
TEST(StreamHazards, AReceiveFromAnotherDeviceDoesNotWaitForTheStream) {
  const WithHazards hazards("import");
  const OnDevices each;
  run_processes(2, 2, [](tutti_comm* comm, uint32_t rank) {
    Stream s(rank);
    auto* data = s.make<int64_t>(10);
    *data = rank + 1;
    reduce(comm, s, data, 1);
    ASSERT_TRUE(s.finish());
    Gate gate;
    if (rank == 1) gate.hold(s);
    const tutti_options options = on(s);
    ASSERT_EQ(rank == 0 ? tutti_send(comm, data, 1, TUTTI_INT64, 1, 7, &options, nullptr)
                        : tutti_receive(comm, data + 1, 1, TUTTI_INT64, 0, 7, &options, nullptr),
              TUTTI_OK)
        << tutti_comm_error(comm);
    gate.open();
    ASSERT_TRUE(s.finish());
    if (rank == 1) {
      EXPECT_EQ(data[1], 3);
    }
    ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
    s.free(data);
  });
}

// What other processes cannot map is carried through slots, and the window says why.
TEST(StreamHazards, MemoryThatIsNotExportedGoesThroughSlots) {
  const WithHazards hazards("managed,ranges");
  run_processes(2, 1, [](tutti_comm* comm, uint32_t rank) {
    constexpr uint64_t part = 64 << 10, parts = 5, count = parts * part / sizeof(int64_t);
    const auto* more = static_cast<const SimulatedMemory*>(simulated_interface("tutti.simulated_memory/1"));
    void *managed = nullptr, *ranges = nullptr;
    ASSERT_EQ(more->managed(0, parts * part, &managed), TUTTI_OK);
    ASSERT_EQ(more->ranges(0, parts, part, &ranges), TUTTI_OK);
    Stream s;
    for (const auto& [memory, why] : {std::pair{managed, "is managed memory"}, {ranges, "are several allocations"}}) {
      auto* data = static_cast<int64_t*>(memory);
      tutti_window* window = nullptr;
      ASSERT_EQ(tutti_comm_register(comm, data, parts * part, nullptr, &window), TUTTI_OK) << tutti_comm_error(comm);
      tutti_window_facts facts{};
      facts.struct_size = sizeof facts;
      ASSERT_EQ(tutti_comm_window(comm, window, &facts), TUTTI_OK);
      EXPECT_EQ(facts.in_place, 0u);
      EXPECT_NE(std::string(facts.reason).find(why), std::string::npos) << facts.reason;
      for (uint64_t i = 0; i < count; ++i) data[i] = value(rank, i);
      reduce(comm, s, data, count);
      ASSERT_TRUE(s.finish());
      for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(data[i], value(0, i) + value(1, i)) << i;
      EXPECT_EQ(served(comm), "simulated+mapped");
      // A part that does not begin where the first allocation does.
      for (uint64_t i = 0; i < count; ++i) data[i] = value(rank, i);
      reduce(comm, s, data + part / 8 + 5, part / 4);
      ASSERT_TRUE(s.finish());
      ASSERT_EQ(data[part / 8 + 5], value(0, part / 8 + 5) + value(1, part / 8 + 5));
      ASSERT_EQ(tutti_comm_deregister(comm, window, nullptr), TUTTI_OK) << tutti_comm_error(comm);
    }
    s.free(managed);
    for (uint64_t i = 0; i < parts; ++i) s.free(static_cast<char*>(ranges) + i * part);
  });
}

// The program ends while a stream waits for a peer and threads of the library run on: nothing of it is a failure.
TEST(StreamHazards, AProgramMayEndWhileStreamsRun) {
  const WithHazards hazards("all");
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        auto& s = *new Stream();
        auto* data = s.make<int64_t>(1000);
        reduce(comm, s, data, 1000);
        ASSERT_TRUE(s.finish());
        ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
        if (rank == 1) {
          EXPECT_NE(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << "rank 0 has ended";
          std::_Exit(testing::Test::HasFailure() ? 1 : 0);
        }
        reduce(comm, s, data, 1000);
        std::exit(tutti_comm_async_error(comm) == TUTTI_OK ? 0 : 1);
      },
      "",
      // While the driver is gone and the library lives: longer than it takes to ask the device whether it works.
      [](uint32_t) { std::atexit([] { std::this_thread::sleep_for(milliseconds(1300)); }); });
}

// Memory that the device and the processors both use stays this process's after a fork.
TEST(StreamHazards, MappedMemoryIsNotForked) {
  run_processes(2, 1, [](tutti_comm* comm, uint32_t) {
    const auto kept_from_children = [] {
      std::ifstream maps("/proc/self/smaps");
      int found = 0;
      for (std::string line; std::getline(maps, line);)
        found += line.starts_with("VmFlags:") && line.find(" dc") != std::string::npos;
      return found;
    };
    const int before = kept_from_children();
    Stream s;
    auto* data = s.make<int64_t>(1);
    reduce(comm, s, data, 1);
    ASSERT_TRUE(s.finish());
    EXPECT_GT(kept_from_children(), before);
    s.free(data);
  });
}

}  // namespace
}  // namespace tutti::test
