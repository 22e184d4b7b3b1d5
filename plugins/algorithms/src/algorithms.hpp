// SPDX-License-Identifier: Apache-2.0
//
// The algorithms of this plugin, one file each.
#pragma once

#include <tutti/plugin/algorithm.h>

namespace tutti::algorithms {

extern const tutti_algorithm ring;
extern const tutti_algorithm direct;
extern const tutti_algorithm tree;
extern const tutti_algorithm doubling;
extern const tutti_algorithm halving;
extern const tutti_algorithm bruck;
extern const tutti_algorithm hierarchical;
extern const tutti_algorithm three_level;
extern const tutti_algorithm leaders;
extern const tutti_algorithm double_tree;
extern const tutti_algorithm pairwise;
extern const tutti_algorithm chain;
extern const tutti_algorithm hillis_steele;
extern const tutti_algorithm exclusive_doubling;
extern const tutti_algorithm pat;
extern const tutti_algorithm neighbour;
extern const tutti_algorithm swing;
extern const tutti_algorithm canonical_direct;
extern const tutti_algorithm canonical_doubling;
extern const tutti_algorithm canonical_halving;
extern const tutti_algorithm flat;

}  // namespace tutti::algorithms
