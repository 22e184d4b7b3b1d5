// SPDX-License-Identifier: Apache-2.0
#include "comm/request.hpp"

namespace tutti::core {

RequestPool::~RequestPool() {
  for (size_t kind = 0; kind < first_.size(); ++kind)
    while (tutti_request* request = take(kind)) delete request;
}

// Only one thread takes, so the first one's `next` stays the same while it is the first.
tutti_request* RequestPool::take(size_t kind) {
  std::atomic<tutti_request*>& first = first_[kind];
  tutti_request* request = first.load(std::memory_order_acquire);
  while (request && !first.compare_exchange_weak(request, request->next, std::memory_order_acquire)) {
  }
  return request;
}

void RequestPool::give_back(tutti_request& request) {
  const auto pool = std::move(request.pool);  // perhaps the last that holds it
  std::atomic<tutti_request*>& first = first_[request.kind.index()];
  request.next = first.load(std::memory_order_relaxed);
  while (!first.compare_exchange_weak(request.next, &request, std::memory_order_release)) {
  }
}

}  // namespace tutti::core
