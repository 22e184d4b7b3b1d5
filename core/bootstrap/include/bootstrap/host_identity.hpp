// SPDX-License-Identifier: Apache-2.0
//
// host_key, host_space and boot_id for core/src, which includes nothing of the SDK (core/tests/abi/dependency_test.py).
#pragma once
#include <tutti/sdk/host_identity.hpp>
