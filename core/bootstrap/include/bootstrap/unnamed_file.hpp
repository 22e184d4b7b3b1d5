// SPDX-License-Identifier: Apache-2.0
//
// make_unnamed_file for core/src, which includes nothing of the SDK (core/tests/abi/dependency_test.py).
#pragma once
#include <tutti/sdk/unnamed_file.hpp>
