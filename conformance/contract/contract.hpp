// SPDX-License-Identifier: Apache-2.0
//
// Contract tests: one transport alone, without collectives, clause by clause of docs/contract.md.
#pragma once

#include "suites.hpp"

namespace tutti::conformance {

Suite contract_suite();

}  // namespace tutti::conformance
