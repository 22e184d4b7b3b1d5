// SPDX-License-Identifier: Apache-2.0
//
// The command line.
#pragma once

#include <optional>
#include <string>

namespace doctor {

struct Options {
  enum class Task { examine, passport, compare } task = Task::examine;
  bool json = false;
  bool quick = false;         // passport
  std::string output;         // passport: the files' name without its end
  std::string first, second;  // compare
};

// On failure, and after --help, prints what there is to say and returns nothing with the exit status in `status`.
std::optional<Options> parse_options(int argc, char** argv, int* status);

}  // namespace doctor
