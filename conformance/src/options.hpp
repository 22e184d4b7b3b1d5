// SPDX-License-Identifier: Apache-2.0
//
// Options as users write them: what cannot be meant is refused with what was given, what is possible, and the nearest
// of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "selection.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tutti::conformance {

// All throw std::invalid_argument that begins with the option's name.

// Each value must be among the known ones.
void require_known(const std::string& option, const std::vector<std::string>& values,
                   const std::vector<std::string>& known);
// The same of one word that `what` names: "there is no command "soek"; known are ...; did you mean "soak"?"
[[noreturn]] void unknown_word(const std::string& what, const std::string& word, const std::vector<std::string>& known);

// "; did you mean "shm"?", or "" when no known word is near.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& known);

uint64_t whole_number(const std::string& option, const std::string& text, uint64_t least, uint64_t most);
Level level_from(const std::string& text);
// "K/N": the K-th of N shares.
Share share_from(const std::string& text);

// An option whose value is a number within limits, as the help and the refusal say.
CLI::Option* add_number(CLI::App& app, const char* name, double& value, double least, double most,
                        const std::string& text);

}  // namespace tutti::conformance
