// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <tutti/tutti.h>

namespace tutti::test {

// Collective. Reads what the other ranks have told this one once, at their first uses of memory, and the answers to
// that: transports look for it at every 1,024th poll.
inline void hear_first_uses(tutti_comm* comm) {
  for (int round = 0; round < 3; ++round) {
    for (int poll = 0; poll < 1100; ++poll) {
      tutti_envelope any{sizeof any, TUTTI_ANY_PEER | TUTTI_ANY_TAG};
      ASSERT_GE(tutti_probe(comm, &any, 0), TUTTI_OK) << tutti_comm_error(comm);
    }
    ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
  }
}

}  // namespace tutti::test
