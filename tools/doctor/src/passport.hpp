// SPDX-License-Identifier: Apache-2.0
//
// The performance passport of a machine: written here, compared with tomorrow's or the neighbour's.
#pragma once

#include <string>

#include "facts.hpp"

namespace doctor {

// Measures and writes NAME.json and NAME.md; an empty name: tutti-passport-HOST. Prints the page. Throws
// std::runtime_error.
void write_passport(const Facts& facts, bool quick, const std::string& name);

// Prints the ratios of two files. True: something differs by more than 20 %, or is on one side only. Throws
// std::invalid_argument where one is no passport.
bool compare_passports(const std::string& first, const std::string& second);

}  // namespace doctor
