// SPDX-License-Identifier: Apache-2.0
//
// The report of a case's process that cannot return any more: a signal in the plugin's code, or a call that hangs. Also
// the register of memory whose touching is itself an answer.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::conformance::contract {

// From now on a fatal signal of this process writes an outcome to `descriptor` and ends the process: a Fail when the
// address lies in watched memory, else a Crash that names the plugin's function and, where known, the place in its
// file.
void watch_for_signals(int descriptor);

// Touching [begin, begin + bytes) from now on breaks `clause`; `text` says what the memory [object, object + length),
// in it or beside it, was. Both strings are literals or live as long as the process. Returns a number for
// forget_memory(); any thread.
int watch_memory(const void* begin, size_t bytes, const void* object, size_t length, const char* clause,
                 const char* text);
void forget_memory(int number);

// Events this thread as being in an ABI call; nullptr: no longer. A call that lasts more than `patience` seconds ends
// the process with a Fail of `clause` (once watch_for_blocking was called).
void in_call(const char* function);
const char* current_call();
void watch_for_blocking(int descriptor, double patience, const char* clause);

// Writes an outcome in the form that contract_process reads. Safe in a signal handler.
void write_outcome(int descriptor, const char* verdict, const char* clause, const char* text);

}  // namespace tutti::conformance::contract
