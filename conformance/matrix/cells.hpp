// SPDX-License-Identifier: Apache-2.0
//
// Which cells a level has: made from what the registry's algorithms and transports say of themselves.
#pragma once

#include <vector>

#include "matrix/cell.hpp"
#include "matrix/device.hpp"
#include "selection.hpp"

namespace tutti::conformance {

// How ranks sit on a kind of device: as processes or threads, on so many of its devices. One entry for the host.
struct Layout {
  RanksAs ranks_as = RanksAs::processes;
  uint32_t devices = 0;
};
using Layouts = std::vector<Layout>;
Layouts layouts_of(const Device& device, bool processes, bool threads);

// The cells of one mix on one device (or the host).
//   smoke     every pair of values of a few values of each coordinate, and two cells of each operation with the most of
//             their ranks and elements
//   quick     every pair of all values
//   standard  the same, and whole planes: operation x type x operator, operation x ranks x count, operation x ranks x
//   root
//             x in place
//   full      operation x type x operator x count, operation x type x ranks x count, operation x ranks x root x in
//   place
//             x memory, and 2^31 bytes and around
// An axis that a plane leaves open takes its values in turns. An operation is a collective with an algorithm that
// supports it at the ranks in question.
std::vector<Cell> cells_of(const Selection& selection, const Mix& mix, const Device& device, const Layouts& layouts);

// The counts that break things, for a level: 0, 1, n-1, n, n+1, primes, pages, what surrounds the inline limit, the
// fragment and the size from which cuts are rounded.
std::vector<uint64_t> counts_for(Level level, const Mix& mix, uint32_t nranks, const ElementType& type);

}  // namespace tutti::conformance
