// SPDX-License-Identifier: Apache-2.0
//
// Themes: what kinds of programs are drawn. Each looks for one class of defects; "mixed" has some of everything.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti::conformance::fuzz {

struct Range {
  uint32_t least, most;
};

// How often each step of the generator is drawn, relative to the others.
struct Weights {
  uint32_t make, destroy, collective, burst, message, halves, exchange, wait, test, sleep, stop, fork, pause, shrink;
};

enum class Ending { none, death, revocation };

struct Theme {
  const char* name;
  const char* text;
  uint32_t weight;  // among the themes
  Range ranks, strands, comms, steps;
  Range sleep_ms;
  Weights weights;
  Ending ending = Ending::none;
  // Set in all its programs, besides what is drawn.
  std::vector<const char*> settings{};
  bool network = false;  // only transports that reach other hosts
  bool overlap = false;  // as in Program
};

std::span<const Theme> themes();
std::vector<std::string> theme_names();
const Theme& theme_named(const std::string& name);

}  // namespace tutti::conformance::fuzz
