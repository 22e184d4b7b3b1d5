// SPDX-License-Identifier: Apache-2.0
//
// The interpreter's lock. A thread that comes back to it after the interpreter's end is ended by pthread_exit, which in the
// middle of C++ ends the process by SIGABRT. Only daemon threads can be there: Python joins the others before. So they
// stay where they are, and the process ends around them.
#pragma once

#include <pybind11/pybind11.h>

namespace tutti::python {

// Gives the lock up while it lives.
class Unlocked {
 public:
  Unlocked() : thread_(PyEval_SaveThread()) {}
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked();

 private:
  PyThreadState* const thread_;
};

// Has it while it lives, in any thread.
class Locked {
 public:
  Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

// The calling thread, which has the lock, ends the program: no other thread comes back to the lock after this.
void keep_others_out();

}  // namespace tutti::python
