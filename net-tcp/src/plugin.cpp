// SPDX-License-Identifier: Apache-2.0
//
// The plugin "tcp": transport/1 and wait_fd/1 over TCP sockets.
#include <tutti/plugin/test_settings.h>

#include <tutti/sdk/transport.hpp>

#include "endpoint.hpp"

namespace {

struct TcpTransport {
  static constexpr const char* name = "tcp";
  static constexpr const char* summary = "TCP sockets over IPv4 and IPv6";
  using Domain = tutti::tcp::Domain;
  using Endpoint = tutti::tcp::Endpoint;
  using Link = tutti::tcp::Link;

  static void query(Domain& domain, tutti_transport_caps& caps) {
    const tutti::tcp::Settings& settings = domain.settings;
    caps.reach = TUTTI_REACH_NETWORK;
    caps.memory_kinds = uint64_t{1} << TUTTI_MEMORY_HOST;
    caps.flags = TUTTI_TRANSPORT_MARKS;
    caps.inline_bytes = tutti::tcp::kInlineBytes;
    caps.fragment_bytes = settings.fragment_bytes;
    caps.receive_depth = tutti::tcp::kQueueDepth;
    caps.latency_ns = 7000;
    caps.bandwidth = 3'000'000'000;
    caps.control_bytes = tutti::tcp::kControlBytes;
  }

  static std::vector<tutti::sdk::RailFacts> rails() {
    return tutti::tcp::interface_facts(tutti::tcp::Settings::read().interfaces);
  }
};

constexpr tutti_transport transport = tutti::sdk::make_transport<TcpTransport>();
constexpr char test_settings[] =
    "TUTTI_TCP_SOCKETS 1 8 1\n"
    "TUTTI_TCP_FRAGMENT_BYTES 4096 67108864 1\n"
    "TUTTI_TCP_EAGER_BYTES 4096 262144 1\n"
    "TUTTI_TCP_KEEPALIVE 0 7200 1\n"
    "TUTTI_TCP_TEST_FIRST 0 4294967295 1\n"
    "TUTTI_TCP_TEST_PIECE 0 1048576 1\n";
static_assert(tutti::tcp::kMaxSockets == 8 && tutti::tcp::kInlineBytes == 4096);

}  // namespace

TUTTI_PLUGIN(net_tcp, "tcp", "0.1.0", "Tutti", "Apache-2.0", "TCP sockets over IPv4 and IPv6",
             {TUTTI_TRANSPORT_ID, &transport}, {TUTTI_TEST_SETTINGS_ID, test_settings});
