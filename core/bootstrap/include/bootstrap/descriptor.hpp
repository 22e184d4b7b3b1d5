// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <tutti/sdk/file_descriptor.hpp>

namespace tutti::core {

using Descriptor = FileDescriptor;

}  // namespace tutti::core
