// SPDX-License-Identifier: Apache-2.0
//
// The table as a picture: for each collective, time and bus bandwidth against size on logarithmic axes.
#pragma once

#include <string>
#include <vector>

#include "options.hpp"
#include "peers.hpp"
#include "result.hpp"

namespace perf {

// An SVG. Peers appear where they have measured the collective; their bus bandwidth is computed as Tutti's is.
std::string plot(const Options& options, const Setting& setting, const std::vector<Row>& rows,
                 const std::vector<Peer>& peers);

}  // namespace perf
