// SPDX-License-Identifier: Apache-2.0
//
// make_unnamed_file, as the core has it.
#pragma once
#include <tutti/base/unnamed_file.hpp>
