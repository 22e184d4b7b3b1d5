// SPDX-License-Identifier: Apache-2.0
#include "lock.hpp"

#include <unistd.h>

#include <exception>

namespace tutti::python {
namespace {

std::terminate_handler otherwise = nullptr;
thread_local bool ends_the_program = false;

void stay() {
  if (ends_the_program || std::current_exception()) otherwise();
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
