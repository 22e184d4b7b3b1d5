// SPDX-License-Identifier: Apache-2.0
//
// An abort beside another rank's call on device memory, in each order of the two.
#pragma once

#include <algorithm>

#include "stream_ranks.hpp"

namespace tutti::test {

// When rank 1 aborts: before rank 0 calls, while it does, or after that call has returned.
enum class AbortComes { before, during, after };

inline tutti_status await_error(tutti_comm* comm) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (tutti_comm_async_error(comm) == TUTTI_OK && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return tutti_comm_async_error(comm);
}

// Of 2 ranks in processes of their own, rank 0 calls an all_reduce of int64, and rank 1 aborts instead. `during` has to
// be the first call on device memory between them: it waits for rank 1. The others find a shape that both have called.
inline void abort_beside_a_call(tutti_comm* comm, uint32_t rank, AbortComes when, uint64_t count, uint32_t of = 0) {
  constexpr int64_t untouched = 7;
  const char* const reason = "changed its mind";
  Stream s(of);
  auto* data = s.make<int64_t>(count);
  std::fill_n(data, count, untouched);
  uint8_t word = 0;
  if (rank == 1) {
    ASSERT_EQ(tutti_receive(comm, &word, 1, TUTTI_UINT8, 0, 0, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
    ASSERT_EQ(tutti_comm_abort(comm, reason), TUTTI_OK);
  } else {
    const auto let_it_abort = [&] {  // which may end this send
      const tutti_status sent = tutti_send(comm, &word, 1, TUTTI_UINT8, 1, 0, nullptr, nullptr);
      EXPECT_TRUE(sent == TUTTI_OK || sent == TUTTI_ABORTED) << tutti_comm_error(comm);
    };
    if (when != AbortComes::after) let_it_abort();
    if (when == AbortComes::before) {
      EXPECT_EQ(await_error(comm), TUTTI_ABORTED);
    }
    const tutti_options options = on(s);
    tutti_request* request = nullptr;
    EXPECT_EQ(tutti_all_reduce(comm, data, data, count, TUTTI_INT64, TUTTI_SUM, &options, &request),
              when == AbortComes::after ? TUTTI_OK : TUTTI_ABORTED)
        << tutti_comm_error(comm);
    EXPECT_EQ(request != nullptr, when == AbortComes::after);
    if (when == AbortComes::after) {
      let_it_abort();
      EXPECT_EQ(tutti_request_wait(request), TUTTI_ABORTED);
      EXPECT_NE(std::string(tutti_request_error(request)).find(reason), std::string::npos)
          << tutti_request_error(request);
      tutti_request_free(request);
    }
  }
  EXPECT_TRUE(s.finish()) << "the stream still waits";
  EXPECT_EQ(await_error(comm), TUTTI_ABORTED);
  EXPECT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_ABORTED);
  EXPECT_NE(std::string(tutti_comm_error(comm)).find(reason), std::string::npos) << tutti_comm_error(comm);
  if (when != AbortComes::after) {
    EXPECT_EQ(std::count(data, data + count, untouched), static_cast<int64_t>(count));
  }
  s.free(data);
}

}  // namespace tutti::test
