// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <chrono>
#include <memory>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/environment.hpp"

namespace tutti::core {

// Rank 0 listens at `place`, the others connect until the deadline. With a secret (TUTTI_SECRET) rank 0 listens on all
// interfaces; without one only on that of the address, and says so once. Rank and nranks of the rendezvous are set.
std::unique_ptr<Bootstrap> meet_by_tcp(const Rendezvous& rendezvous, const TcpPlace& place,
                                       const Environment& environment, std::chrono::nanoseconds timeout);

}  // namespace tutti::core
