// SPDX-License-Identifier: Apache-2.0
//
// bruck: all_to_all in ceil(log2 n) rounds (Bruck et al., "Efficient algorithms for all-to-all communications in
// multiport message-passing systems", 1997), for small blocks and many ranks.
//
// A block from rank r to rank r+d travels by the digits of d to a base, 2 unless "bruck:BASE" says otherwise: in round
// k it moves on by j*base^k where digit k of d is j. So in round k a rank sends, for each digit j > 0, all blocks that
// it holds with that digit as one message to r + j*base^k, and gets as many with the same d from r - j*base^k. At the
// end the block with distance d has come from r-d. ceil(log_base n) rounds of base-1 messages; for base 2 ceil(log2
// n)(a + n/2 N/B) for blocks of N bytes: each block is sent log2(n)/2 times on average. A larger base sends blocks less
// often, in more messages.
//
// A message is one run of chunks: its blocks are packed by copies. They are not unpacked: `held` says where the block
// with distance d is now, in IN at first, later in the scratch that its last message came into.
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"
#include "parameters.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

// The base that the parameters name; 0: they name none.
uint32_t base_of(const Query& q) { return number_behind_name(q, 2, 2, 64); }

struct Bruck {
  static constexpr const char* name = "bruck";
  static constexpr const char* summary = "blocks travel by the digits of their distance: the fewest rounds, more bytes";
  static constexpr uint64_t collectives = mask({TUTTI_ALL_TO_ALL});
  static constexpr bool takes_parameters = true;
  static std::string supports(const Query& q) {
    if (base_of(q)) return "";
    return "expected a base from 2 to 64 behind the colon, got \"" + std::string(q.parameters) + "\"";
  }

  static void schedule(const Query& q, Schedule& s) {
    s.sliced(1);  // one message from each rank to each other
    if (alone(q, s)) return;
    const uint64_t base = base_of(q);
    uint32_t packed = 0, received = 0;  // blocks that leave in a round at most, and that leave in all rounds
    for (uint64_t unit = 1; unit < q.n; unit *= base) {
      uint32_t moving = 0;
      for (uint32_t d = 0; d < q.n; ++d) moving += d / unit % base != 0;
      packed = std::max(packed, moving);
      received += moving;
    }
    s.declare_scratch(packed + received);
    Lane lane = s.lane();
    std::vector<tutti_span> held(q.n);
    for (uint32_t d = 0; d < q.n; ++d) held[d] = in(q.next(d));
    uint32_t arrival = packed, level = 0;
    for (uint64_t unit = 1; unit < q.n; unit *= base, level += 2) {
      uint32_t count = 0;
      for (uint64_t digit = 1; digit < base && digit * unit < q.n; ++digit) {
        const auto distance = static_cast<uint32_t>(digit * unit);
        const uint32_t first = count;
        lane.level(level + 1);
        for (uint32_t d = distance; d < q.n; ++d)
          if (d / unit % base == digit) {
            lane.copy(scratch(count), held[d]);
            held[d] = scratch(arrival + count++);
          }
        lane.level(level + 2);
        lane.send(q.next(distance), scratch(first, count - first));
        lane.recv(q.prev(distance), scratch(arrival + first, count - first));
      }
      arrival += count;
    }
    lane.level(level + 1);
    for (uint32_t d = q.in_place ? 1 : 0; d < q.n; ++d) lane.copy(out(q.prev(d)), held[d]);
  }
};
}  // namespace

const tutti_algorithm bruck = make_algorithm<Bruck>();

}  // namespace tutti::algorithms
