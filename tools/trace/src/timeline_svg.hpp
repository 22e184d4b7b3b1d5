// SPDX-License-Identifier: Apache-2.0
//
// A picture of one communicator's timeline: a row for each rank, boxes for calls, bars below them for waits.
#pragma once

#include <string>

#include "findings.hpp"
#include "timeline.hpp"

namespace trace {

// `window`: the part to be drawn. The size of the picture depends on the ranks and its width, not on the number of
// calls: those that are narrower than a pixel are drawn together. Of more than `most_rows` ranks it shows those that
// were waited for most.
constexpr size_t most_rows = 64;
std::string timeline_svg(const Group& group, const Findings& findings, Span window);

}  // namespace trace
