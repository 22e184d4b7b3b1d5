// SPDX-License-Identifier: Apache-2.0
//
// FileDescriptor for core/src, which includes nothing of the SDK (core/tests/abi/dependency_test.py).
#pragma once
#include <tutti/sdk/file_descriptor.hpp>
