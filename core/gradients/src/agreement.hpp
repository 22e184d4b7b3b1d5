// SPDX-License-Identifier: Apache-2.0
//
// All ranks declare equal tensors and settings: they compare them when the gradients are created.
#pragma once

#include <tutti/tutti.hpp>

#include "reducer.hpp"

namespace tutti::gradients {

// Collective. `mine`: nullptr where this rank's arguments are wrong. Throws on all ranks alike unless all are right and
// equal; the text names the ranks and the first difference.
void require_agreement(const Communicator& comm, const Declaration* mine);

}  // namespace tutti::gradients
