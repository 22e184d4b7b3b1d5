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
  ~Locked();

 private:
  PyGILState_STATE state_;
};

// The calling thread, which has the lock, begins to end the program.
void begin_to_end();

// Where a call begins or ends, with the lock: if another thread ends the program, this one gives the lock up and stays.
// Its call may have failed only for that end, and the process may crash if a thread prints while Python ends. A
// callback goes on, since a call waits for it.
void stay_if_ending();

// The thread that ends the program has done its part: no other one comes back to the lock after this.
void keep_others_out();

}  // namespace tutti::python
