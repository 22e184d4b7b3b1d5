// SPDX-License-Identifier: Apache-2.0
//
// The bytes by which a peer says where it listens.
#include <tutti/sdk/plugin.hpp>

#include "../src/address.hpp"
#include "fuzz_input.hpp"

using namespace tutti::tcp;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  FuzzInput input(data, bytes);
  static const std::vector<LocalAddress> own = [] {
    std::vector<LocalAddress> made;
    for (const auto& [text, prefix] : {std::pair("10.0.0.1", 8u), {"127.0.0.1", 8u}, {"fd00::1", 64u}}) {
      LocalAddress address{{}, prefix, "eth0"};
      IpAddress::parse(text, address.ip);
      made.push_back(address);
    }
    return made;
  }();
  const bool same_host = input.flag();
  try {
    if (input.flag()) {
      const auto chosen = select_addresses(own, input.rest());
      FUZZ_CHECK(!chosen.empty() && chosen.size() <= own.size());
      return 0;
    }
    const std::string blob = input.rest();
    const PeerAddress peer = PeerAddress::decode(blob);
    FUZZ_CHECK(peer.encode() == blob && !peer.listeners.empty() && peer.listeners.size() <= kMaxAddresses);
    for (const auto& listener : plausible(peer, own, same_host)) FUZZ_CHECK(!listener.text().empty());
  } catch (const tutti::sdk::Error& error) {
    FUZZ_CHECK(error.status() == TUTTI_INVALID_ARGUMENT && *error.what());
  }
  return 0;
}
