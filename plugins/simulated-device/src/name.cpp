// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#ifndef TUTTI_SIMULATED_NAME
#define TUTTI_SIMULATED_NAME "simulated"
#endif

namespace tutti::simulated {

const char device_name[] = TUTTI_SIMULATED_NAME;

}  // namespace tutti::simulated
