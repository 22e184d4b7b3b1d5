// SPDX-License-Identifier: Apache-2.0
//
// The interpreter's lock at the program's end. Python ends a thread that takes the lock after that, by pthread_exit.
// Its unwinding calls std::terminate at the first destructor or noexcept function of C++, here and in torch. Only
// daemon threads can be there: Python joins the others before. So std::terminate leaves such a thread where it is, and
// the process ends around it.
#pragma once

#include <pybind11/pybind11.h>

namespace tutti::python {

// Has the lock while it lives, in any thread. The unwinding must not reach the callers: some have a catch (...).
struct Locked : pybind11::gil_scoped_acquire {
  Locked() noexcept;
  ~Locked();
};

// The calling thread ends the program: std::terminate leaves the others where they are, unless it is for an exception.
void keep_others_out();

// Where a call begins or ends, with the lock: if another thread ends the program, this one gives the lock up and stays.
// Its call may have failed only for that end, and CPython 3.13 may crash if a thread prints while it ends. A callback
// goes on, since a call waits for it.
void stay_if_ending();

}  // namespace tutti::python
