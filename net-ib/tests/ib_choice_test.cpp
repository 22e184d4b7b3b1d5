// SPDX-License-Identifier: Apache-2.0
//
// Decisions without a device: filters, the choice of ports and its reasons, the pairing of rails and GIDs.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <tutti/sdk/plugin.hpp>

#include "../src/path.hpp"
#include "../src/port.hpp"
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
Settings defaults() {
  Settings s;
  s.rails = kMaxRails;
  return s;
}

std::vector<OfferedRail> offers(const std::vector<Port>& ports, const Settings& settings) {
  std::vector<OfferedRail> rails;
  for (const Port& p : ports) rails.push_back(p.offer(settings));
  return rails;
}
// The lower rank's ports with the higher one's.
std::vector<Pairing> meet(const std::vector<Port>& lower, const std::vector<Port>& higher, const Settings& settings) {
  return pair_rails(offers(lower, settings), offers(higher, settings));
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
  for (const char* bad :
       {"", "^", "=", "a,", ",a", "a:", ":1", "a:0", "a:256", "a:1x", "a:-1", "a,^b", "^a,^b", "a,=b"})
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
  EXPECT_EQ(all[1].why, "up, on the NUMA node of TUTTI_IB_NEAR=0000:c1:00.0");
  EXPECT_THROW(find_nearness(all, "0000:99:00.0", root_), sdk::Error);
  EXPECT_THROW(find_nearness(all, "../../devices/virtual/net/v0", root_), sdk::Error) << "no PCI device";
}

// The device of the domain is what rails are near, unless the user has said otherwise.
TEST_F(PciTree, TheDomainsDeviceIsPreferredUnlessTheUserNamesAnother) {
  tutti_domain_config domain{};
  domain.struct_size = sizeof domain;
  Settings settings = defaults();
  settings.prefer_near(domain);
  EXPECT_EQ(settings.near, "") << "no device is known";
  domain.device_pci = "0000:AB:00.0";  // as some drivers write it
  settings.prefer_near(domain);
  EXPECT_EQ(settings.near, "0000:ab:00.0");
  settings = defaults();
  domain.device_pci = kAccelerator;
  settings.prefer_near(domain);
  std::vector<Port> all = ports();
  std::vector<size_t> order;
  choose_ports(all, settings, find_nearness(all, settings.near, root_), &order);
  EXPECT_EQ(order, std::vector<size_t>{3});
  EXPECT_EQ(all[3].why, "up, nearest to device 0000:17:00.0");
  settings = defaults();
  settings.near = "0000:81:00.0";
  settings.prefer_near(domain);
  choose_ports(all, settings, find_nearness(all, settings.near, root_), &order);
  EXPECT_EQ(order, std::vector<size_t>{1});
  EXPECT_EQ(all[1].why, "up, nearest to TUTTI_IB_NEAR=0000:81:00.0");
}

TEST(Speed, IsWhatSysfsSays) {
  EXPECT_EQ(megabits_of_rate("100 Gb/sec (4X EDR)"), 100000u);
  EXPECT_EQ(megabits_of_rate("800 Gb/sec (4X XDR)"), 800000u);
  EXPECT_EQ(megabits_of_rate("2.5 Gb/sec (1X SDR)"), 2500u);
  for (const char* none : {"", "fast", "100", "100 Mb/sec"}) EXPECT_EQ(megabits_of_rate(none), 0u) << none;
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
    EXPECT_NEAR(static_cast<double>(rail.bytes), kPiece * kPieces * rail.weight / 7000, kPiece);
}

TEST(Striping, FollowsTheSpeedThatIsMeasured) {
  Load fast{0, 1000}, slow{0, 1000};  // as their ports say
  for (int i = 0; i < 40; ++i) {
    fast.measured(64000, std::chrono::microseconds(64));
    slow.measured(64000, std::chrono::microseconds(640));
  }
  EXPECT_NEAR(fast.weight, 1000, 10);
  EXPECT_NEAR(slow.weight, 100, 10);
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
    const auto pairs = meet(own, {port("b", {v6(0, 0xfe, 0x80, 0, 2), theirs})}, defaults());
    return pairs.size() == 1 ? pairs[0].own.gid.index : 999;
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
  const auto pairs =
      meet(own, {port("x", {v4(1, 10, 2, 0, 2)}), port("y", {v4(1, 10, 1, 0, 2)}), port("z", {v4(1, 10, 9, 0, 2)})},
           defaults());
  ASSERT_EQ(pairs.size(), 2u) << "a routed pair is not tried next to ones that share a subnet";
  EXPECT_EQ(pairs[0].peer.rail, pairs[0].own.rail == 0 ? 1u : 0u);
  EXPECT_NE(pairs[0].own.rail, pairs[1].own.rail);
  // Several rails in one subnet are paired in order.
  const std::vector<Port> flat{port("a", {v4(1, 10, 1, 0, 1)}), port("b", {v4(1, 10, 1, 0, 2)})};
  const auto flat_pairs = meet(flat, {port("x", {v4(1, 10, 1, 0, 3)}), port("y", {v4(1, 10, 1, 0, 4)})}, defaults());
  ASSERT_EQ(flat_pairs.size(), 2u);
  for (const Pairing& p : flat_pairs) EXPECT_EQ(p.own.rail, p.peer.rail);
}

