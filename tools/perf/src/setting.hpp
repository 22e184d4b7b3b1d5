// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tutti/tutti.hpp>

#include "result.hpp"

namespace perf {

// Collective: who the ranks are, and what carries their bytes.
Setting meet(const tutti::Communicator& comm);

}  // namespace perf
