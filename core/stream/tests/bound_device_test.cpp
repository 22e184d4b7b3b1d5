// SPDX-License-Identifier: Apache-2.0
//
// The device that a communicator is bound to: how it is named, what calls on other memory are told, and how often a
// device is asked what an address is. Two kinds of devices are there: "simulated" and "second".
#include <sys/mman.h>

#include "../../tests/harness/simulated_counters.hpp"
#include "../../tests/harness/stream_ranks.hpp"

namespace tutti::test {
namespace {

DeviceTables kind(const std::string& name) {
  for (const DeviceTables& tables : list_devices())
    if (name == tables.memory->name) return tables;
  ADD_FAILURE() << "no device " << name << ": set TUTTI_PLUGIN_PATH";
  std::abort();
}

struct Made {
  tutti_comm* comm = nullptr;
  tutti_status status = TUTTI_OK;
  std::string error;
};

Made make(const char* device, uint32_t rank = 0, uint32_t n = 1, const std::string& where = "local:bound") {
  Made made;
  char error[1024] = "";
  tutti_comm_config config{};
  config.struct_size = sizeof config;
  config.rendezvous = where.c_str();
  config.rank = rank;
  config.nranks = n;
  config.device = device;
  config.error = error;
  config.error_bytes = sizeof error;
  made.status = tutti_comm_create(&config, &made.comm);
  made.error = error;
  return made;
}

std::string bound(tutti_comm* comm) {
  char text[64] = "";
  uint64_t bytes = sizeof text;
  EXPECT_EQ(tutti_comm_device(comm, text, &bytes), TUTTI_OK);
  return text;
}

std::string bound_by(const char* device) {
  const Made made = make(device);
  EXPECT_EQ(made.status, TUTTI_OK) << made.error;
  if (!made.comm) return "";
  const std::string text = bound(made.comm);
  EXPECT_EQ(tutti_comm_destroy(made.comm), TUTTI_OK);
  return text;
}

void* memory_of(const std::string& name, uint32_t device, uint64_t bytes) {
  const DeviceTables tables = kind(name);
  void* address = nullptr;
  EXPECT_EQ(tables.memory->allocate(tables.memory->self, device, bytes, &address), TUTTI_OK);
  return address;
}

tutti_status reduce(tutti_comm* comm, const void* in, void* out, void* stream = nullptr) {
  tutti_options options{};
  options.struct_size = sizeof options;
  options.stream = stream;
  return tutti_all_reduce(comm, in, out, 10, TUTTI_FLOAT32, TUTTI_SUM, &options, nullptr);
}

// Sets a variable for as long as it lives.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Setting() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(BoundDevice, IsTheOneThatWasNamed) {
  EXPECT_EQ(bound_by("none"), "none");
  EXPECT_EQ(bound_by("simulated"), "simulated:0");
  EXPECT_EQ(bound_by("simulated:1"), "simulated:1");
  EXPECT_EQ(bound_by("second:1"), "second:1");
  // The first that works here: its executor can be asked, which a device without its driver refuses.
  std::string first;
  for (const DeviceTables& tables : list_devices())
    if (tutti_device_caps caps{sizeof caps};
        first.empty() && tables.memory->query(tables.memory->self, &caps) == TUTTI_OK)
      first = tables.memory->name;
  EXPECT_EQ(bound_by(nullptr), first + ":0");
  EXPECT_EQ(bound_by("simulated:local"), "simulated:0") << "there is no launcher";
}

TEST(BoundDevice, TheEnvironmentNamesTheDefault) {
  const Setting device("TUTTI_DEVICE", "second:1");
  EXPECT_EQ(bound_by(nullptr), "second:1");
  EXPECT_EQ(bound_by("simulated:0"), "simulated:0") << "the configuration comes first";
}

TEST(BoundDevice, TheLauncherTellsTheLocalOne) {
  const Setting rank("TUTTI_RANK", "0"), size("TUTTI_WORLD_SIZE", "8");
  {
    const Setting local("TUTTI_LOCAL_RANK", "5"), local_size("TUTTI_LOCAL_WORLD_SIZE", "8");
    EXPECT_EQ(bound_by("simulated:local"), "simulated:1") << "5 modulo 2";
  }
  const Made made = make("simulated:local");
  EXPECT_EQ(made.status, TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(made.error.find("TUTTI_LOCAL_RANK"), std::string::npos) << made.error;
}

TEST(BoundDevice, WrongNamesAreRefusedWithAList) {
  for (const auto& [device, status, words] :
       {std::tuple{"nonesuch", TUTTI_NOT_FOUND, "no device \"nonesuch\""},
        std::tuple{"simulated:2", TUTTI_INVALID_ARGUMENT,
                   "\"2\" is neither the number of a device simulated nor \"local\""},
        std::tuple{"simulated:", TUTTI_INVALID_ARGUMENT, "\"\" is neither the number"},
        std::tuple{"simulated:1x", TUTTI_INVALID_ARGUMENT, "\"1x\" is neither the number"}}) {
    const Made made = make(device);
    EXPECT_EQ(made.status, status) << device;
    for (const std::string& word : {std::string(words), std::string("tutti_comm_config.device=\"") + device + "\"",
                                    std::string("simulated: 0 to 1"), std::string("second: 0 to 1")})
      EXPECT_NE(made.error.find(word), std::string::npos) << word << ": " << made.error;
  }
  const Setting device("TUTTI_DEVICE", "simulated:7");
  const Made made = make(nullptr);
  EXPECT_NE(made.error.find("TUTTI_DEVICE=\"simulated:7\""), std::string::npos) << made.error;
}

// One rank's mistake ends the creation of all, at once.
TEST(BoundDevice, TheOthersAreToldOfAWrongName) {
  std::thread wrong([] { EXPECT_EQ(make("nonesuch", 1, 2, "local:wrong").status, TUTTI_NOT_FOUND); });
  const Made made = make("simulated", 0, 2, "local:wrong");
  wrong.join();
  EXPECT_LT(made.status, 0);
  EXPECT_NE(made.error.find("nonesuch"), std::string::npos) << made.error;
}

TEST(BoundDevice, OtherMemoryIsRefusedByBothNames) {
  const Made made = make("simulated:0");
  ASSERT_EQ(made.status, TUTTI_OK) << made.error;
  for (const auto& [name, device, words] :
       {std::tuple{"simulated", 1u,
                   "memory of device simulated 1, but this communicator was bound to device simulated 0"},
        std::tuple{"second", 0u, "memory of device second 0, but this communicator was bound to device simulated 0"}}) {
    void* other = memory_of(name, device, 40);
    EXPECT_EQ(reduce(made.comm, other, other), TUTTI_INVALID_ARGUMENT);
    EXPECT_NE(std::string(tutti_comm_error(made.comm)).find(words), std::string::npos) << tutti_comm_error(made.comm);
    kind(name).memory->release(kind(name).memory->self, other);
  }
  EXPECT_EQ(tutti_comm_destroy(made.comm), TUTTI_OK);
}

TEST(BoundDevice, OperatorsOfTheApplicationServeTheHostOnly) {
  const Made made = make("simulated:0");
  ASSERT_EQ(made.status, TUTTI_OK) << made.error;
  void* data = memory_of("simulated", 0, 40);
  const float factor = 2;
  const tutti_op_config config{sizeof config, 0, "left",
                               [](void*, const void*, uint64_t, uint32_t, void*) -> tutti_status { return TUTTI_OK; }};
  uint32_t ops[2] = {};
  ASSERT_EQ(tutti_op_create(made.comm, &config, &ops[0]), TUTTI_OK);
  ASSERT_EQ(tutti_op_create_premul_sum(made.comm, TUTTI_FLOAT32, &factor, &ops[1]), TUTTI_OK);
  for (const uint32_t op : ops) {
    EXPECT_EQ(tutti_all_reduce(made.comm, data, data, 10, TUTTI_FLOAT32, op, nullptr, nullptr), TUTTI_NOT_SUPPORTED);
    EXPECT_NE(std::string(tutti_comm_error(made.comm))
                  .find("of device simulated 0: operators that the application made serve "
                        "host memory only; copy the data to the host"),
              std::string::npos)
        << tutti_comm_error(made.comm);
  }
  kind("simulated").memory->release(kind("simulated").memory->self, data);
  EXPECT_EQ(tutti_comm_destroy(made.comm), TUTTI_OK);
}

TEST(BoundDevice, WireFormatsServeTheHostOnly) {
  const Made made = make("simulated:0");
  ASSERT_EQ(made.status, TUTTI_OK) << made.error;
  void* data = memory_of("simulated", 0, 40);
  tutti_options options{sizeof options};
  options.wire = TUTTI_WIRE_BFLOAT16;
  EXPECT_EQ(tutti_all_reduce(made.comm, data, data, 10, TUTTI_FLOAT32, TUTTI_SUM, &options, nullptr),
            TUTTI_NOT_SUPPORTED);
  EXPECT_NE(std::string(tutti_comm_error(made.comm))
                .find("options.wire is bfloat16, but the buffers are memory of device simulated 0: wire formats serve "
                      "host memory"),
            std::string::npos)
      << tutti_comm_error(made.comm);
  float numbers[10] = {};
  EXPECT_EQ(tutti_all_reduce(made.comm, numbers, numbers, 10, TUTTI_FLOAT32, TUTTI_SUM, &options, nullptr), TUTTI_OK);
  kind("simulated").memory->release(kind("simulated").memory->self, data);
  EXPECT_EQ(tutti_comm_destroy(made.comm), TUTTI_OK);
}

TEST(BoundDevice, WithoutOneAStreamIsRefused) {
  const Made made = make("none");
  ASSERT_EQ(made.status, TUTTI_OK) << made.error;
  Stream s;
  float data[10] = {};
  EXPECT_EQ(reduce(made.comm, data, data, s.handle), TUTTI_NOT_SUPPORTED);
  EXPECT_NE(std::string(tutti_comm_error(made.comm)).find("bound to no device"), std::string::npos)
      << tutti_comm_error(made.comm);
  EXPECT_EQ(tutti_barrier(made.comm, nullptr, nullptr), TUTTI_OK);
  EXPECT_EQ(tutti_comm_destroy(made.comm), TUTTI_OK);
}

// Ranks of one communicator may be bound to different devices, or to none.
TEST(BoundDevice, RanksDiffer) {
  const auto rank_of = [](const char* device, uint32_t rank) {
    const Made made = make(device, rank, 3, "local:differ");
    ASSERT_EQ(made.status, TUTTI_OK) << made.error;
    EXPECT_EQ(bound(made.comm), device);
    float in[10], out[10];
    std::fill_n(in, 10, static_cast<float>(rank + 1));
    EXPECT_EQ(reduce(made.comm, in, out), TUTTI_OK) << tutti_comm_error(made.comm);
    EXPECT_EQ(out[9], 6);
    char text[4096] = "";
    uint64_t bytes = sizeof text;
    EXPECT_EQ(tutti_comm_topology(made.comm, text, &bytes), TUTTI_OK);
    for (const char* words :
         {"device: simulated 1 (id 73696d756c6174656420202001000000, PCI 5157:00:01.0, NUMA node 0)",
          "device: simulated 0 (id ", "device: none"})
      EXPECT_NE(std::string(text).find(words), std::string::npos) << words << ": " << text;
    EXPECT_EQ(tutti_comm_destroy(made.comm), TUTTI_OK);
  };
  std::thread first(rank_of, "simulated:1", 0), second(rank_of, "simulated:0", 1), third(rank_of, "none", 2);
  for (std::thread* thread : {&first, &second, &third}) thread->join();
}

// How often the simulated device is asked in a number of calls.
template <typename Body>
uint64_t queries(Body&& body) {
  const uint64_t before = counters().queries;
  for (int call = 0; call < 10; ++call) body();
  return counters().queries - before;
}

TEST(BoundDevice, IsAskedOncePerCallOnHostMemoryThatIsNotRegistered) {
  const Made made = make("simulated");
  ASSERT_EQ(made.status, TUTTI_OK) << made.error;
  float in[10] = {}, out[10] = {};
  EXPECT_EQ(queries([&] { EXPECT_EQ(reduce(made.comm, in, out), TUTTI_OK); }), 10u);
  EXPECT_EQ(queries([&] { EXPECT_EQ(tutti_barrier(made.comm, nullptr, nullptr), TUTTI_OK); }), 0u);
  EXPECT_EQ(tutti_comm_destroy(made.comm), TUTTI_OK);
}

TEST(BoundDevice, IsNotAskedOfRegisteredHostMemory) {
  const Made made = make("simulated");
  ASSERT_EQ(made.status, TUTTI_OK) << made.error;
  const auto call = [&](void* memory) {
    auto* in = static_cast<float*>(memory);
    EXPECT_EQ(reduce(made.comm, in, in + 100), TUTTI_OK) << tutti_comm_error(made.comm);
  };
  void* memory = nullptr;
  ASSERT_EQ(tutti_mem_alloc(4096, &memory), TUTTI_OK);
  EXPECT_EQ(queries([&] { call(memory); }), 0u);
  EXPECT_EQ(tutti_mem_free(memory), TUTTI_OK);
  // Device memory may lie where registered memory has been: what was known of it is known no more.
  float stack[200] = {};
  EXPECT_EQ(queries([&] { call(stack); }), 10u);
  void* next = nullptr;
  ASSERT_EQ(tutti_mem_alloc(4096, &next), TUTTI_OK);
  EXPECT_EQ(queries([&] { call(next); }), 0u);
  EXPECT_EQ(tutti_mem_free(next), TUTTI_OK);
  void* at = mmap(next, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(at, next);
  EXPECT_EQ(queries([&] { call(at); }), 10u);
  munmap(at, 4096);
  EXPECT_EQ(tutti_comm_destroy(made.comm), TUTTI_OK);
}

TEST(BoundDevice, IsNotAskedByACommunicatorWithoutOne) {
  const Made made = make("none");
  ASSERT_EQ(made.status, TUTTI_OK) << made.error;
  float in[10] = {}, out[10] = {};
  EXPECT_EQ(queries([&] { EXPECT_EQ(reduce(made.comm, in, out), TUTTI_OK); }), 0u);
  EXPECT_EQ(tutti_comm_destroy(made.comm), TUTTI_OK);
}

// Collectives with unequal blocks go where their buffers are.
TEST(BoundDevice, UnequalBlocksGoWhereTheBuffersAre) {
  const Made made = make("simulated");
  ASSERT_EQ(made.status, TUTTI_OK) << made.error;
  void *in = memory_of("simulated", 0, 40), *out = memory_of("simulated", 0, 40);
  const uint64_t ten = 10, none = 0;
  static_cast<float*>(in)[9] = 7;
  tutti_request* request = nullptr;
  ASSERT_EQ(tutti_all_gather_v(made.comm, in, out, &ten, nullptr, TUTTI_FLOAT32, nullptr, &request), TUTTI_OK)
      << tutti_comm_error(made.comm);
  EXPECT_EQ(tutti_request_wait(request), TUTTI_OK) << tutti_request_error(request);
  tutti_request_free(request);
  EXPECT_EQ(static_cast<float*>(out)[9], 7);
  EXPECT_EQ(tutti_all_gather_v(made.comm, in, out, &none, nullptr, TUTTI_FLOAT32, nullptr, nullptr), TUTTI_OK)
      << "there is nothing of the device's in it: " << tutti_comm_error(made.comm);
  float host_in[10] = {1}, host_out[10] = {};
  EXPECT_EQ(tutti_all_gather_v(made.comm, host_in, host_out, &ten, nullptr, TUTTI_FLOAT32, nullptr, nullptr), TUTTI_OK);
  EXPECT_EQ(host_out[0], 1);
  kind("simulated").memory->release(nullptr, in);
  kind("simulated").memory->release(nullptr, out);
  EXPECT_EQ(tutti_comm_destroy(made.comm), TUTTI_OK);
}

// In checked mode `out` is looked at, too: else host memory as `in` settles it.
TEST(BoundDevice, CheckedCallsLookAtBothBuffers) {
  const Setting checked("TUTTI_CHECK", "1");
  const Made made = make("simulated");
  ASSERT_EQ(made.status, TUTTI_OK) << made.error;
  float in[10] = {};
  void* out = memory_of("simulated", 0, 40);
  EXPECT_EQ(reduce(made.comm, in, out), TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(std::string(tutti_comm_error(made.comm)).find("both have to be on one"), std::string::npos)
      << tutti_comm_error(made.comm);
  kind("simulated").memory->release(nullptr, out);
  EXPECT_EQ(tutti_comm_destroy(made.comm), TUTTI_OK);
}

}  // namespace
}  // namespace tutti::test
