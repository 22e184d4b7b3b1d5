// SPDX-License-Identifier: Apache-2.0
//
// Numbers and letters in texts, as the core has them.
#pragma once
#include <tutti/base/text.hpp>
