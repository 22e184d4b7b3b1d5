// SPDX-License-Identifier: Apache-2.0
//
// When a transport is called slow. Machines are noisy, and a warning must not be: a transport is held to the best that
// it showed, the yardstick to its median, and only a factor of ten between them is worth a word.
#pragma once

#include <string>
#include <vector>

namespace tutti::conformance {

// Measurements of a transport and, in turns with it, of the yardstick.
struct Figures {
  std::string what;                // "8 bytes exchanged"
  std::string yardstick;           // "a cache line"
  double bytes = 0;                // 0: times are told, else rates
  std::vector<double> own, limit;  // seconds, round by round
  double claim = 0;                // seconds, by the plugin's own capabilities; 0: it claims nothing
  double far = 10;                 // slower by more than this is far below
  double idle = 0;                 // seconds, what the yardstick never exceeds on an idle machine; 0: not known
};

// "" when all is well; else by how much the transport is below the yardstick or below its own claim. A claim counts
// only where the yardstick shows that this machine could meet it.
std::string far_below(const Figures& figures);
// If the yardstick's own rounds differ by more than a factor of two, or all took longer than on any idle machine, the
// machine was busy. A transport must then be slower by as much again to count as slow. Anything in between is not
// judged: the result then says so, with the figures; otherwise "".
std::string not_judged(const Figures& figures);
// All figures in one line, for the report.
std::string in_words(const Figures& figures);

}  // namespace tutti::conformance
