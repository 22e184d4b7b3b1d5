// SPDX-License-Identifier: Apache-2.0
//
// A picture of a sequence: a row for each rank, boxes for calls, arrows for messages. The same sequence gives the same
// picture, to the byte.
#pragma once

#include <string>

#include "sequence.hpp"

namespace trace {

// Of more than `most_places` places only these are drawn, and the title says so.
constexpr size_t most_places = 400;
std::string sequence_svg(const Sequence& sequence);

}  // namespace trace
