// SPDX-License-Identifier: Apache-2.0
//
// Scans on device memory between processes: mapped by cuda-ipc, staged over a transport, and both at once.
#include "../../tests/harness/scan_streams.hpp"

namespace tutti::test {
namespace {

void sizes(tutti_comm* comm, uint32_t rank) {
  for (const uint64_t count : {1u, 1000u, 100000u}) check_scans(comm, rank, count);
}

TEST(ScanProcess, Mapped) {
  for (const char* algorithms : {"", doubling_scans, chain_scans})
    for (const uint32_t n : {2u, 3u, 4u})
      run_processes(
          n, 1,
          [](tutti_comm* comm, uint32_t rank) {
            sizes(comm, rank);
            for (const uint32_t collective : {TUTTI_SCAN, TUTTI_EXCLUSIVE_SCAN})
              EXPECT_EQ(served(comm, collective), "simulated+mapped");
          },
          algorithms);
}

TEST(ScanProcess, Staged) {
  setenv("TUTTI_TRANSPORT", "shm", 1);
  for (const char* algorithms : {doubling_scans, chain_scans})
    run_processes(
        3, 1,
        [](tutti_comm* comm, uint32_t rank) {
          sizes(comm, rank);
          for (const uint32_t collective : {TUTTI_SCAN, TUTTI_EXCLUSIVE_SCAN})
            EXPECT_EQ(served(comm, collective), "simulated+shm");
        },
        algorithms);
  unsetenv("TUTTI_TRANSPORT");
}

TEST(ScanProcess, ThreadsAndProcessesMixed) { run_processes(4, 2, sizes); }

TEST(ScanProcess, AcrossHosts) {
  run_processes(3, 1, sizes, chain_scans,
                [](uint32_t rank) { setenv("TUTTI_HOST_ID", rank == 2 ? "elsewhere" : "here", 1); });
}

}  // namespace
}  // namespace tutti::test
