// SPDX-License-Identifier: Apache-2.0
//
// FileDescriptor, as the core has it.
#pragma once
#include <tutti/base/file_descriptor.hpp>
