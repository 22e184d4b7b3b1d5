// SPDX-License-Identifier: Apache-2.0
//
// The files that the setting TUTTI_IMPORT names, read once, and the algorithms that they become.
#pragma once

#include <tutti/plugin/algorithm.h>

#include <memory>
#include <string>
#include <vector>

namespace tutti::plans {

// The content of one file as an algorithm. Throws an Error with the place of what is wrong.
std::shared_ptr<const tutti_algorithm> import_plan(const std::string& file, const std::string& text);

// "plan.xml:dir": files, and folders with files that end in .xml or .json. Throws an Error where one cannot be read or
// is wrong. The tables live as long as the process.
std::vector<const tutti_algorithm*> import_plans(const std::string& setting);

}  // namespace tutti::plans
