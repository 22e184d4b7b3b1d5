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
  Locked() noexcept {}
};

// The calling thread ends the program: std::terminate leaves Python's other threads where they are.
void keep_others_out();

}  // namespace tutti::python
