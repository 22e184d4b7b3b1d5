// SPDX-License-Identifier: Apache-2.0
//
// The other end of the runner: a process that runs the cases it is told to, one line of JSON per order and answer.
#pragma once

namespace tutti::conformance {

// Descriptors at which a worker finds its orders and leaves its answers.
constexpr int worker_orders = 3, worker_answers = 4;
// The hidden first argument that makes this program a worker.
constexpr const char* worker_argument = "--worker";

// Runs until the orders end. Returns the exit status.
int run_worker();

}  // namespace tutti::conformance
