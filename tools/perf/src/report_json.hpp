// SPDX-License-Identifier: Apache-2.0
//
// Everything that was measured, as one JSON object.
#pragma once

#include <string>
#include <vector>

#include "options.hpp"
#include "result.hpp"

namespace perf {

// "complete" is false when the run ended early; `error` then says why.
std::string report_json(const Options& options, const Setting& setting, const std::vector<Row>& rows,
                        const std::vector<Rail>& rails, uint64_t wrong, double average_bus_bandwidth,
                        const std::string& error);

}  // namespace perf
