// SPDX-License-Identifier: Apache-2.0
//
// Why thread blocks wait for ever.
#pragma once

#include <cstdint>
#include <vector>

#include "memory.hpp"
#include "plan.hpp"

namespace tutti::plans {

// `next`: for each thread block, how many operations it has carried out, where no one can go on. Throws an Error unless
// all have ended. It names the operation that waits for what never comes, or one of a ring of operations that wait for
// each other.
void report_stuck(const Plan& plan, const std::vector<uint32_t>& next, const Memory& memory);

}  // namespace tutti::plans
