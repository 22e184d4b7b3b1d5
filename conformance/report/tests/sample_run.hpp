// SPDX-License-Identifier: Apache-2.0
//
// A run as the suite would find it, without running anything: a matrix over three transports and contract cases, with
// every verdict.
#pragma once

#include "result.hpp"

namespace tutti::conformance {

// All passed or not supported; shm, tcp and both. Complete by the must-pass lists.
Run good_run();
// good_run() with a failed, a crashed, a late and a warned case, a must-pass case that was not run, and texts that a
// careless writer would let break a page.
Run bad_run();

}  // namespace tutti::conformance
