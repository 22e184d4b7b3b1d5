// SPDX-License-Identifier: Apache-2.0
//
// Numbers and letters in texts for core/src, which includes nothing of the SDK (core/tests/abi/dependency_test.py).
#pragma once
#include <tutti/sdk/text.hpp>
