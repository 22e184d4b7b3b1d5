// SPDX-License-Identifier: Apache-2.0
//
// The must-pass lists, conformance/mustpass/1.0/KIND.txt: what a transport or an algorithm has to pass to be called
// conforming. They are kept: a list never changes for what has been released.
#pragma once

#include <string>
#include <vector>

namespace tutti::conformance {

// The subject of a list.
struct Subject {
  std::string kind;  // "transport", "algorithm" or "device"
  std::string name;
};

// The patterns of the list of the subject's kind, with its name put in.
std::vector<std::string> must_pass_patterns(const Subject& subject);
// The lines of a list: one pattern each ('*' stands for anything, {transport} or {algorithm} for the subject's name);
// lines that begin with '#' and empty ones aside.
std::vector<std::string> must_pass_lines(const std::string& kind);

}  // namespace tutti::conformance
