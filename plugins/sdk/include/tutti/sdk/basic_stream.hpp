// SPDX-License-Identifier: Apache-2.0
//
// BasicStream, as the core has it.
#pragma once
#include <tutti/net/basic_stream.hpp>
