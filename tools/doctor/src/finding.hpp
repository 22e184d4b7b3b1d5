// SPDX-License-Identifier: Apache-2.0
//
// One thing that is wrong or worth knowing before a job.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace doctor {

enum class Severity { error, warning, note };
NLOHMANN_JSON_SERIALIZE_ENUM(Severity,
                             {{Severity::error, "error"}, {Severity::warning, "warning"}, {Severity::note, "note"}})

struct Finding {
  Severity severity = Severity::note;
  std::string name;             // "cpu_quota": stable, for scripts
  std::string seen;             // with the values that were read
  std::string cost;             // the effect on a job
  std::string mend;             // a command, where one exists
  std::vector<uint32_t> ranks;  // that see it; a judgement of one rank leaves it empty
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Finding, severity, name, seen, cost, mend, ranks)

using Findings = std::vector<Finding>;

}  // namespace doctor
