// SPDX-License-Identifier: Apache-2.0
//
// The plugin as the core would see it: through its entry table.
#pragma once

#include <tutti/plugin/algorithm.h>

#include <string>
#include <vector>

namespace tutti::test {

// A sanitizer looks at memory: it gets fewer numbers of ranks than a proof.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

// All algorithm/1 interfaces of the plugin, in its order. Initialises it on first use.
const std::vector<const tutti_algorithm*>& algorithms();
// The algorithm of this name, or nullptr.
const tutti_algorithm* find_algorithm(const std::string& name);
// The text that the plugin last gave to set_error.
const std::string& last_error();

// One thing that an algorithm claims to do.
struct Offer {
  const tutti_algorithm* algorithm;
  uint32_t collective;
};
// Every (algorithm, collective) that the plugin offers.
std::vector<Offer> offers();
// "ring_all_reduce", for names of test cases.
std::string offer_name(const Offer& offer);
// " 0 0 1"
std::string text_of(const std::vector<uint32_t>& hosts);

}  // namespace tutti::test
