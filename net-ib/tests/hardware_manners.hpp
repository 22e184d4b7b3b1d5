// SPDX-License-Identifier: Apache-2.0
//
// Between libibverbs and the test that is linked with it: soft-RoCE behaves as adapters of hardware may. The verbs
// promise less than soft-RoCE keeps:
//   * a frame may be acknowledged before the receiver can poll its completion, and the error state brings no completion
//     along: it appears later, and after the last one the adapter raises IBV_EVENT_QP_LAST_WQE_REACHED;
//   * RESET throws the queue pair's completions away that were not polled.
// One thread.
#pragma once

#include <chrono>
#include <string>

namespace tutti_test {

struct HardwareManners {
  // The device that behaves so; empty: none.
  std::string device;
  // Completions of receives cannot be polled until so long after their queue pair went into the error state.
  std::chrono::milliseconds late{0};
  // It then raises the event.
  bool tells_the_last = true;
  // A queue pair in the error state completes nothing any more.
  bool is_dead = false;
  // The next request to send on this device fails; empty: none does.
  std::string refuses_a_send;
};
inline HardwareManners manners;

}  // namespace tutti_test
