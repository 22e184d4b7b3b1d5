// SPDX-License-Identifier: Apache-2.0
//
// Lists of names in settings for core/src, which includes nothing of the SDK (core/tests/abi/dependency_test.py).
#pragma once
#include <tutti/sdk/name_list.hpp>
