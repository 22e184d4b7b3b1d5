// SPDX-License-Identifier: Apache-2.0
//
// Checks of a sized struct by its receiver (types.h, docs/abi.md): the core, and plugins through the SDK.
#pragma once

#include <tutti/plugin/types.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace tutti {

// TUTTI_OK, or why a struct is refused.
struct SizeVerdict {
  tutti_status status = TUTTI_OK;
  std::string text;
};

// No struct is longer. A larger struct_size was never set.
constexpr uint32_t most_struct_bytes = 4096;

// For a struct that offers services (tutti_host, a sink), or that is to be filled: it may have more than the receiver
// knows.
template <typename Struct>
SizeVerdict judge_offer(const Struct* given) {
  using Mandatory = tutti_mandatory<Struct>;
  if (!given) return {TUTTI_INVALID_ARGUMENT, std::string("the ") + Mandatory::name + " is NULL"};
  if (given->struct_size >= Mandatory::bytes && given->struct_size <= most_struct_bytes) return {};
  return {TUTTI_INVALID_ARGUMENT, std::string(Mandatory::name) + ".struct_size is " +
                                      std::to_string(given->struct_size) + ", expected at least " +
                                      std::to_string(Mandatory::bytes) + " (its sizeof is " +
                                      std::to_string(sizeof(Struct)) +
                                      " in this version's headers): zero the struct and set struct_size to its sizeof"};
}

// For a struct that may ask for something: the part that the receiver does not know must be zero.
template <typename Struct>
SizeVerdict judge_size(const Struct* given) {
  SizeVerdict verdict = judge_offer(given);
  if (verdict.status < 0 || given->struct_size <= sizeof(Struct)) return verdict;
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (std::all_of(bytes + sizeof(Struct), bytes + given->struct_size, [](unsigned char b) { return b == 0; }))
    return {};
  return {TUTTI_NOT_SUPPORTED, std::string(tutti_mandatory<Struct>::name) + ".struct_size is " +
                                   std::to_string(given->struct_size) + ", and not all is zero behind the " +
                                   std::to_string(sizeof(Struct)) +
                                   " bytes that are known here: leave it zero, or use a newer version here"};
}

// For a table that a plugin offers for a stable interface. The drafts had a stamp where the stable table has `reserved`.
template <typename Table>
SizeVerdict judge_table(const Table* given) {
  SizeVerdict verdict = judge_offer(given);
  if (verdict.status < 0 || given->reserved == 0) return verdict.status < 0 ? verdict : judge_size(given);
  constexpr const char* digits = "0123456789abcdef";
  std::string stamp;
  for (int shift = 28; shift >= 0; shift -= 4) stamp += digits[given->reserved >> shift & 0xf];
  return {TUTTI_NOT_SUPPORTED, std::string(tutti_mandatory<Table>::name) + " is of a draft, of stamp 0x" + stamp +
                                   ", and this Tutti has version 1: compile the plugin with this Tutti's headers"};
}

// The part of a judged struct that the receiver knows. Fields beyond the struct's end are zero.
template <typename Struct>
Struct known_part(const Struct& given) {
  Struct known{};
  std::memcpy(&known, &given, std::min<size_t>(given.struct_size, sizeof known));
  known.struct_size = sizeof known;
  return known;
}

// Fills an output struct as far as the caller has room; judge_offer has judged it.
template <typename Struct>
void fill_room(Struct* out, Struct full) {
  full.struct_size = std::min<uint32_t>(out->struct_size, sizeof full);
  std::memcpy(out, &full, full.struct_size);
}

}  // namespace tutti
