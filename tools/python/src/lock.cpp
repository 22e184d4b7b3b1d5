// SPDX-License-Identifier: Apache-2.0
#include "lock.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <exception>

namespace tutti::python {
namespace {

std::terminate_handler otherwise = nullptr;
std::atomic<bool> ending{false};
thread_local bool ends_the_program = false;
thread_local int callbacks = 0;  // that this thread is in
const int fork_handler = pthread_atfork(nullptr, nullptr, [] { ending = false; });  // a child does not end with its parent

// Python may end a thread while it handles an exception. In a thread that Python does not know the exception is
// uncaught.
void stay() {
  const bool uncaught = std::current_exception() && !PyGILState_GetThisThreadState();
  if (ends_the_program || uncaught) otherwise();
  for (;;) pause();
}

}  // namespace

Locked::Locked() noexcept { ++callbacks; }
Locked::~Locked() { --callbacks; }

void keep_others_out() {
  ends_the_program = true;
  ending = true;
  if (otherwise) return;
  otherwise = std::get_terminate();
  std::set_terminate(stay);
}

void stay_if_ending() {
  if (!ending || ends_the_program || callbacks > 0) return;
  PyEval_SaveThread();
  for (;;) pause();
}

}  // namespace tutti::python
