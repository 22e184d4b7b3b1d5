// SPDX-License-Identifier: Apache-2.0
//
// The matrix: collective x algorithm x transport (and mixes) x type x operator x count x ranks x root x in-place x
// memory x alignment, made from what the registry describes.
#pragma once

#include "suites.hpp"

namespace tutti::conformance {

Suite matrix_suite();

}  // namespace tutti::conformance
