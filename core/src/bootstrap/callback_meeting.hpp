// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>

#include "bootstrap/bootstrap.hpp"

namespace tutti::core {

// Ranks meet by the application's own all-gather function (MPI, a key-value store, ...). Its timeouts are the
// application's, and a rank that is lost during a gather is its to notice.
std::unique_ptr<Bootstrap> meet_by_callback(const Rendezvous& rendezvous);

}  // namespace tutti::core