// Rails in subnets of their own behind routers, and adapters in subnets that all hosts share.
TEST(Pairing, ASlowAdapterInASharedSubnetHidesNoFasterRails) {
  struct Nic {
    uint32_t gigabits;
    uint8_t subnet;  // 0: one of its own on each host
  };
  struct Case {
    const char* what;
    std::vector<Nic> nics;
    std::vector<uint32_t> rails;  // that are paired, in order
  };
  const Case cases[] = {
      {"routed only", {{400, 0}, {400, 0}}, {0, 1}},
      {"a management adapter", {{400, 0}, {400, 0}, {400, 0}, {25, 7}}, {0, 1, 2, 3}},
      {"... that comes first", {{25, 7}, {400, 0}, {400, 0}}, {1, 2, 0}},
      {"as fast as the rails: it is sure", {{400, 0}, {400, 7}}, {1}},
      {"nearly as fast", {{100, 0}, {100, 7}, {56, 8}}, {1, 2}},
      {"faster than the rails", {{100, 0}, {400, 7}}, {1}},
      {"every subnet is shared", {{25, 7}, {400, 8}, {400, 9}}, {1, 2, 0}},
  };
  const auto host = [](const Case& c, uint8_t number) {
    std::vector<Port> ports;
    for (const Nic& nic : c.nics) {
      const auto place = static_cast<uint8_t>(ports.size());
      ports.push_back(port("mlx5_" + std::to_string(place),
                           {nic.subnet ? v4(3, 10, 0, nic.subnet, number) : v4(3, 10, 100 + number, place, 1)},
                           nic.gigabits * 1000));
    }
    return ports;
  };
  for (const Case& c : cases) {
    std::vector<uint32_t> rails;
    for (const Pairing& p : meet(host(c, 1), host(c, 2), defaults())) {
      rails.push_back(p.own.rail);
      EXPECT_EQ(p.peer.rail, p.own.rail) << c.what;
    }
    EXPECT_EQ(rails, c.rails) << c.what;
  }
}

// A link that came up at half its speed is still paired in its subnet, not crosswise with a faster one.
TEST(Pairing, SharedSubnetsCountMoreThanSpeed) {
  const std::vector<Port> own{port("a", {v4(3, 10, 0, 1, 1)}, 400000), port("b", {v4(3, 10, 0, 2, 1)}, 200000)};
  const auto pairs =
      meet(own, {port("x", {v4(3, 10, 0, 2, 2)}, 400000), port("y", {v4(3, 10, 0, 1, 2)}, 200000)}, defaults());
  ASSERT_EQ(pairs.size(), 2u);
  for (const Pairing& p : pairs) EXPECT_NE(p.own.rail, p.peer.rail);
}

TEST(Pairing, InOneSubnetRailsMeetTheirEquals) {
  const std::vector<Port> own{port("fast", {v4(3, 10, 0, 1, 1)}, 400000), port("slow", {v4(3, 10, 0, 1, 2)}, 25000)};
  const auto pairs =
      meet(own, {port("slow", {v4(3, 10, 0, 1, 3)}, 25000), port("fast", {v4(3, 10, 0, 1, 4)}, 400000)}, defaults());
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].own.rail, 0u) << "the fast ones";
  EXPECT_EQ(pairs[0].peer.rail, 1u);
}

TEST(Pairing, TwoRanksOfOneHostMeetOverTheWireWhereTheyCan) {
  const std::vector<Port> host{port("a", {v4(1, 10, 1, 0, 1)}), port("b", {v4(1, 10, 1, 0, 2)})};
  const auto pairs = meet(host, host, defaults());
  ASSERT_EQ(pairs.size(), 2u);
  for (const Pairing& p : pairs) EXPECT_NE(p.own.rail, p.peer.rail);
  const std::vector<Port> only{port("a", {v4(1, 10, 1, 0, 1)})};
  EXPECT_EQ(meet(only, only, defaults()).size(), 1u) << "one port is better than none";
}

