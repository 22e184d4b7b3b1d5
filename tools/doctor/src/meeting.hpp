// SPDX-License-Identifier: Apache-2.0
//
// All ranks of a launch tell rank 0 their facts and try each other's hosts.
#pragma once

#include <optional>

#include "judge.hpp"

namespace doctor {

// Collective where a launcher has started several ranks. Rank 0 gets the whole job, the others nothing. A rank that
// meets nobody gets itself alone with the reason in `failure`.
std::optional<Job> examine(Facts mine);

}  // namespace doctor
