// SPDX-License-Identifier: Apache-2.0
//
// The names of algorithms that an application allows or rules out: for a communicator (TUTTI_ALGO), or for one call
// (tutti_options.algorithms).
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tutti::core {

class AlgorithmFilter {
 public:
  // TUTTI_ALGO: "all_reduce:ring,tree;all_to_all:bruck:4;all_gather:^bruck". Throws Failure for a text that names no
  // collective, or an algorithm that does not exist.
  explicit AlgorithmFilter(const std::string& text);
  // That of a call: "ring,tree", "^bruck", whatever the collective. `call` begins the text of a Failure.
  AlgorithmFilter(const char* call, const std::string& text);
  // "" when it may be used; else why not.
  std::string refuses(uint32_t collective, const std::string& algorithm) const;
  // The text behind the algorithm's name and a colon; "" for nothing.
  std::string parameters(uint32_t collective, const std::string& algorithm) const;

 private:
  struct Rule {
    bool denies = false;
    std::map<std::string, std::string> names;  // and parameters
    std::string text;
  };
  static constexpr uint32_t every_collective = 0;
  static Rule rule_of(const std::string& setting, const std::string& of, const std::string& list);
  const Rule* rule(uint32_t collective) const;
  std::map<uint32_t, Rule> rules_;
};

}  // namespace tutti::core
