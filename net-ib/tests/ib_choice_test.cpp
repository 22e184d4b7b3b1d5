// SPDX-License-Identifier: Apache-2.0
//
// What is decided without a device: filters, which ports are used and why, which rails and GIDs meet. Needs no verbs.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <tutti/sdk/plugin.hpp>

#include "../src/path.hpp"
#include "../src/port.hpp"
#include "../src/proof.hpp"
#include "../src/verbs.hpp"

namespace tutti::ib {
namespace {

Gid v4(uint32_t index, uint8_t a, uint8_t b, uint8_t c, uint8_t d, bool roce_v2 = true) {
  Gid gid;
  gid.raw = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d};
  gid.index = index;
  gid.roce_v2 = roce_v2;
  gid.prefix = 24;
  return gid;
}
Gid v6(uint32_t index, uint8_t first, uint8_t second, uint8_t subnet, uint8_t host) {
  Gid gid;
  gid.raw = {first, second, 0, 0, 0, 0, 0, subnet, 0, 0, 0, 0, 0, 0, 0, host};
  gid.index = index;
  gid.roce_v2 = true;
  gid.prefix = 64;
  return gid;
}
Port port(const std::string& device, std::vector<Gid> gids, uint32_t megabits = 100000, int numa = -1) {
  Port p;
  p.device = device;
  p.port = 1;
  p.mtu = 5;
  p.up = true;
  p.state = "active";
  p.megabits = megabits;
  p.numa = numa;
  p.gids = std::move(gids);
  return p;
}
PeerRail rail(const Port& p) {
  PeerRail r;
  r.infiniband = p.infiniband;
  r.mtu = p.mtu;
  for (const Gid& g : p.gids)
    if (p.infiniband || g.roce_v2) r.gids.push_back(g.raw);
  return r;
}
PeerAddress peer(const std::vector<Port>& ports) {
  PeerAddress address;
  for (const Port& p : ports) address.rails.push_back(rail(p));
  return address;
}

Settings defaults() {
  Settings s;
  s.rails = kMaxRails;
  return s;
}

TEST(Filter, NamesLeavesOutAndOrders) {
  const HcaFilter names("mlx5_0:1,mlx5_2");
  EXPECT_EQ(names.admits("mlx5_0", 1), 0u);
  EXPECT_EQ(names.admits("mlx5_0", 2), std::nullopt);
  EXPECT_EQ(names.admits("mlx5_2", 7), 1u);
  EXPECT_EQ(names.admits("mlx5_20", 1), 1u) << "a beginning is enough";
  EXPECT_EQ(names.admits("mlx5_1", 1), std::nullopt);
  const HcaFilter whole("=mlx5_2");
  EXPECT_EQ(whole.admits("mlx5_20", 1), std::nullopt);
  const HcaFilter leaves_out("^mlx5_2:1");
  EXPECT_EQ(leaves_out.admits("mlx5_2", 1), std::nullopt);
  EXPECT_EQ(leaves_out.admits("mlx5_2", 2), 0u);
  EXPECT_EQ(HcaFilter("^=a").admits("ab", 1), 0u);
  EXPECT_EQ(HcaFilter().admits("whatever", 3), 0u);
  for (const char* bad : {"", "^", "=", "a,", ",a", "a:", "a:0", "a:256", "a:1x", "a:-1"})
    EXPECT_THROW(HcaFilter{bad}, sdk::Error) << bad;
}

TEST(Choice, TakesNearPortsThatAreUpAndSaysWhyNotTheOthers) {
  std::vector<Port> ports{port("far", {v4(3, 10, 0, 0, 1)}, 400000, 1), port("near", {v4(3, 10, 0, 1, 1)}, 100000, 0),
                          port("fast", {v4(3, 10, 0, 2, 1)}, 200000, 0), port("old", {v4(2, 10, 0, 3, 1, false)}),
                          port("down", {v4(3, 10, 0, 4, 1)})};
  ports[4].up = false;
  ports[4].state = "down";
  std::vector<size_t> order;
  choose_ports(ports, defaults(), 0, &order);
  EXPECT_EQ(order, (std::vector<size_t>{2, 1}));
  EXPECT_NE(ports[0].why.find("NUMA node 1"), std::string::npos) << ports[0].why;
  EXPECT_NE(ports[3].why.find("no RoCE v2 GID"), std::string::npos) << ports[3].why;
  EXPECT_EQ(ports[4].why, "the port is down");
  Settings named = defaults();
  named.hca = HcaFilter("far,near");
  choose_ports(ports, named, 0, &order);
  EXPECT_EQ(order, (std::vector<size_t>{0, 1})) << "the order of the list counts, not nearness";
  Settings one = defaults();
  one.rails = 1;
  choose_ports(ports, one, 0, &order);
  EXPECT_EQ(order, std::vector<size_t>{2});
  EXPECT_EQ(ports[1].why, "beyond TUTTI_IB_RAILS=1");
  Settings none = defaults();
  none.hca = HcaFilter("^far,near,fast");
  try {
    choose_ports(ports, none, 0, &order);
    ADD_FAILURE() << "nothing is left";
  } catch (const sdk::Error& error) {
    EXPECT_EQ(error.status(), TUTTI_NOT_SUPPORTED);
    EXPECT_NE(std::string(error.what()).find("down:1: the port is down"), std::string::npos) << error.what();
  }
}

// A tree as sysfs shows it: two root complexes; below the first a switch with an accelerator and a NIC, and a second
// NIC beside the switch.
class PciTree : public testing::Test {
 protected:
  static constexpr const char* kAccelerator = "0000:17:00.0";
  PciTree() {
    std::string pattern = std::filesystem::temp_directory_path() / "tutti-pci-XXXXXX";
    root_ = mkdtemp(pattern.data());
    add("pci0000:16/0000:16:01.0/0000:17:00.0", "", 1);
    add("pci0000:16/0000:16:01.0/0000:18:00.0", "switched", 1);
    add("pci0000:16/0000:19:00.0", "beside", 1);
    add("pci0000:80/0000:81:00.0", "other", 0);
    std::filesystem::create_directories(root_ / "devices/virtual/net/v0");
    link("class/infiniband/soft/device", "devices/virtual/net/v0");
  }
  ~PciTree() override { std::filesystem::remove_all(root_); }
  void link(const std::string& from, const std::string& to) {
    std::filesystem::create_directories((root_ / from).parent_path());
    std::filesystem::create_symlink(root_ / to, root_ / from);
  }
  void add(const std::string& way, const std::string& nic, int numa) {
    std::filesystem::create_directories(root_ / "devices" / way);
    std::ofstream(root_ / "devices" / way / "numa_node") << numa << "\n";
    link("bus/pci/devices/" + way.substr(way.rfind('/') + 1), "devices/" + way);
    if (!nic.empty()) link("class/infiniband/" + nic + "/device", "devices/" + way);
  }
  std::vector<Port> ports() const {
    std::vector<Port> all{port("soft", {v4(1, 10, 0, 0, 1)}, 400000), port("other", {v4(1, 10, 0, 1, 1)}, 400000, 0),
                          port("beside", {v4(1, 10, 0, 2, 1)}, 400000, 1),
                          port("switched", {v4(1, 10, 0, 3, 1)}, 100000, 1)};
    return all;
  }
  std::filesystem::path root_;
};

TEST_F(PciTree, TheRailBelowTheDevicesSwitchIsNearest) {
  std::vector<Port> all = ports();
  EXPECT_EQ(find_nearness(all, kAccelerator, root_), 1);
  EXPECT_EQ(all[0].shared_hops, 0u) << "no PCI device";
  EXPECT_EQ(all[1].shared_hops, 0u) << "another root complex";
  EXPECT_EQ(all[2].shared_hops, 1u);
  EXPECT_EQ(all[3].shared_hops, 2u);
  Settings near = defaults();
  near.near = kAccelerator;
  std::vector<size_t> order;
  choose_ports(all, near, 1, &order);
  EXPECT_EQ(order, std::vector<size_t>{3}) << "though it is the slowest";
  EXPECT_EQ(all[3].why, "up, nearest to TUTTI_IB_NEAR=0000:17:00.0");
  EXPECT_NE(all[2].why.find("further from TUTTI_IB_NEAR=0000:17:00.0"), std::string::npos) << all[2].why;
  all[3].up = false;
  choose_ports(all, near, 1, &order);
  EXPECT_EQ(order, std::vector<size_t>{2}) << "the next one when that is down";
  near.hca = HcaFilter("other,switched");
  all[3].up = true;
  choose_ports(all, near, 1, &order);
  EXPECT_EQ(order, (std::vector<size_t>{1, 3})) << "names count more";
}

TEST_F(PciTree, WhereNoRailSharesAHopTheNumaNodeOfTheDeviceCounts) {
  std::vector<Port> all = ports();
  all.erase(all.begin() + 2, all.end());
  add("pci0000:c0/0000:c1:00.0", "", 0);
  Settings near = defaults();
  near.near = "0000:c1:00.0";
  const int numa = find_nearness(all, near.near, root_);
  EXPECT_EQ(numa, 0);
  std::vector<size_t> order;
  choose_ports(all, near, numa, &order);
  EXPECT_EQ(all[1].why, "up, on the NUMA node of TUTTI_IB_NEAR");
  EXPECT_THROW(find_nearness(all, "0000:99:00.0", root_), sdk::Error);
  EXPECT_THROW(find_nearness(all, "../../devices/virtual/net/v0", root_), sdk::Error) << "no PCI device";
}

// Many pieces are in flight on three rails: each holds its share by speed, to within one piece.
TEST(Striping, GivesEachRailItsShareBySpeed) {
  constexpr uint64_t kPiece = 64 << 10, kPieces = 700;
  std::vector<Load> rails{{0, 1000}, {0, 4000}, {0, 2000}};
  for (uint64_t i = 0; i < kPieces; ++i) {
    Load* best = &rails[0];
    for (Load& rail : rails)
      if (rail.is_better_for(kPiece, *best)) best = &rail;
    if (i == 0) {
      EXPECT_EQ(best, &rails[1]) << "the fastest of the idle ones";
    }
    best->bytes += kPiece;
  }
  for (const Load& rail : rails)
    EXPECT_NEAR(static_cast<double>(rail.bytes), kPiece * kPieces * rail.weight / 7000.0, kPiece);
}

TEST(Facts, TellEveryGidAndWhetherItIsUsed) {
  Port p = port("mlx5_0", {v6(0, 0xfe, 0x80, 0, 1), v4(2, 10, 1, 0, 1, false), v4(3, 10, 1, 0, 1)}, 100000, 1);
  p.gids[2].interface = "eth2.7";
  p.why = "up";
  p.chosen = true;
  const sdk::RailFacts facts = facts_of(p, defaults());
  EXPECT_EQ(facts.name, "mlx5_0:1");
  EXPECT_EQ(facts.medium, "RoCE");
  EXPECT_EQ(facts.bandwidth, 12'500'000'000u);
  EXPECT_EQ(facts.mtu, 4096u);
  ASSERT_EQ(facts.addresses.size(), 3u);
  EXPECT_EQ(facts.addresses[1].kind, "RoCE v1, GID 2");
  EXPECT_FALSE(facts.addresses[1].usable);
  EXPECT_EQ(facts.addresses[2].text, "10.1.0.1/24");
  EXPECT_EQ(facts.addresses[2].interface, "eth2.7");
  EXPECT_TRUE(facts.addresses[2].usable);
}

TEST(Pairing, TheGidIsTheOneThatSharesThePeersSubnet) {
  // Untagged and tagged (a VLAN's address is a GID of its own), old and new RoCE, both families.
  const std::vector<Port> own{port("a", {v6(0, 0xfe, 0x80, 0, 1), v4(2, 10, 1, 0, 1, false), v4(3, 10, 1, 0, 1),
                                         v4(5, 10, 77, 0, 1), v6(6, 0xfd, 0, 9, 1)})};
  const auto chosen = [&](const Gid& theirs) {
    const auto pairs = pair_rails(own, peer({port("b", {v6(0, 0xfe, 0x80, 0, 2), theirs})}), defaults());
    return pairs.size() == 1 ? pairs[0].gid_index : 999;
  };
  EXPECT_EQ(chosen(v4(9, 10, 1, 0, 2)), 3u);
  EXPECT_EQ(chosen(v4(9, 10, 77, 0, 2)), 5u) << "the tagged one";
  EXPECT_EQ(chosen(v6(9, 0xfd, 0, 9, 2)), 6u);
  EXPECT_EQ(chosen(v4(9, 10, 200, 0, 2)), 3u) << "routed: the same family";
  EXPECT_EQ(chosen(v4(9, 10, 1, 0, 2, false)), 0u) << "its only other GID is RoCE v1: link-local is left";
}

TEST(Pairing, RailsMeetInTheirSubnetsAndOthersStayUnused) {
  const std::vector<Port> own{port("a", {v4(1, 10, 1, 0, 1)}), port("b", {v4(1, 10, 2, 0, 1)}),
                              port("c", {v4(1, 10, 3, 0, 1)})};
  const auto pairs = pair_rails(
      own, peer({port("x", {v4(1, 10, 2, 0, 2)}), port("y", {v4(1, 10, 1, 0, 2)}), port("z", {v4(1, 10, 9, 0, 2)})}),
      defaults());
  ASSERT_EQ(pairs.size(), 2u) << "a routed pair is not tried next to ones that share a subnet";
  EXPECT_EQ(pairs[0].peer_rail, pairs[0].rail == 0 ? 1u : 0u);
  EXPECT_NE(pairs[0].rail, pairs[1].rail);
  // Several rails in one subnet are paired in order.
  const std::vector<Port> flat{port("a", {v4(1, 10, 1, 0, 1)}), port("b", {v4(1, 10, 1, 0, 2)})};
  const auto flat_pairs =
      pair_rails(flat, peer({port("x", {v4(1, 10, 1, 0, 3)}), port("y", {v4(1, 10, 1, 0, 4)})}), defaults());
  ASSERT_EQ(flat_pairs.size(), 2u);
  for (const Pairing& p : flat_pairs) EXPECT_EQ(p.rail, p.peer_rail);
}

TEST(Pairing, TwoRanksOfOneHostMeetOverTheWireWhereTheyCan) {
  const std::vector<Port> host{port("a", {v4(1, 10, 1, 0, 1)}), port("b", {v4(1, 10, 1, 0, 2)})};
  const auto pairs = pair_rails(host, peer(host), defaults());
  ASSERT_EQ(pairs.size(), 2u);
  for (const Pairing& p : pairs) EXPECT_NE(p.rail, p.peer_rail);
  const std::vector<Port> only{port("a", {v4(1, 10, 1, 0, 1)})};
  EXPECT_EQ(pair_rails(only, peer(only), defaults()).size(), 1u) << "one port is better than none";
}

TEST(Pairing, LinkLayersAndFamiliesDoNotMix) {
  Port infiniband = port("ib", {v6(0, 0xfe, 0x80, 0, 1)});
  infiniband.infiniband = true;
  EXPECT_TRUE(pair_rails({infiniband}, peer({port("roce", {v6(0, 0xfe, 0x80, 0, 2)})}), defaults()).empty());
  EXPECT_EQ(pair_rails({infiniband}, peer({infiniband}), defaults()).size(), 1u);
  EXPECT_TRUE(
      pair_rails({port("a", {v4(0, 10, 1, 0, 1)})}, peer({port("b", {v6(0, 0xfd, 0, 1, 1)})}), defaults()).empty());
  Port slow = port("b", {v4(1, 10, 1, 0, 2)});
  slow.mtu = 3;
  EXPECT_EQ(pair_rails({port("a", {v4(0, 10, 1, 0, 1)})}, peer({slow}), defaults())[0].mtu, 3) << "the smaller MTU";
  Settings fixed = defaults();
  fixed.gid_index = 7;
  EXPECT_TRUE(pair_rails({port("a", {v4(0, 10, 1, 0, 1)})}, peer({slow}), fixed).empty());
}

TEST(Address, SurvivesTheTripAndNothingElseDoes) {
  PeerAddress address = peer({port("a", {v4(1, 10, 1, 0, 1), v4(2, 10, 2, 0, 1)}), port("b", {})});
  address.rails[0].greeter = 17;
  address.rails[1].key = 42;
  const std::string blob = address.encode();
  const PeerAddress back = PeerAddress::decode(blob);
  ASSERT_EQ(back.rails.size(), 2u);
  EXPECT_EQ(back.rails[0].gids, address.rails[0].gids);
  EXPECT_EQ(back.rails[0].greeter, 17u);
  EXPECT_EQ(back.rails[1].key, 42u);
  for (size_t n = 0; n < blob.size(); ++n) EXPECT_THROW(PeerAddress::decode(blob.substr(0, n)), sdk::Error) << n;
  EXPECT_THROW(PeerAddress::decode(blob + "x"), sdk::Error);
}

TEST(Proof, CoversEveryByteOfAGreeting) {
  const std::string key = "the job's secret";
  const Secret secret(reinterpret_cast<const uint8_t*>(key.data()), key.size());
  const Secret other(reinterpret_cast<const uint8_t*>(key.data()), key.size() - 1);
  Greeting greeting{};
  greeting.kind = 1;
  secret.sign(greeting);
  EXPECT_TRUE(secret.has_signed(greeting));
  EXPECT_FALSE(other.has_signed(greeting));
  for (size_t i = 0; i < sizeof greeting; ++i) {
    Greeting changed = greeting;
    reinterpret_cast<uint8_t*>(&changed)[i] ^= 1;
    EXPECT_FALSE(secret.has_signed(changed)) << "byte " << i;
  }
}

TEST(Words, EveryCompletionStatusHasSome) {
  EXPECT_EQ(in_words(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded: peer unreachable or its port is down");
  for (int status = 0; status <= IBV_WC_GENERAL_ERR; ++status)
    EXPECT_GT(in_words(static_cast<ibv_wc_status>(status)).size(), 6u) << status;
}

}  // namespace
}  // namespace tutti::ib
