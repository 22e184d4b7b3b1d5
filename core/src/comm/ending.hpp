// SPDX-License-Identifier: Apache-2.0
//
// How a communicator ends well: all ranks meet once more, find out whether they have made the same calls, and only then
// release what others use.
#pragma once

#include <tutti/tutti.h>

#include <cstddef>
#include <optional>

namespace tutti::core {

class ProgressEngine;

// Collective: tutti_comm_destroy. `open_group`: the calls of a group that was never ended. Returns how the
// communicator has ended, which its breakdown remembers. To be called before the engine is destroyed.
tutti_status end_together(ProgressEngine& engine, std::optional<size_t> open_group);

// To be called where another rank waits in tutti_comm_destroy for this one. It makes no further call. Ends the
// communicator where this rank waits for one, or where the two have made different calls so far.
void check_ending_peer(ProgressEngine& engine);

}  // namespace tutti::core
