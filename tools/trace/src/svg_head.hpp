// SPDX-License-Identifier: Apache-2.0
//
// How the pictures begin: their size, title and paper, and the looks of what is drawn.
#pragma once

#include <string>

namespace trace {

std::string svg_head(double width, double height, const std::string& title);

}  // namespace trace
