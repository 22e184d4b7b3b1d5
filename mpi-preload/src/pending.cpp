// SPDX-License-Identifier: Apache-2.0
#include "pending.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace tutti::mpi {
namespace {

// The state of a generalized request. MPI frees it, after the program's wait or MPI_Request_free.
struct Pending {
  std::unique_ptr<Call> call;
  MPI_Request request;
  int code = MPI_SUCCESS;
};

std::mutex pending_mutex;
std::vector<Pending*> pending;  // in the order in which they were started
std::vector<MPI_Op> given_back;
std::atomic<size_t> n_pending;

int tell(void* state, MPI_Status* status) {
  pmpi::Status_set_elements(status, MPI_BYTE, 0);
  pmpi::Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return static_cast<Pending*>(state)->code;
}

int forget_request(void* state) {
  delete static_cast<Pending*>(state);
  return MPI_SUCCESS;
}

// MPI does not let programs cancel collectives.
int refuse_cancel(void*, int is_complete) { return is_complete ? MPI_SUCCESS : MPI_ERR_REQUEST; }

// Is it over? Then the program learns it from its request.
bool end(Pending& one) {
  std::unique_lock lock(one.call->communicator().mutex(), std::try_to_lock);
  if (!lock || one.call->test() == TUTTI_AGAIN) return false;
  one.code = one.call->finish();
  one.call.reset();
  return true;
}

}  // namespace

int make_request(std::unique_ptr<Call> call, MPI_Request* request) {
  auto one = std::make_unique<Pending>();
  one->call = std::move(call);
  if (const int code = pmpi::Grequest_start(tell, forget_request, refuse_cancel, one.get(), request);
      code != MPI_SUCCESS)
    return code;
  one->request = *request;
  const std::lock_guard lock(pending_mutex);
  pending.push_back(one.release());
  n_pending.store(pending.size());
  return MPI_SUCCESS;
}

bool any_pending() { return n_pending.load(std::memory_order_relaxed) != 0; }

void advance_pending() {
  if (!any_pending()) return;
  const std::unique_lock lock(pending_mutex, std::try_to_lock);
  if (!lock) return;  // another thread is at it
  std::vector<MPI_Request> ended;
  std::erase_if(pending, [&](Pending* one) {
    if (!end(*one)) return false;
    ended.push_back(one->request);
    return true;
  });
  n_pending.store(pending.size());
  for (const MPI_Request& request : ended) pmpi::Grequest_complete(request);
  if (!pending.empty()) return;
  for (MPI_Op& op : given_back) pmpi::Op_free(&op);
  given_back.clear();
}

void rest_for_pending(uint32_t fruitless) {
  constexpr uint32_t polls = 100;
  constexpr uint64_t slice_ns = 100'000;
  if (fruitless < polls) return;
  const std::unique_lock lock(pending_mutex, std::try_to_lock);
  if (!lock || pending.empty()) {
    sched_yield();
    return;
  }
  const std::unique_lock communicator(pending.front()->call->communicator().mutex(), std::try_to_lock);
  if (communicator)
    pending.front()->call->wait_for(slice_ns);
  else
    sched_yield();
}

void complete_pending(const Communicator* communicator) {
  const auto concerns = [&](const Pending* one) { return !communicator || &one->call->communicator() == communicator; };
  for (uint32_t fruitless = 0;; ++fruitless) {
    advance_pending();
    {
      const std::lock_guard lock(pending_mutex);
      if (std::none_of(pending.begin(), pending.end(), concerns)) return;
    }
    rest_for_pending(fruitless);
  }
}

bool keep_until_idle(MPI_Op op) {
  const std::lock_guard lock(pending_mutex);
  if (pending.empty()) return false;
  given_back.push_back(op);
  return true;
}

}  // namespace tutti::mpi
