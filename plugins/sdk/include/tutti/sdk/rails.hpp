// SPDX-License-Identifier: Apache-2.0
//
// The table of tutti/plugin/rails.h from two functions:
//
//   static std::vector<sdk::RailFacts> MyTransport::rails();        // of this host
//   std::vector<sdk::RailFacts> MyTransport::Endpoint::rail_facts() const;   // optional
#pragma once

#include <tutti/plugin/rails.h>

#include <string>
#include <tutti/sdk/plugin.hpp>
#include <vector>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {

struct RailFacts {
  struct Address {
    std::string text, interface, kind;
    bool usable = true;
  };
  std::string name, medium, state, why;
  bool chosen = false;
  uint64_t bandwidth = 0;
  int32_t numa = -1;
  uint32_t mtu = 0;
  std::vector<Address> addresses;
  uint64_t sent_bytes = 0, received_bytes = 0;
};

inline void tell(const std::vector<RailFacts>& rails, const tutti_rail_sink& sink) {
  for (const RailFacts& r : rails) {
    std::vector<tutti_rail_address> addresses;
    for (const RailFacts::Address& a : r.addresses)
      addresses.push_back({a.text.c_str(), a.interface.c_str(), a.kind.c_str(), a.usable});
    const tutti_rail rail{sizeof rail,     r.chosen, r.name.c_str(), r.medium.c_str(), r.state.c_str(),  r.why.c_str(),
                          r.bandwidth,     r.numa,   r.mtu,          addresses.data(), addresses.size(), r.sent_bytes,
                          r.received_bytes};
    sink.rail(sink.self, &rail);
  }
}

template <typename T>
constexpr tutti_rails make_rails() {
  tutti_rails table{};
  table.struct_size = sizeof table;
  table.of_host = [](void*, const tutti_rail_sink* sink) {
    return guard([&] { tell(T::rails(), accepted_offer(sink)); });
  };
  if constexpr (requires(const typename T::Endpoint& e) { e.rail_facts(); })
    table.of_endpoint = [](tutti_endpoint* endpoint, const tutti_rail_sink* sink) {
      return guard([&] { tell(from_handle<typename T::Endpoint>(endpoint).rail_facts(), accepted_offer(sink)); });
    };
  return table;
}

}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
