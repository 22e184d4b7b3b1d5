// SPDX-License-Identifier: Apache-2.0
//
// Tutti over a transport that misbehaves: every available transport runs through the plugin chaos. With faults that the
// contract of transports allows, every result is as always. With those that it forbids, every rank gets an error that
// names a rank, the operation and the cause, in time: never a hang, never a wrong result.
#pragma once

#include "suites.hpp"

namespace tutti::conformance {

Suite chaos_suite();

}  // namespace tutti::conformance
