// SPDX-License-Identifier: Apache-2.0
//
// The faults to inject, with place and frequency:
//
//   script  = fault { ";" fault }          a newline separates as well; # begins a comment
//   fault   = name [ ":" key "=" value { "," key "=" value } ]
//
//   delay       an arriving message is held back for up to `us` microseconds
//   reorder     an arriving message is held back for up to `polls` progress calls, so that other lanes overtake it
//   partial     a send is refused, at most `times` times in a row on a lane
//   short       a progress call hands over one completion at most, or none; a view does not show an arrived message;
//               neither more than `times` times in a row
//   slow        each progress call takes `us` microseconds
//   lose        a message is not sent, though it completes
//   duplicate   a message is sent twice
//   corrupt     one bit of a message is changed
//   stop        from then on the endpoint does nothing until it is aborted
//   disconnect  the peer is given up, as if the connection had broken
//
// The first five are within the contract of transports, the others are not. Keys of all: p (how likely, 0 to 1), after
// (so many occasions pass first), count (strikes at most; 0: always), rank, peer, lane (only there), min (only messages
// of at least so many bytes). lose, duplicate and corrupt take control=1: control messages instead of data. delay and
// lose take pair=1: pair messages, by which ranks connect, instead of data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti::chaos {

enum class Kind { delay, reorder, partial, short_progress, slow, lose, duplicate, corrupt, stop, disconnect };
constexpr size_t kinds = 10;
const char* name_of(Kind kind);
// Does the contract of transports allow it?
constexpr bool allowed(Kind kind) { return kind <= Kind::slow; }

struct Fault {
  Kind kind{};
  double p = 1;
  uint64_t after = 0;
  uint64_t count = 0;  // 0: always
  uint64_t us = 0;
  uint64_t polls = 0;
  uint64_t times = 0;
  uint64_t min = 0;
  bool control = false, pair = false;
  std::optional<uint32_t> rank, peer, lane;
};

using Script = std::vector<Fault>;

// `where` names the text in errors ("TUTTI_CHAOS"). Throws sdk::Error with the line, the character, what stands there
// and what is known.
Script parse(const std::string& text, const std::string& where);
// The script in its own language: parse gives the same again.
std::string text_of(const Script& script);
// Some faults that the contract allows, by seed.
Script random_script(uint64_t seed);

}  // namespace tutti::chaos
