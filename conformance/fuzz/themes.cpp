// SPDX-License-Identifier: Apache-2.0
#include "fuzz/themes.hpp"

#include <stdexcept>

namespace tutti::conformance::fuzz {

std::span<const Theme> themes() {
  // Weights: make destroy collective burst message halves exchange wait test sleep stop fork pause shrink
  static const std::vector<Theme> all{
      {"mixed",
       "some of everything, no rank fails",
       10,
       {2, 4},
       {1, 3},
       {1, 4},
       {20, 120},
       {1, 20},
       {3, 2, 30, 1, 8, 6, 6, 12, 4, 2, 0, 0, 0, 1}},
      {"calls",
       "many short calls",
       12,
       {2, 3},
       {1, 1},
       {1, 2},
       {400, 900},
       {1, 2},
       {1, 0, 60, 2, 10, 6, 6, 10, 3, 0, 0, 0, 0, 0}},
      {"cross",
       "bursts on one communicator while others wait in another",
       6,
       {2, 3},
       {1, 2},
       {2, 3},
       {8, 25},
       {50, 400},
       {2, 0, 8, 8, 4, 4, 3, 4, 1, 8, 0, 0, 0, 0}},
      {"late",
       "ranks come to a link's first use later than connecting takes",
       3,
       {2, 3},
       {1, 2},
       {1, 3},
       {4, 12},
       {1100, 2500},
       {3, 0, 6, 0, 3, 1, 2, 2, 2, 4, 0, 0, 0, 0},
       Ending::none,
       {},
       true},
      {"pause",
       "ranks pause for long while links are made",
       2,
       {2, 2},
       {8, 12},
       {1, 1},
       {1, 2},
       {6000, 7500},
       {0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0},
       Ending::none,
       {"TUTTI_TCP_SOCKETS=8"},
       true},
      {"making",
       "many communicators, made in all ways, little used",
       4,
       {2, 4},
       {1, 3},
       {2, 8},
       {15, 60},
       {1, 20},
       {20, 15, 12, 0, 3, 1, 2, 4, 2, 1, 0, 0, 0, 5}},
      {"fork",
       "children while requests are pending",
       3,
       {2, 3},
       {1, 2},
       {1, 2},
       {8, 30},
       {1, 30},
       {2, 0, 12, 1, 4, 4, 3, 3, 2, 2, 0, 6, 0, 0}},
      {"stop",
       "processes are stopped and go on",
       2,
       {2, 4},
       {1, 2},
       {1, 2},
       {10, 40},
       {1, 30},
       {2, 1, 12, 1, 4, 3, 3, 4, 2, 1, 2, 0, 0, 0}},
      {"death",
       "a rank dies, the others go on without it",
       4,
       {2, 5},
       {1, 1},
       {1, 3},
       {8, 40},
       {1, 50},
       {2, 0, 15, 1, 5, 4, 4, 5, 2, 1, 0, 0, 0, 2},
       Ending::death},
      {"abort",
       "a communicator is aborted or revoked",
       3,
       {2, 5},
       {1, 1},
       {1, 3},
       {8, 40},
       {1, 50},
       {2, 0, 15, 1, 5, 4, 4, 5, 2, 1, 0, 0, 0, 2},
       Ending::revocation},
      {"overlap",
       "communicators are made and destroyed while others have calls under way",
       4,
       {2, 3},
       {1, 2},
       {1, 4},
       {10, 60},
       {1, 100},
       {8, 6, 12, 1, 6, 5, 4, 5, 2, 2, 0, 0, 0, 2},
       Ending::none,
       {},
       false,
       true},
  };
  return all;
}

std::vector<std::string> theme_names() {
  std::vector<std::string> names;
  for (const Theme& theme : themes()) names.emplace_back(theme.name);
  return names;
}

const Theme& theme_named(const std::string& name) {
  for (const Theme& theme : themes())
    if (name == theme.name) return theme;
  throw std::invalid_argument("there is no theme \"" + name + "\"");
}

}  // namespace tutti::conformance::fuzz
