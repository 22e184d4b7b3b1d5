// SPDX-License-Identifier: Apache-2.0
//
// Nothing that may wait for a whole device is called while any communicator of the process has work pending there. The
// simulated device counts such calls.
#include "../../tests/harness/simulated_counters.hpp"
#include "../../tests/harness/stream_ranks.hpp"
#include "../../tests/harness/virtual_time/virtual_time.hpp"

namespace tutti::test {
namespace {

using std::chrono::milliseconds;

// A communicator of one rank, bound to the first simulated device.
tutti_comm* make(const char* name) {
  char error[1024] = "";
  tutti_comm_config config{};
  config.struct_size = sizeof config;
  config.name = name;
  const std::string where = std::string("local:") + name;
  config.rendezvous = where.c_str();
  config.nranks = 1;
  config.device = "simulated:0";
  config.error = error;
  config.error_bytes = sizeof error;
  tutti_comm* comm = nullptr;
  EXPECT_EQ(tutti_comm_create(&config, &comm), TUTTI_OK) << error;
  return comm;
}

struct Buffer {
  explicit Buffer(Stream& s) : stream(s), data(s.make<float>(100)) { std::fill_n(data, 100, 1.f); }
  ~Buffer() { stream.free(data); }
  tutti_status reduce(tutti_comm* comm, uint64_t timeout_ns = 0) const {
    const tutti_options options = on(stream, timeout_ns);
    return tutti_all_reduce(comm, data, data, 100, TUTTI_FLOAT32, TUTTI_SUM, &options, nullptr);
  }
  Stream& stream;
  float* data;
};

// From here on the communicator, which has made all that it needs, has work pending until the gate opens.
void keep_busy(tutti_comm* comm, const Buffer& buffer, Gate& held) {
  ASSERT_EQ(buffer.reduce(comm), TUTTI_OK) << tutti_comm_error(comm);
  ASSERT_TRUE(buffer.stream.finish());
  held.hold(buffer.stream);
  ASSERT_EQ(buffer.reduce(comm), TUTTI_OK) << tutti_comm_error(comm);
}

TEST(DeviceGate, TheFirstCallWaitsForAnotherCommunicatorsWork) {
  tutti_comm *busy = make("busy"), *fresh = make("fresh");
  {
    Stream one, other;
    const Buffer first(one), second(other);
    Gate held;
    ASSERT_NO_FATAL_FAILURE(keep_busy(busy, first, held));
    const uint64_t before = counters().synchronised;
    std::atomic<bool> returned = false;
    std::thread calling([&] {
      EXPECT_EQ(second.reduce(fresh), TUTTI_OK) << tutti_comm_error(fresh);
      returned = true;
    });
    std::this_thread::sleep_for(milliseconds(300));
    EXPECT_FALSE(returned) << "it did not wait";
    EXPECT_EQ(counters().synchronised, before) << "a call waits for the device while work is pending";
    held.open();
    calling.join();
    EXPECT_EQ(counters().synchronised, before);
    EXPECT_TRUE(one.finish() && other.finish());
  }
  EXPECT_EQ(tutti_comm_destroy(fresh), TUTTI_OK);
  EXPECT_EQ(tutti_comm_destroy(busy), TUTTI_OK);
}

TEST(DeviceGate, ADeadlineNamesWhoseWorkIsPending) {
  const VirtualTime time;
  tutti_comm *busy = make("held up"), *fresh = make("late");
  {
    Stream one, other;
    const Buffer first(one), second(other);
    Gate held;
    ASSERT_NO_FATAL_FAILURE(keep_busy(busy, first, held));
    const auto begin = time.passed();
    EXPECT_EQ(second.reduce(fresh, 45'000'000'000), TUTTI_TIMEOUT);
    EXPECT_GE(time.passed() - begin, std::chrono::seconds(45));
    EXPECT_LT(time.passed() - begin, late(std::chrono::seconds(45)));
    for (const char* words : {"has waited 45.0 s (the call's timeout) for", "rank 0 of held up", "device simulated 0"})
      EXPECT_NE(std::string(tutti_comm_error(fresh)).find(words), std::string::npos) << tutti_comm_error(fresh);
    held.open();
    EXPECT_TRUE(one.finish() && other.finish());
  }
  tutti_comm_destroy(fresh);
  EXPECT_EQ(tutti_comm_destroy(busy), TUTTI_OK);
}

// Work on another device holds nobody up.
TEST(DeviceGate, EachDeviceHasItsOwn) {
  const OnDevices second([](uint32_t) { return 1u; });
  tutti_comm *busy = make("first"), *fresh = make_comm("local:second", 0, 1, "");
  {
    Stream one, other(1);
    const Buffer first(one), last(other);
    Gate held;
    ASSERT_NO_FATAL_FAILURE(keep_busy(busy, first, held));
    EXPECT_EQ(last.reduce(fresh), TUTTI_OK) << tutti_comm_error(fresh);
    EXPECT_TRUE(other.finish());
    held.open();
    EXPECT_TRUE(one.finish());
  }
  EXPECT_EQ(tutti_comm_destroy(fresh), TUTTI_OK);
  EXPECT_EQ(tutti_comm_destroy(busy), TUTTI_OK);
}

}  // namespace
}  // namespace tutti::test
