// SPDX-License-Identifier: Apache-2.0
//
// bruck: all_to_all in ceil(log2 n) rounds (Bruck et al., "Efficient algorithms for all-to-all communications in
// multiport message-passing systems", 1997), for small blocks and many ranks.
//
// A block from rank r to rank r+d travels by the binary digits of d: in round k it moves on by 2^k if bit k of d is
// set. So in round k a rank sends all blocks that it holds with that bit in their d as one message to r + 2^k, and gets
// as many with the same d from r - 2^k. At the end the block with distance d has come from r-d. ceil(log2 n)(a + n/2
// N/B) for blocks of N bytes: each block is sent log2(n)/2 times on average.
//
// A message is one run of chunks: its blocks are packed by copies. They are not unpacked: `held` says where the block
// with distance d is now, in IN at first, later in the scratch that its last message came into.
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

// How many of the distances below n have this bit.
uint32_t with_bit(uint32_t n, uint32_t bit) { return n / (2 * bit) * bit + std::max(n % (2 * bit), bit) - bit; }

struct Bruck {
  static constexpr const char* name = "bruck";
  static constexpr const char* summary = "blocks travel by the bits of their distance: the fewest rounds, more bytes";
  static constexpr uint64_t collectives = mask({TUTTI_ALL_TO_ALL});
  static void schedule(const Query& q, Schedule& s) {
    if (alone(q, s)) return;
    uint32_t packed = 0, received = 0;  // the largest message; all messages
    for (uint32_t bit = 1; bit < q.n; bit *= 2) {
      packed = std::max(packed, with_bit(q.n, bit));
      received += with_bit(q.n, bit);
    }
    s.declare_scratch(packed + received);
    Lane lane = s.lane();
    std::vector<tutti_span> held(q.n);
    for (uint32_t d = 0; d < q.n; ++d) held[d] = in(q.next(d));
    uint32_t arrival = packed;
    for (uint32_t bit = 1; bit < q.n; bit *= 2) {
      uint32_t count = 0;
      for (uint32_t d = bit; d < q.n; ++d)
        if (d & bit) {
          lane.copy(scratch(count), held[d]);
          held[d] = scratch(arrival + count++);
        }
      lane.send(q.next(bit), scratch(0, count));
      lane.recv(q.prev(bit), scratch(arrival, count));
      arrival += count;
    }
    for (uint32_t d = q.in_place ? 1 : 0; d < q.n; ++d) lane.copy(out(q.prev(d)), held[d]);
  }
};
}  // namespace

const tutti_algorithm bruck = make_algorithm<Bruck>();

}  // namespace tutti::algorithms
