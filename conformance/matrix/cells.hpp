// SPDX-License-Identifier: Apache-2.0
//
// Which cells a level has: made from what the registry's algorithms and transports say of themselves.
#pragma once

#include <vector>

#include "matrix/cell.hpp"
#include "selection.hpp"

namespace tutti::conformance {

// The cells of one mix.
//   smoke     every pair of values of a few values of each coordinate
//   quick     every pair of all values
//   standard  the same, and whole planes: operation x type x operator, operation x ranks x count, operation x ranks x
//   root
//             x in place
//   full      operation x type x operator x count, operation x type x ranks x count, operation x ranks x root x in
//   place
//             x memory, and 2^31 bytes and around
// What a plane leaves open takes its values in turns. An operation is a collective with an algorithm that supports it
// at the ranks in question.
std::vector<Cell> cells_of(const Selection& selection, const Mix& mix);

// The counts that break things, for a level: 0, 1, n-1, n, n+1, primes, pages, what surrounds the inline limit, the
// fragment and the size from which cuts are rounded.
std::vector<uint64_t> counts_for(Level level, const Mix& mix, uint32_t nranks, const ElementType& type);

}  // namespace tutti::conformance
