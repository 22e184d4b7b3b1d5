// SPDX-License-Identifier: Apache-2.0
//
// Ranks' descriptions of themselves, from which every rank computes the topology when a communicator is made.
#include <cmath>

#include "base/failure.hpp"
#include "fuzz_input.hpp"
#include "topology/rank_description.hpp"

using namespace tutti::core;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  FuzzInput input(data, bytes);
  const std::string first = input.bytes(input.take<uint16_t>()), second = input.rest();
  try {
    std::vector<RankDescription> ranks{decode_rank(first, 0), decode_rank(second.empty() ? first : second, 1)};
    for (const RankDescription& rank : ranks) FUZZ_CHECK(encode(decode_rank(encode(rank), 0)) == encode(rank));
    const Topology topology(std::move(ranks));
    std::string why;
    const TransportOffer* offer = topology.transport_of(0, 1, &why);
    FUZZ_CHECK(offer == topology.transport_of(1, 0) && (offer || !why.empty()));
    const TransportOffer* maps = topology.mapping_transport_of(0, 1, &why);
    FUZZ_CHECK(maps == topology.mapping_transport_of(1, 0) && (!maps || (offer && maps->maps)));
    const tutti::LinkCost cost = topology.cost(0, 1);
    FUZZ_CHECK(std::isfinite(cost.latency) && cost.latency >= 0 && std::isfinite(cost.per_byte) && cost.per_byte > 0);
    FUZZ_CHECK(topology.fragment_of(0, 1) % 64 == 0 && topology.smallest_fragment() > 0);
    FUZZ_CHECK(topology.processors_per_rank() > 0 && topology.processors_per_rank() <= 1);
    FUZZ_CHECK(!topology.text().empty());
  } catch (const Failure& failure) {
    FUZZ_CHECK(failure.status == TUTTI_MISMATCH && !failure.text.empty());
  }
  return 0;
}
