// SPDX-License-Identifier: Apache-2.0
//
// Scans on device memory with ranks as threads of one process.
#include "../../tests/harness/scan_streams.hpp"

namespace tutti::test {
namespace {

TEST(ScanStream, Threads) {
  for (const char* algorithms : {"", doubling_scans, chain_scans})
    for (const uint32_t n : {1u, 2u, 3u, 5u, 8u})
      run_threads(
          n,
          [](tutti_comm* comm, uint32_t rank) {
            for (const uint64_t count : {1u, 7u, 20000u}) check_scans(comm, rank, count);
          },
          algorithms);
}

// Any bit pattern, of every type and operator: what the device's streams give is what the host's kernels give.
TEST(ScanStream, SameBitsAsTheHost) {
  for (const char* algorithms : {doubling_scans, chain_scans})
    run_threads(
        3,
        [](tutti_comm* comm, uint32_t rank) {
          constexpr uint64_t count = 333;
          Stream s;
          const tutti_options options = on(s);
          for (const auto call : {tutti_scan, tutti_exclusive_scan})
            for (const uint32_t dtype : all_dtypes())
              for (const uint32_t op : all_ops()) {
                if (!op_is_defined(op, dtype)) continue;
                const uint64_t bytes = count * dtype_bytes(dtype);
                auto *in = s.make<uint8_t>(bytes), *out = s.make<uint8_t>(bytes);
                std::vector<uint64_t> host_in(2 * count), host_out(2 * count);
                uint64_t random = dtype * 100 + op * 10 + rank + 1;
                for (uint64_t i = 0; i < bytes; ++i)
                  in[i] = static_cast<uint8_t>((random = random * 6364136223846793005u + 1442695040888963407u) >> 56);
                std::memset(out, 0, bytes);
                std::memcpy(host_in.data(), in, bytes);
                ASSERT_EQ(call(comm, in, out, count, dtype, op, &options, nullptr), TUTTI_OK) << tutti_comm_error(comm);
                ASSERT_EQ(call(comm, host_in.data(), host_out.data(), count, dtype, op, nullptr, nullptr), TUTTI_OK)
                    << tutti_comm_error(comm);
                ASSERT_TRUE(s.finish());
                ASSERT_EQ(std::memcmp(out, host_out.data(), bytes), 0) << dtype_name(dtype) << " " << op_name(op);
                s.free(in);
                s.free(out);
              }
        },
        algorithms);
}

}  // namespace
}  // namespace tutti::test
