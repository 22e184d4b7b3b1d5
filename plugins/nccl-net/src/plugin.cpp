// SPDX-License-Identifier: Apache-2.0
//
// The plugin "nccl-net": a network plugin of NCCL as a transport. It offers one where TUTTI_NCCL_NET is set.
#include <tutti/plugin/test_settings.h>

#include <map>
#include <mutex>
#include <tutti/sdk/transport.hpp>

#include "endpoint.hpp"

namespace {

namespace sdk = tutti::sdk;

constexpr char summary[] = "a network plugin of NCCL, as TUTTI_NCCL_NET names it";

struct NcclTransport {
  static constexpr const char* name = "nccl";
  static constexpr const char* summary = ::summary;
  using Domain = tutti::nccl::Domain;
  using Endpoint = tutti::nccl::Endpoint;
  using Link = tutti::nccl::Link;

  static void query(Domain& domain, tutti_transport_caps& caps) {
    caps.reach = TUTTI_REACH_NETWORK;
    caps.memory_kinds = uint64_t{1} << TUTTI_MEMORY_HOST;
    caps.flags = TUTTI_TRANSPORT_MARKS;
    if (domain.has_device()) {
      caps.memory_kinds |= uint64_t{1} << domain.device_kind;
      if (domain.network.can_flush()) caps.flags |= TUTTI_TRANSPORT_NEEDS_FLUSH;
    }
    caps.fragment_bytes = domain.fragment_bytes;
    caps.receive_depth = tutti::nccl::kQueueDepth;
    caps.control_bytes = tutti::nccl::kControlBytes;
    caps.latency_ns = domain.adapter.latency_ns ? domain.adapter.latency_ns : 10'000;
    caps.bandwidth = domain.adapter.speed_mbps ? domain.adapter.speed_mbps * 125'000 : 1'000'000'000;
  }
};

// The transport's table with the name of the network that the setting names; nullptr where none does.
const tutti_transport* transport() {
  const auto named = tutti::nccl::Settings::network_named();
  if (!named) return nullptr;
  struct Named {
    std::string name;
    tutti_transport table;
  };
  static std::mutex mutex;
  static auto* all = new std::map<std::string, Named>();  // tables live as long as the process
  const std::lock_guard lock(mutex);
  const auto [at, is_new] = all->try_emplace(*named);
  if (is_new) {
    at->second.name = "nccl:" + tutti::nccl::Network::short_name(*named);
    for (char& c : at->second.name)  // as transports are called
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    at->second.table = sdk::make_transport<NcclTransport>();
    at->second.table.name = at->second.name.c_str();
  }
  return &at->second.table;
}

constexpr char test_settings[] =
    "TUTTI_NCCL_NET_EAGER_BYTES 0 65536 1\n"
    "TUTTI_NCCL_NET_FRAGMENT_BYTES 4096 67108864 1\n";

const tutti_plugin_info info{sizeof(tutti_plugin_info), 0, "nccl-net", "0.1.0", "Tutti", "Apache-2.0", summary};
// The network that this plugin loads may be libnccl-net-tutti.so, whose libtutti finds this plugin as well. That host
// must not take this one's place.
tutti_status init(const tutti_host* given) {
  if (!sdk::host || sdk::host == given) return sdk::start(given, "nccl-net");
  given->set_error(given->self, TUTTI_INVALID_USAGE, "nccl-net: it serves another host in this process already");
  return TUTTI_INVALID_USAGE;
}
const void* get_interface(const char* id, uint32_t index) {
  const tutti_transport* offered = nullptr;
  sdk::guard([&] { offered = transport(); });
  if (!offered) return nullptr;
  return sdk::find_interface({{TUTTI_TRANSPORT_ID, offered}, {TUTTI_TEST_SETTINGS_ID, test_settings}}, id, index);
}

}  // namespace

extern "C" __attribute__((visibility("hidden"))) const tutti_plugin_entry_table tutti_plugin_entry_nccl_net;
const tutti_plugin_entry_table tutti_plugin_entry_nccl_net{
    sizeof(tutti_plugin_entry_table), TUTTI_ABI_MAJOR, TUTTI_ABI_MINOR, 0, &info, init, get_interface};
extern "C" TUTTI_EXPORT __attribute__((weak, alias("tutti_plugin_entry_nccl_net")))
const tutti_plugin_entry_table tutti_plugin_entry;
