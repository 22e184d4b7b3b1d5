// SPDX-License-Identifier: Apache-2.0
//
// Outcomes and attestations as JSON between the runner and its workers.
#pragma once

#include <nlohmann/json.hpp>

#include "case.hpp"

namespace tutti::conformance {

nlohmann::json to_json(const Outcome& outcome);
nlohmann::json to_json(const Attestation& attestation);
// Throw nlohmann::json::exception or std::runtime_error on anything else than what to_json gives.
Outcome outcome_from(const nlohmann::json& json);
Attestation attestation_from(const nlohmann::json& json);

}  // namespace tutti::conformance
