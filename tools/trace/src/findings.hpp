// SPDX-License-Identifier: Apache-2.0
//
// Findings about one communicator's trace: who is waited for, which link is slow, which calls take the time.
//
// A wait is not the fault of the rank that it names if that rank waits itself at the time: it is passed on, as far as
// the waits go. The rank at the end of the chain is blamed, either for not having called yet (it is late) or for what
// it did inside a call. Where a chain is a circle, a message is on its way, and no rank is blamed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "timeline.hpp"

namespace trace {

struct RankFindings {
  uint32_t rank = 0;
  uint64_t calls = 0;
  int64_t in_calls_ns = 0;  // calls, sends and receives; what overlaps counts once
  int64_t waited_ns = 0;    // of that, without anything moving
  int64_t late_ns = 0;      // others waited for it while it was outside of calls
  int64_t slow_ns = 0;      // others waited for it while it was inside
  int64_t blamed_ns() const { return late_ns + slow_ns; }
};

// Messages of steps from one rank to another.
struct LinkFindings {
  uint32_t from = 0, to = 0;
  std::string transport;
  uint64_t messages = 0, bytes = 0;
  int64_t busy_ns = 0;  // while one was on its way and both ends were there
  double gigabytes_per_second() const { return busy_ns > 0 ? double(bytes) / double(busy_ns) : 0; }
};

struct CallFindings {
  std::string text;  // "all_reduce(1000 x float32, sum)"
  std::string served_by;
  uint64_t calls = 0;    // of one rank
  int64_t total_ns = 0;  // mean of the ranks
  int64_t longest_ns = 0;
  std::string longest;  // "#17, tag 7"
};

// A message whose both ends are recorded.
struct Message : Span {  // from the sender's begin to the receiver's end
  uint32_t from = 0, to = 0;
  const Step* send = nullptr;
  const Step* receive = nullptr;
};

struct Findings {
  std::vector<RankFindings> ranks;
  int64_t in_transit_ns = 0;        // waits for which no rank is blamed
  std::vector<LinkFindings> links;  // slowest first; those with too few bytes to judge are left out
  std::vector<CallFindings> calls;  // most time first
  // The rank that others waited for most; nothing where no rank stands out.
  std::optional<uint32_t> straggler;
  const RankFindings* find(uint32_t rank) const;
};

std::string call_text(const Call& call);
// "#17", "#17, tag 7"
std::string number_text(const Call& call);
std::vector<Message> match_messages(const Group& group);
Findings find(const Group& group);

}  // namespace trace
