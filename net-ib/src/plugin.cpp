// SPDX-License-Identifier: Apache-2.0
//
// The plugin "ib": transport/1, wait_fd/1 and rails/1 over verbs.
#include <tutti/sdk/transport.hpp>

#include "endpoint.hpp"

namespace {

struct IbTransport {
  static constexpr const char* name = "ib";
  static constexpr const char* summary = "InfiniBand and RoCE v2 through libibverbs";
  using Domain = tutti::ib::Domain;
  using Endpoint = tutti::ib::Endpoint;
  using Link = tutti::ib::Link;

  static void query(Domain& domain, tutti_transport_caps& caps) {
    const tutti::ib::Settings& settings = domain.settings();
    uint64_t megabits = 0;
    bool dma_buf = true;
    for (const tutti::ib::Port& rail : domain.rails()) {
      megabits += rail.megabits;
      dma_buf &= rail.no_dma_buf.empty();
    }
    caps.reach = TUTTI_REACH_NETWORK;
    caps.memory_kinds = uint64_t{1} << TUTTI_MEMORY_HOST;
    caps.flags = TUTTI_TRANSPORT_MARKS;
    if (dma_buf) {  // of any device: registering fails for a descriptor that is not a dma-buf
      caps.memory_kinds = ~uint64_t{0};
      caps.flags |= TUTTI_TRANSPORT_NEEDS_FLUSH;
    } else if (settings.peer_memory) {
      caps.memory_kinds |= uint64_t{1} << TUTTI_MEMORY_CUDA;
      caps.flags |= TUTTI_TRANSPORT_NEEDS_FLUSH;
    }
    caps.inline_bytes = settings.eager_bytes;
    caps.fragment_bytes = settings.fragment_bytes;
    caps.receive_depth = tutti::ib::kQueueDepth;
    caps.control_bytes = static_cast<uint32_t>(settings.eager_bytes);
    caps.latency_ns = 2000;
    caps.bandwidth = megabits * 125'000;
  }

  static std::vector<tutti::sdk::RailFacts> rails() {
    tutti::ib::Settings settings = tutti::ib::Settings::read();
    std::vector<tutti::ib::Port> ports;
    std::vector<size_t> order;
    try {
      tutti::ib::look_around(settings, &ports, &order);
    } catch (const tutti::sdk::Error& error) {
      if (ports.empty() || error.status() != TUTTI_NOT_SUPPORTED) throw;  // otherwise each port has its reason
    }
    std::vector<tutti::sdk::RailFacts> facts;
    for (const tutti::ib::Port& port : ports) facts.push_back(facts_of(port, settings));
    return facts;
  }
};

constexpr tutti_transport transport = tutti::sdk::make_transport<IbTransport>();

}  // namespace

TUTTI_PLUGIN(net_ib, "ib", "0.1.0", "Tutti", "Apache-2.0", "InfiniBand and RoCE v2 through libibverbs",
             {TUTTI_TRANSPORT_ID, &transport});
