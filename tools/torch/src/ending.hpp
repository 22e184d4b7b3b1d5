// SPDX-License-Identifier: Apache-2.0
//
// The end of the program. A thread of Python's that comes back into the interpreter then is ended by it, and that ends
// the process by SIGABRT, since torch takes the interpreter's lock in a destructor. So such a thread stays where it is,
// as one does that waits in Gloo, and the process ends around it. Only daemon threads can be there: Python joins the
// others before.
#pragma once

namespace tutti::torch {

// The calling thread ends the program: it goes on, and so do the engines' own threads.
void begin_ending();
// The calling thread is an engine's own.
void go_on_while_ending();

// At the beginning or end of a call from wherever: once the program ends this returns in no other thread. One that has
// the interpreter's lock gives it back.
void stay_if_ending();

}  // namespace tutti::torch
