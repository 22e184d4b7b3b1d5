// SPDX-License-Identifier: Apache-2.0
//
// Exact sums on device memory (TUTTI_COMMAND_EXACT): the bits of the host's kernels, which exact_sum_test.cpp holds
// against rational arithmetic.
#include "../../tests/harness/stream_ranks.hpp"

namespace tutti::test {
namespace {

struct Buffers {
  uint8_t *in, *out;
};
using Call = tutti_status (*)(tutti_comm*, const Buffers&, uint64_t count, uint32_t dtype, uint32_t op,
                              const tutti_options*);

constexpr struct {
  const char* name;
  Call call;
} calls[] = {
    {"all_reduce",
     [](tutti_comm* comm, const Buffers& b, uint64_t count, uint32_t dtype, uint32_t op, const tutti_options* options) {
       return tutti_all_reduce(comm, b.in, b.out, count, dtype, op, options, nullptr);
     }},
    {"reduce",
     [](tutti_comm* comm, const Buffers& b, uint64_t count, uint32_t dtype, uint32_t op, const tutti_options* options) {
       return tutti_reduce(comm, b.in, b.out, count, dtype, op, 0, options, nullptr);
     }},
    {"reduce_scatter",
     [](tutti_comm* comm, const Buffers& b, uint64_t count, uint32_t dtype, uint32_t op, const tutti_options* options) {
       return tutti_reduce_scatter(comm, b.in, b.out, count / tutti_comm_nranks(comm), dtype, op, options, nullptr);
     }},
    {"scan",
     [](tutti_comm* comm, const Buffers& b, uint64_t count, uint32_t dtype, uint32_t op, const tutti_options* options) {
       return tutti_scan(comm, b.in, b.out, count, dtype, op, options, nullptr);
     }},
};

// Every bit pattern comes about: all magnitudes, infinities, NaN.
void compare_with_host(tutti_comm* comm, uint32_t rank, uint64_t count, uint32_t of) {
  Stream s(of);
  tutti_options on_device = on(s), on_host{};
  on_host.struct_size = sizeof on_host;
  on_device.order = on_host.order = TUTTI_ORDER_EXACT;
  for (const uint32_t dtype : {TUTTI_FLOAT16, TUTTI_BFLOAT16, TUTTI_FLOAT32, TUTTI_FLOAT64})
    for (const uint32_t op : {TUTTI_SUM, TUTTI_AVG})
      for (const auto& [name, call] : calls) {
        const uint64_t bytes = count * dtype_bytes(dtype);
        const Buffers device{s.make<uint8_t>(bytes), s.make<uint8_t>(bytes)};
        uint64_t random = dtype * 100 + op * 10 + rank + 1;
        for (uint64_t i = 0; i < bytes; ++i)
          device.in[i] = static_cast<uint8_t>((random = random * 6364136223846793005u + 1442695040888963407u) >> 56);
        std::memset(device.out, 0, bytes);
        std::vector<uint8_t> in(device.in, device.in + bytes), out(bytes);
        ASSERT_EQ(call(comm, device, count, dtype, op, &on_device), TUTTI_OK) << tutti_comm_error(comm);
        ASSERT_EQ(call(comm, {in.data(), out.data()}, count, dtype, op, &on_host), TUTTI_OK) << tutti_comm_error(comm);
        ASSERT_TRUE(s.finish());
        ASSERT_EQ(std::memcmp(device.out, out.data(), bytes), 0) << name << " " << dtype_name(dtype) << " " << op;
        s.free(device.in);
        s.free(device.out);
      }
}

// The first, since a process that has used a device does not fork.
TEST(ExactStream, ProcessesHaveTheBitsOfTheHost) {
  const OnDevices two([](uint32_t rank) { return rank % 2; });
  run_processes(3, 1, [](tutti_comm* comm, uint32_t rank) {
    for (const uint64_t count : {15u, 3000u}) compare_with_host(comm, rank, count, rank % 2);
  });
}

TEST(ExactStream, ThreadsHaveTheBitsOfTheHost) {
  for (const uint32_t n : {1u, 2u, 3u, 5u})
    run_threads(n, [](tutti_comm* comm, uint32_t rank) {
      for (const uint64_t count : {15u, 3000u}) compare_with_host(comm, rank, count, 0);
    });
}

}  // namespace
}  // namespace tutti::test
