// SPDX-License-Identifier: Apache-2.0
//
// The user's selection of addresses, and the choice of the peer's addresses to try.
#include <tutti/sdk/plugin.hpp>

#include "../src/address.hpp"
#include "fuzz_input.hpp"

using namespace tutti::tcp;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  FuzzInput input(data, bytes);
  using boost::asio::ip::make_address;
  static const std::vector<LocalAddress> own{{make_address("10.0.0.1"), 8, "eth0"},
                                             {make_address("127.0.0.1"), 8, "lo"},
                                             {make_address("fd00::1"), 64, "eth0"}};
  static const std::vector<Where> listeners{{make_address("10.9.9.9"), 1},
                                            {make_address("127.0.0.1"), 1},
                                            {make_address("fd00::9"), 1},
                                            {make_address("::1"), 1},
                                            {make_address("192.0.2.1"), 1}};
  const bool same_host = input.flag();
  try {
    const auto chosen = select_addresses(own, input.rest());
    FUZZ_CHECK(!chosen.empty() && chosen.size() <= own.size());
    for (const Where& to : plausible(listeners, chosen, same_host))
      FUZZ_CHECK(!text(to).empty() && (same_host || !to.address().is_loopback()));
  } catch (const tutti::sdk::Error& error) {
    FUZZ_CHECK(error.status() == TUTTI_INVALID_ARGUMENT && *error.what());
  }
  return 0;
}
