// SPDX-License-Identifier: Apache-2.0
//
// Is a transport as fast as this machine lets it be, and as it says? Two ranks measure it in turns with a yardstick. A
// result far below is a warning, which never counts against conformance.
#pragma once

#include "suites.hpp"

namespace tutti::conformance {

Suite performance_suite();

}  // namespace tutti::conformance
