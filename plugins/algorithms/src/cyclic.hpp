// SPDX-License-Identifier: Apache-2.0
//
// All-gather by doubling and reduce-scatter by halving over n chunks, one per rank, for any n: the first is the
// dissemination pattern of Bruck et al. ("Efficient algorithms for all-to-all communications", 1997), the second is the
// first played backwards. Both take ceil(log2 n) rounds and move n-1 chunks per rank, the fewest possible.
//
// Chunk c is rank c's. From rank r the chunks are seen as a run around the ring: r, r+1, ..., r+n-1. A run that passes
// chunk n-1 of a buffer is two messages. They are cut at the same chunk at both ends.
#pragma once

#include <tutti/sdk/algorithm.hpp>

namespace tutti::algorithms {

// The scratch of reduce_scatter_by_halving: chunk j is as large as chunk r+j.
inline uint32_t halving_scratch(uint32_t n) { return n > 2 ? std::bit_ceil(n) / 2 : 0; }

// Sends and receives the parts of two runs by turns: with two steps in flight no cycle of ranks can wait for each
// other.
template <typename Send, typename Receive>
void exchange(const sdk::CyclicRun& outgoing, const sdk::CyclicRun& incoming, Send send, Receive receive) {
  for (uint32_t i = 0; i < std::max(outgoing.size(), incoming.size()); ++i) {
    if (i < outgoing.size()) send(outgoing[i]);
    if (i < incoming.size()) receive(incoming[i]);
  }
}

// n >= 2. OUT chunks r ... r+have-1 are here, `have` a power of two; round by round twice as many. Steps are of the
// levels above `below`.
inline void all_gather_by_doubling(const sdk::Query& q, sdk::Lane lane, uint32_t below, uint32_t have = 1) {
  for (; have < q.n; have *= 2) {
    lane.level(++below);
    const uint32_t more = std::min(have, q.n - have);
    exchange(
        sdk::CyclicRun(q.rank, more, q.n), sdk::CyclicRun(q.next(have), more, q.n),
        [&](const sdk::Run& run) { lane.send(q.prev(have), sdk::out(run.first, run.count)); },
        [&](const sdk::Run& run) { lane.recv(q.next(have), sdk::out(run.first, run.count)); });
  }
}

// n >= 2. The ceil(log2 n) rounds are the levels. Partial results of chunks r ... r+half-1 stay here and the others
// leave, for half = ..., 4, 2, 1. The complete chunk r goes to `result`.
inline void reduce_scatter_by_halving(const sdk::Query& q, sdk::Lane lane, tutti_span result) {
  uint32_t half = std::bit_ceil(q.n) / 2;
  const uint32_t leave = q.n - half;  // <= half
  const bool at_once = half == 1;
  uint32_t round = 1;
  lane.level(round);
  exchange(
      sdk::CyclicRun(q.next(half), leave, q.n), sdk::CyclicRun(q.rank, leave, q.n),
      [&](const sdk::Run& run) { lane.send(q.next(half), sdk::in(run.first, run.count)); },
      [&](const sdk::Run& run) {
        const tutti_span partial = at_once ? result : sdk::scratch(run.offset, run.count);
        auto step = lane.recv_reduce(q.prev(half), partial, sdk::in(run.first, run.count)).incoming_left();
        if (at_once) step.final();
      });
  // Without as many ranks as the next power of two some chunks that stay got nothing.
  for (const sdk::Run& run : sdk::CyclicRun(q.next(leave), half - leave, q.n))
    lane.copy(sdk::scratch(leave + run.offset, run.count), sdk::in(run.first, run.count));
  for (half /= 2; half > 0; half /= 2) {
    const bool last = half == 1;
    lane.level(++round).send(q.next(half), sdk::scratch(half, half));
    auto step = lane.recv_reduce(q.prev(half), last ? result : sdk::scratch(0, half), sdk::scratch(0, half));
    step.incoming_left();
    if (last) step.final();
  }
}

}  // namespace tutti::algorithms
