// SPDX-License-Identifier: Apache-2.0
//
// neighbour: an all_gather in which each rank talks to its two neighbours on the ring only (Chen, Zhang, Zhang and
// Yuan, "Performance evaluation of allgather algorithms on terascale Linux cluster with Fast Ethernet", 2005).
//
// n is even. Ranks 2i and 2i+1 are a couple and exchange their blocks first. From then on a rank exchanges two blocks
// with its neighbours in turn, the one outside its couple first: it sends the two that came in the round before. These
// are a couple's, so they lie side by side and are one message.
//
// all_gather   n/2 rounds, n/2 messages and n-1 blocks per rank, the fewest bytes: n/2 a + (n-1) N/B for blocks of N
//              bytes. Half the rounds of the ring, and as the ring no message goes farther than the next rank. An odd n
//              would leave one rank without a partner in each round: refused.
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

// The couple whose blocks come to a rank in a round: 0 is its own, then those around it on both sides by turns.
uint32_t couple_of_round(const Query& q, uint32_t round) {
  const uint32_t couples = q.n / 2, steps = (round + 1) / 2 % couples;
  const bool below = (round % 2 == 1) == (q.rank % 2 == 0);
  return (q.rank / 2 + (below ? couples - steps : steps)) % couples;
}

void all_gather(const Query& q, Schedule& s) {
  const bool even = q.rank % 2 == 0;
  const uint32_t mate = even ? q.rank + 1 : q.rank - 1;
  Lane lane = s.lane().level(1);
  if (!q.in_place) lane.copy(out(q.rank), in());
  lane.send(mate, in());
  lane.recv(mate, out(mate));
  for (uint32_t round = 1; round < q.n / 2; ++round) {
    const uint32_t peer = even == (round % 2 == 1) ? q.prev() : q.next();
    lane.level(round + 1).send(peer, out(2 * couple_of_round(q, round - 1), 2));
    lane.recv(peer, out(2 * couple_of_round(q, round), 2));
  }
}

struct Neighbour {
  static constexpr const char* name = "neighbour";
  static constexpr const char* summary = "neighbours exchange two blocks at a time: half the rounds of a ring, even n";
  static constexpr uint64_t collectives = mask({TUTTI_ALL_GATHER, TUTTI_ALL_GATHER_V});
  static std::string supports(const Query& q) {
    if (q.n == 1 || q.n % 2 == 0) return "";
    return "needs an even number of ranks, there are " + std::to_string(q.n);
  }
  static void schedule(const Query& q, Schedule& s) {
    s.sliced(std::max(1u, q.n / 2));  // a rank talks to the same neighbour in every other round
    if (!alone(q, s)) all_gather(q, s);
  }
};
}  // namespace

const tutti_algorithm neighbour = make_algorithm<Neighbour>();

}  // namespace tutti::algorithms
