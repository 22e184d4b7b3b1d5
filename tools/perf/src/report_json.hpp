// SPDX-License-Identifier: Apache-2.0
//
// Everything that was measured, as one JSON object.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "options.hpp"
#include "result.hpp"

namespace perf {

// How every report begins: the program, its command and settings; and who the ranks are.
nlohmann::ordered_json report_origin(const std::vector<std::string>& command);
nlohmann::ordered_json report_head(const std::vector<std::string>& command, const Setting& setting);
// How every report ends, as text. "complete" is false when the run ended early; `error` then says why. `wrong`: the
// number of wrong elements, of reports that count them.
std::string finished(nlohmann::ordered_json json, const std::string& error);
std::string finished(nlohmann::ordered_json json, uint64_t wrong, const std::string& error);

std::string report_json(const Options& options, const Setting& setting, const std::vector<Row>& rows,
                        const std::vector<Rail>& rails, uint64_t wrong, double average_bus_bandwidth,
                        const std::string& error);

}  // namespace perf
