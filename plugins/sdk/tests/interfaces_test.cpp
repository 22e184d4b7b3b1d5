// SPDX-License-Identifier: Apache-2.0
//
// interface_addresses: the loopback interface has the same addresses on every host.
#include <gtest/gtest.h>

#include <algorithm>
#include <tutti/sdk/interfaces.hpp>

namespace {

using tutti::sdk::InterfaceAddress;

TEST(Interfaces, LoopbackHasItsAddressAndPrefix) {
  const std::vector<InterfaceAddress> all = tutti::sdk::interface_addresses();
  const std::array<uint8_t, 16> v4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
  const std::array<uint8_t, 16> v6{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  const auto find = [&](const std::array<uint8_t, 16>& ip) {
    return std::find_if(all.begin(), all.end(), [&](const InterfaceAddress& a) { return a.is_ip && a.ip == ip; });
  };
  ASSERT_NE(find(v4), all.end());
  EXPECT_EQ(find(v4)->interface, "lo");
  EXPECT_EQ(find(v4)->prefix, 8);
  EXPECT_TRUE(find(v4)->flags & IFF_LOOPBACK);
  if (find(v6) == all.end()) return;  // a host without IPv6
  EXPECT_EQ(find(v6)->interface, "lo");
  EXPECT_EQ(find(v6)->prefix, 128);
}

}  // namespace
