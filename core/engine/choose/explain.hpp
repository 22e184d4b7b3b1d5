// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "engine/choose/shape.hpp"

namespace tutti::core {

class Selector;
class Topology;

// A table of the algorithms for a call on host memory, with the time that each is predicted to take, and that it took
// by the tuning file; and one for the same call on device memory where all ranks are bound to devices. `order`: that of
// reductions, which are sums.
std::string explain(const Selector& selector, const Topology& topology, uint32_t collective, uint64_t count,
                    uint32_t dtype, Order order);

}  // namespace tutti::core
