// SPDX-License-Identifier: Apache-2.0
//
// Many programs, one after the other and side by side.
#pragma once

#include <cstdint>
#include <string>

#include "fuzz/generator.hpp"
#include "fuzz/trial.hpp"

namespace tutti::conformance::fuzz {

struct Orders {
  Choice choice;
  TrialOptions trial;
  uint64_t seed = 1;
  double seconds = 60;
  uint32_t jobs = 0;        // programs at once; 0: by the number of cores
  bool keep_going = false;  // findings are counted, none is made small
  bool shrink = false;      // the one program is made small when it fails
  std::string selecting;    // the options that make the same programs again
};

// Both print what they do, and give the exit status: 0 when nothing was found.
int campaign(const Orders& orders);
int replay(const Program& program, uint32_t times, const Orders& orders);

}  // namespace tutti::conformance::fuzz
