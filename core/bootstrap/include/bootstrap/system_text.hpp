// SPDX-License-Identifier: Apache-2.0
//
// system_text for core/src, which includes nothing of the SDK (core/tests/abi/dependency_test.py).
#pragma once
#include <tutti/sdk/system_text.hpp>
