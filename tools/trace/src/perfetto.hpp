// SPDX-License-Identifier: Apache-2.0
//
// A timeline in the JSON of chrome://tracing, which ui.perfetto.dev opens: a process for each rank, with rows for
// calls, waits, sends and receives, and the steps of each lane; messages are arrows.
#pragma once

#include <ostream>

#include "timeline.hpp"

namespace trace {

void write_perfetto(std::ostream& out, const Timeline& timeline);

}  // namespace trace
