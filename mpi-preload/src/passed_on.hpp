// SPDX-License-Identifier: Apache-2.0
//
// A function of MPI whose arguments are only passed on. Handles are pointers in one library and int in the other. Both
// travel in a register or a stack slot of 64 bits, as every argument of these functions does, so they are passed on as
// words.
#pragma once

#include <cstdint>

namespace tutti::mpi {

using Word = std::intptr_t;
// As many as MPI_Sendrecv has, which has most.
using PassedOn = Word (*)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);
static_assert(sizeof(Word) == 8, "arguments are passed on as words of 64 bits");

}  // namespace tutti::mpi
