// SPDX-License-Identifier: Apache-2.0
#include "ending.hpp"

#include <Python.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

namespace tutti::torch {
namespace {
std::atomic<bool> ending{false};
std::atomic<int> threads_that_may_stay{0};
thread_local bool goes_on = false;
thread_local bool counted = false;
}  // namespace

void begin_ending() {
  using namespace std::chrono_literals;
  goes_on = true;
  ending = true;
  const int this_thread = counted ? 1 : 0;
  if (threads_that_may_stay > this_thread) std::this_thread::sleep_for(20ms);  // those between two calls begin the next
}

void go_on_while_ending() { goes_on = true; }

void stay_if_ending() {
  if (goes_on) return;
  if (!std::exchange(counted, true)) ++threads_that_may_stay;
  if (!ending.load(std::memory_order_acquire)) return;
  if (PyGILState_Check()) (void)PyEval_SaveThread();
  for (;;) pause();
}

}  // namespace tutti::torch
