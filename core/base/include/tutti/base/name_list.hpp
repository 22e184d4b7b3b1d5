// SPDX-License-Identifier: Apache-2.0
//
// The one grammar of all settings that list names (TUTTI_TRANSPORT, TUTTI_ALGO, TUTTI_TCP_INTERFACE, TUTTI_IB_HCA):
//
//   a,b     these
//   ^a,b    every one except a and b: the ^ covers the entire list, as in NCCL's settings
//   =a,b    these, as whole names, where the setting takes beginnings of names; elsewhere the = changes nothing
//   ^=a,b   every one except these whole names
//
// A list in which a later name has a ^ or = of its own (a,^b or ^a,^b) could be read in two ways and is refused.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <tutti/base/text.hpp>
#include <vector>

namespace tutti {

struct NameList {
  bool excludes = false;           // every one except the names
  bool whole = false;              // the names are whole ones, not beginnings
  std::vector<std::string> names;  // in the list's order; none twice, none empty
  std::string problem;             // why the text is no such list and what to write, as a sentence; "" where it is one

  // Does `listed`, one of the names, mean `name` in a setting that takes beginnings of names?
  bool means(std::string_view listed, std::string_view name) const {
    return whole ? listed == name : name.starts_with(listed);
  }
};

// The list that `text`, the value of `setting`, is.
inline NameList name_list(std::string_view setting, std::string_view text) {
  NameList list;
  std::string_view rest = text;
  list.excludes = take_word(rest, "^");
  list.whole = take_word(rest, "=");
  const auto refused = [&](std::string_view name, std::string_view why) {
    list.problem = std::string(setting) + "=\"" + std::string(text) + "\": " + std::string(name) + std::string(why) +
                   "; expected \"a,b\" (these) or \"^a,b\" (every one except a and b; one ^ covers the entire list), " +
                   "and for whole names \"=a,b\" or \"^=a,b\"";
    return list;
  };
  while (true) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string name(rest.substr(0, comma));
    if (name.empty()) return refused("", "a name is empty");
    if (name.front() == '^' || name.front() == '=')
      return refused("\"" + name + "\"", std::string(" has a ") + name.front() + " of its own");
    if (name.find_first_of(" \t\n\r\f\v") != name.npos) return refused("\"" + name + "\"", " has a blank in it");
    if (std::find(list.names.begin(), list.names.end(), name) != list.names.end())
      return refused(name, " is named twice");
    list.names.push_back(name);
    if (comma == rest.size()) return list;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace tutti
