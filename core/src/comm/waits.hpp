// SPDX-License-Identifier: Apache-2.0
//
// The application's waits: for a request, for a message, and in a blocking call for its own end.
#pragma once

#include <tutti/tutti.h>

#include <cstdint>

#include "comm/progress_engine.hpp"

namespace tutti::core {

class Waits {
 public:
  explicit Waits(ProgressEngine& engine) : engine_(engine) {}

  // ---- The engine is not held.

  tutti_status test(tutti_request& request);
  // timeout_ns UINT64_MAX: until complete.
  tutti_status wait(tutti_request& request, uint64_t timeout_ns);
  // Waits for a message that the envelope asks for, at most so long: TUTTI_AGAIN.
  tutti_status probe(tutti_envelope& envelope, uint64_t timeout_ns);

  // ---- The engine is held, and nobody else may come in: blocking calls, which take no lock.

  // The blocking collective that operations.begin_blocking() has begun: it runs in this thread.
  tutti_status run(tutti_request& request);
  // Sends and receives.
  tutti_status finish(tutti_request& request);

 private:
  void wait_on(const tutti_request& request, uint32_t& fruitless, uint64_t deadline_ns = Waiter::for_ever);
  tutti_status result_of(const tutti_request& request);

  ProgressEngine& engine_;
  // Polls in a row without progress by waits of limited time: a caller that waits in many short ones comes to sleep.
  uint32_t fruitless_polls_ = 0;
};

}  // namespace tutti::core
