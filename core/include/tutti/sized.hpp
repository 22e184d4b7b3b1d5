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

// For a table that a plugin offers. Behind its size it has the stamp of a draft, or 0 if the interface is stable. The
// stamp comes before the tail: a table of another draft is reported as such.
template <typename Table>
SizeVerdict judge_table(const Table* given, uint32_t stamp = 0) {
  if (SizeVerdict verdict = judge_offer(given); verdict.status < 0) return verdict;
  uint32_t found = 0;
  if constexpr (requires { given->stamp; })
    found = given->stamp;
  else
    found = given->reserved;
  if (found == stamp) return judge_size(given);
  const auto hexadecimal = [](uint32_t value) {
    std::string text = "0x";
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[value >> shift & 0xf];
    return text;
  };
  return {TUTTI_NOT_SUPPORTED, std::string(tutti_mandatory<Table>::name) + " has draft stamp " + hexadecimal(found) +
                                   ", this Tutti has " + (stamp ? hexadecimal(stamp) : "the stable table, with 0") +
                                   ": compile the plugin with this Tutti's headers"};
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
