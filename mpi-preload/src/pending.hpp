// SPDX-License-Identifier: Apache-2.0
//
// Non-blocking calls that Tutti carries out. The program sees each as a generalized request of MPI, so that it may be
// among others in any array. MPI does not advance such requests: MPI_Wait*, MPI_Test* and their like advance Tutti's
// calls first, and complete the requests of those that have ended.
#pragma once

#include <memory>

#include "call.hpp"

namespace tutti::mpi {

// Takes the call, which has been started, and gives its request.
int make_request(std::unique_ptr<Call> call, MPI_Request* request);
bool any_pending();
// Looks at all pending calls once, without waiting.
void advance_pending();
// Between two looks of a wait, the `fruitless`-th in a row without result: may sleep a moment.
void rest_for_pending(uint32_t fruitless);
// Until no call of the communicator is pending; nullptr: of any.
void complete_pending(const Communicator* communicator);
// An operator that the program frees while calls are pending: true if it is freed when none is any more.
bool keep_until_idle(MPI_Op op);

}  // namespace tutti::mpi
