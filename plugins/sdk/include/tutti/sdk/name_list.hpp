// SPDX-License-Identifier: Apache-2.0
//
// Lists of names in settings, as the core has them.
#pragma once
#include <tutti/base/name_list.hpp>
