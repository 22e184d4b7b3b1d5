// SPDX-License-Identifier: Apache-2.0
//
// system_text: what an errno means, as the core has it.
#pragma once
#include <tutti/base/system_text.hpp>
