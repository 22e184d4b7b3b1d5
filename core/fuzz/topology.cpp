// SPDX-License-Identifier: Apache-2.0
//
// Ranks' descriptions of themselves, as bytes or as a topology file, from which every rank computes the topology when a
// communicator is made.
#include <cmath>
#include <stdexcept>

#include "base/failure.hpp"
#include "fuzz_input.hpp"
#include "topology/topology_file.hpp"

using namespace tutti::core;

namespace {

RankDescription described(const std::string& bytes) { return decode<RankDescription>(bytes, "a description"); }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  FuzzInput input(data, bytes);
  try {
    std::vector<RankDescription> ranks;
    if (input.flag()) {
      ranks = read_topology_file(input.rest());
      const std::string file = topology_file(Topology(ranks));
      FUZZ_CHECK(topology_file(Topology(read_topology_file(file))) == file);
      ranks = {ranks.front(), ranks.back()};
    } else {
      const std::string first = input.bytes(input.take<uint16_t>()), second = input.rest();
      ranks = {described(first), described(second.empty() ? first : second)};
    }
    for (const RankDescription& rank : ranks) FUZZ_CHECK(encode(described(encode(rank))) == encode(rank));
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
  } catch (const std::runtime_error& wrong) {  // the file's
    FUZZ_CHECK(*wrong.what());
  }
  return 0;
}
