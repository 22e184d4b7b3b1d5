// SPDX-License-Identifier: Apache-2.0
#include "lock.hpp"

#include <unistd.h>

#include <exception>

namespace tutti::python {
namespace {

std::terminate_handler otherwise = nullptr;
thread_local bool ends_the_program = false;

// Python may end a thread while it handles an exception. In a thread that Python does not know the exception is
// uncaught.
void stay() {
  const bool uncaught = std::current_exception() && !PyGILState_GetThisThreadState();
  if (ends_the_program || uncaught) otherwise();
  for (;;) pause();
}

}  // namespace

void keep_others_out() {
  ends_the_program = true;
  if (otherwise) return;
  otherwise = std::get_terminate();
  std::set_terminate(stay);
}

}  // namespace tutti::python