TEST(Pairing, LinkLayersAndFamiliesDoNotMix) {
  Port infiniband = port("ib", {v6(0, 0xfe, 0x80, 0, 1)});
  infiniband.infiniband = true;
  EXPECT_TRUE(meet({infiniband}, {port("roce", {v6(0, 0xfe, 0x80, 0, 2)})}, defaults()).empty());
  EXPECT_EQ(meet({infiniband}, {infiniband}, defaults()).size(), 1u);
  EXPECT_TRUE(meet({port("a", {v4(0, 10, 1, 0, 1)})}, {port("b", {v6(0, 0xfd, 0, 1, 1)})}, defaults()).empty());
  Port slow = port("b", {v4(1, 10, 1, 0, 2)});
  slow.mtu = 3;
  EXPECT_EQ(meet({port("a", {v4(0, 10, 1, 0, 1)})}, {slow}, defaults())[0].mtu, 3u) << "the smaller MTU";
  Settings fixed = defaults();
  fixed.gid_index = 7;
  EXPECT_TRUE(meet({port("a", {v4(0, 10, 1, 0, 1)})}, {slow}, fixed).empty());
}

// A port with more GIDs than an offer holds is offered with the first ones.
TEST(Offer, HasOnlyUsableGidsAndNoMoreThanFit) {
  Port p = port("a", {v4(0, 10, 1, 0, 1, false)});
  for (uint32_t i = 1; i <= kMaxGids + 1; ++i) p.gids.push_back(v4(i, 10, 1, static_cast<uint8_t>(i), 1));
  const OfferedRail rail = p.offer(defaults());
  EXPECT_EQ(rail.n_gids, kMaxGids);
  EXPECT_EQ(rail.gids[0].index, 1u) << "the first is RoCE v1";
  EXPECT_EQ(rail.gids[0].prefix, 24u);
}

TEST(Offer, SurvivesTheTripAndNothingElseDoes) {
  const std::vector<OfferedRail> rails =
      offers({port("a", {v4(1, 10, 1, 0, 1), v4(2, 10, 2, 0, 1)}), port("b", {})}, defaults());
  Offer offer{.settings = {2, 4, 32, 8192, 1 << 20, 1}, .n_rails = 2};
  std::copy(rails.begin(), rails.end(), offer.rails.begin());
  offer.rails[0].queue_pairs[0].number = 17;
  offer.rails[1].queue_pairs[3].psn = 42;
  const std::string bytes = kPairFormat.encode(1, offer);
  const auto decode = [](const std::string& text) {
    const auto made = kPairFormat.body_of<Offer>(kPairFormat.decode(text));
    if (!made.flaw().empty()) throw sdk::Error(TUTTI_INVALID_ARGUMENT, made.flaw());
    return made;
  };
  const Offer back = decode(bytes);
  EXPECT_EQ(back.settings, offer.settings);
  ASSERT_EQ(back.n_rails, 2u);
  EXPECT_EQ(back.rails[0].n_gids, 2u);
  EXPECT_EQ(back.rails[0].gids[1].raw, offer.rails[0].gids[1].raw);
  EXPECT_EQ(back.rails[0].queue_pairs[0].number, 17u);
  EXPECT_EQ(back.rails[1].queue_pairs[3].psn, 42u);
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_THROW(decode(bytes.substr(0, n)), sdk::Error) << n;
  EXPECT_THROW(decode(bytes + "x"), sdk::Error);
  const auto refuses = [&](void (*spoil)(Offer&)) {
    Offer spoilt = offer;
    spoil(spoilt);
    EXPECT_THROW(decode(kPairFormat.encode(1, spoilt)), sdk::Error);
  };
  refuses([](Offer& o) { o.n_rails = 0; });
  refuses([](Offer& o) { o.n_rails = kMaxRails + 1; });
  refuses([](Offer& o) { o.rails[0].n_gids = kMaxGids + 1; });
  refuses([](Offer& o) { o.rails[1].mtu = 6; });
  refuses([](Offer& o) { o.rails[1].infiniband = 2; });
  refuses([](Offer& o) { o.rails[0].gids[1].prefix = 129; });
  refuses([](Offer& o) { o.rails[0].gids[1].index = 256; });
  std::string newer = bytes;
  newer[4] = 7;
  try {
    decode(newer);
    ADD_FAILURE() << "another version";
  } catch (const sdk::Error& error) {
    EXPECT_EQ(error.status(), TUTTI_MISMATCH);
    EXPECT_STREQ(error.what(), "it speaks version 7 of the ib transport, this rank version 6; all ranks need the same");
  }
}

TEST(Words, EveryCompletionStatusHasSome) {
  EXPECT_EQ(completion_text(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded: peer unreachable or its port is down");
  for (int status = 0; status <= IBV_WC_GENERAL_ERR; ++status)
    EXPECT_GT(completion_text(static_cast<ibv_wc_status>(status)).size(), 6u) << status;
}

}  // namespace
}  // namespace tutti::ib
