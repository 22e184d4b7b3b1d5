// SPDX-License-Identifier: Apache-2.0
//
// k-nomial trees: `tree:K`. The binomial tree of tree.cpp with digits to base K instead of bits.
//
// Places are counted from the root. The parent of v > 0 is v without its lowest digit that is not 0; v's children are v
// + j K^i for the digits i below that one and j = 1 ... K-1. The tree is ceil(log_K n) deep, and a node sends K-1
// messages for each digit. A larger K means fewer delays in a row and more messages one after the other:
// ceil(log_K n)(a + (K-1) N/B) at most, for broadcast and reduce; all_reduce is both, in two lanes.
#pragma once

#include <tutti/sdk/algorithm.hpp>

namespace tutti::algorithms {

constexpr uint32_t most_tree_base = 64;

// Emits broadcast, reduce or all_reduce. n >= 2; base >= 2; all_reduce has two lanes.
void knomial_tree(const sdk::Query& q, sdk::Schedule& s, uint32_t base);

}  // namespace tutti::algorithms
