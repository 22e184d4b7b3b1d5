// SPDX-License-Identifier: Apache-2.0
//
// Which transport connects a pair, by what the ranks say of themselves.
#include "topology/topology.hpp"

#include <gtest/gtest.h>
#include <tutti/plugin/types.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <random>
#include <set>
#include <tuple>
#include <tutti/sdk/time_scale.hpp>
#include <tutti/topology.hpp>

#include "base/failure.hpp"
#include "topology/rank_description.hpp"

namespace tutti::core {
namespace {

RankDescription rank(const std::string& host, uint64_t process, std::vector<TransportOffer> transports) {
  RankDescription description;
  description.host = host;
  description.process = process;
  description.transports = std::move(transports);
  return description;
}

TransportOffer offer(const std::string& name, uint32_t reach, uint64_t latency_ns, const std::string& fabric = "") {
  return {name, "1", reach, fabric, 4096, latency_ns, 1'000'000'000};
}

std::string carrier(const Topology& topology, uint32_t a, uint32_t b) {
  const TransportOffer* found = topology.transport_of(a, b);
  EXPECT_EQ(found, topology.transport_of(b, a));
  return found ? found->name : "";
}

TEST(Topology, TheFastestThatReachesConnects) {
  const std::vector<TransportOffer> all{offer("net", TUTTI_REACH_NETWORK, 9000), offer("shm", TUTTI_REACH_HOST, 300),
                                        offer("threads", TUTTI_REACH_PROCESS, 100)};
  const Topology topology({rank("a", 1, all), rank("a", 1, all), rank("a", 2, all), rank("b", 1, all)});
  EXPECT_EQ(carrier(topology, 0, 1), "threads");
  EXPECT_EQ(carrier(topology, 0, 2), "shm");
  EXPECT_EQ(carrier(topology, 0, 3), "net");
}

// A fabric joins the hosts that name the same one; ranks of one host are within its reach, too.
TEST(Topology, AFabricJoinsTheHostsThatNameIt) {
  const auto on = [](const std::string& host, uint64_t process, const std::string& fabric) {
    return rank(host, process,
                {offer("link", TUTTI_REACH_FABRIC, 500, fabric), offer("net", TUTTI_REACH_NETWORK, 9000)});
  };
  const Topology topology({on("a", 1, "rack 7"), on("a", 2, "rack 7"), on("b", 1, "rack 7"), on("c", 1, "rack 8"),
                           on("d", 1, ""), on("e", 1, "")});
  EXPECT_EQ(carrier(topology, 0, 1), "link");
  EXPECT_EQ(carrier(topology, 0, 2), "link");
  EXPECT_EQ(carrier(topology, 0, 3), "net");
  EXPECT_EQ(carrier(topology, 4, 5), "net") << "no name is no fabric";
}

TEST(Topology, WhatDoesNotReachIsNamed) {
  const auto on = [](const std::string& host, const std::string& fabric) {
    return rank(host, 1, {offer("link", TUTTI_REACH_FABRIC, 500, fabric), offer("shm", TUTTI_REACH_HOST, 300)});
  };
  const Topology topology({on("a", "rack 7"), on("b", "rack 8")});
  std::string why;
  EXPECT_EQ(topology.transport_of(0, 1, &why), nullptr);
  EXPECT_NE(why.find("link reaches only ranks of one fabric, \"rack 7\" and \"rack 8\""), why.npos) << why;
  EXPECT_NE(why.find("shm reaches only ranks of one host"), why.npos) << why;
}

// An equal host key is no proof that ranks reach each other's memory.
TEST(Topology, RanksOfTwoPlacesOfAHostNeedANetwork) {
  const std::vector<TransportOffer> all{offer("net", TUTTI_REACH_NETWORK, 9000), offer("shm", TUTTI_REACH_HOST, 300)};
  std::vector<RankDescription> ranks;
  for (uint32_t r = 0; r < 4; ++r) {
    ranks.push_back(rank("a", r, all));
    ranks.back().place = r % 2;
  }
  ranks[1].apart = "rank 0: it runs as user 0, this rank as user 1";
  const Topology topology(ranks);
  EXPECT_EQ(topology.hosts(), 1u);
  EXPECT_EQ(carrier(topology, 0, 2), "shm");
  EXPECT_EQ(carrier(topology, 1, 3), "shm");
  EXPECT_EQ(carrier(topology, 0, 1), "net");
  EXPECT_EQ(carrier(topology, 2, 3), "net");
  for (RankDescription& rank : ranks) rank.transports.erase(rank.transports.begin());
  std::string why;
  EXPECT_EQ(Topology(ranks).transport_of(1, 0, &why), nullptr);
  EXPECT_NE(why.find("shm reaches only ranks of one host; rank 1 does not reach rank 0: it runs as user 0"), why.npos)
      << why;
}

TEST(Topology, AnErrorSaysWhyTransportsAreLeftOut) {
  RankDescription without = rank("a", 1, {offer("net", TUTTI_REACH_HOST, 9000)}), with = without;
  without.host = "b";
  with.transports.push_back(offer("shm", TUTTI_REACH_HOST, 300));
  without.left_out = {{"shm", "memfd_create: Function not implemented"}};
  for (const auto& ranks : {std::vector{with, without}, std::vector{without, with}}) {
    std::string why;
    EXPECT_EQ(Topology(ranks).transport_of(0, 1, &why), nullptr);
    EXPECT_NE(why.find("shm is left out by rank " + std::to_string(ranks[0].host == "b" ? 0 : 1) +
                       ": memfd_create: "
                       "Function not implemented"),
              why.npos)
        << why;
  }
}

// Whether and by which versions of which transport a pair is connected.
using Connection = std::tuple<std::string, std::string, std::string>;
Connection connection(const Topology& topology, uint32_t a, uint32_t b) {
  const TransportOffer* found = topology.transport_of(a, b);
  if (!found) return {};
  return {found->name, topology.rank(a).offer(found->name)->version, topology.rank(b).offer(found->name)->version};
}

TEST(Topology, APairOfEachKindStandsForAllPairs) {
  std::mt19937 random(1);
  const auto one_of = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int round = 0; round < 200; ++round) {
    std::vector<RankDescription> ranks;
    const uint32_t n = 1 + one_of(24), hosts = 1 + one_of(4), processes = 1 + one_of(4);
    for (uint32_t r = 0; r < n; ++r) {
      std::vector<TransportOffer> offers{offer("link", TUTTI_REACH_FABRIC, 400, one_of(2) ? "rack 7" : "rack 8")};
      if (one_of(3)) offers.push_back(offer("shm", TUTTI_REACH_HOST, one_of(2) ? 300 : 500));
      if (one_of(3)) offers.push_back(offer("net", TUTTI_REACH_NETWORK, 9000));
      offers.back().version = std::to_string(one_of(2));
      ranks.push_back(rank(std::to_string(one_of(hosts)), one_of(processes), std::move(offers)));
      ranks.back().place = one_of(2);
    }
    const Topology topology(std::move(ranks));
    std::set<Connection> all, told;
    for (uint32_t a = 0; a < n; ++a)
      for (uint32_t b = a + 1; b < n; ++b) all.insert(connection(topology, a, b));
    for (const auto& [a, b] : topology.pairs_of_each_kind()) {
      ASSERT_LT(a, b);
      told.insert(connection(topology, a, b));
    }
    ASSERT_EQ(told, all) << "round " << round;
  }
}

TEST(Topology, TwoFabricsAreTwoKinds) {
  const auto on = [](const std::string& host, const std::string& fabric) {
    return rank(host, 1, {offer("link", TUTTI_REACH_FABRIC, 500, fabric)});
  };
  const Topology topology({on("a", "rack 7"), on("b", "rack 7"), on("c", "rack 8")});
  const auto pairs = topology.pairs_of_each_kind();
  EXPECT_TRUE(std::ranges::any_of(pairs, [&](auto p) { return !topology.transport_of(p.first, p.second); }));
}

// 8 ranks on each of 512 hosts, of two kinds that take turns.
TEST(Topology, RealTimeManyRanksAreNotComparedPairByPair) {
  constexpr uint32_t n = 4096;
  std::vector<RankDescription> ranks;
  for (uint32_t r = 0; r < n; ++r) {
    std::vector<TransportOffer> offers{offer("net", TUTTI_REACH_NETWORK, 9000)};
    if (r % 2) offers.push_back(offer("shm", TUTTI_REACH_HOST, 300));
    ranks.push_back(rank(std::to_string(r / 8), r % 8, std::move(offers)));
  }
  const Topology topology(std::move(ranks));
  const auto start = std::chrono::steady_clock::now();
  const auto pairs = topology.pairs_of_each_kind();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(pairs.size(), 8u) << "two offers by two, on one host and on two";
  EXPECT_LT(took, tutti_test::scaled(std::chrono::seconds(1)));
  RecordProperty("milliseconds", std::to_string(took.count()));
  std::printf("%u ranks: %zu kinds of pairs in %.1f ms\n", n, pairs.size(), took.count());
}

RankDescription on_device(const std::string& host, uint64_t process, const std::string& id) {
  RankDescription description = rank(host, process, {});
  description.device.kind = "cuda";
  description.device.id = id;
  return description;
}

// A device is the same one where host, kind and identity are; its number in a process means nothing.
TEST(Topology, DevicesAreToldByWhatTheySay) {
  const Topology topology({on_device("a", 1, "x"), on_device("a", 2, "y"), on_device("a", 3, "x"),
                           on_device("b", 1, "x"), on_device("b", 2, ""), rank("b", 3, {})});
  EXPECT_EQ(topology.device_of_rank(), (std::vector<uint32_t>{0, 1, 0, 2, UINT32_MAX, UINT32_MAX}));
  EXPECT_FALSE(topology.is_on_devices()) << "the last has none";
  EXPECT_FALSE(Topology({rank("a", 1, {})}).is_on_devices());
  EXPECT_TRUE(Topology({on_device("a", 1, "x"), on_device("b", 2, "")}).is_on_devices());
}

TEST(Topology, ARankHasItsDeviceToItself) {
  const Topology apart({on_device("a", 1, "x"), on_device("a", 2, "y"), on_device("a", 3, "z")});
  for (const uint32_t r : {0u, 1u, 2u}) EXPECT_TRUE(apart.has_device_to_itself(r));
  const Topology shared({on_device("a", 1, "x"), on_device("a", 2, "y"), on_device("a", 3, "x")});
  EXPECT_FALSE(shared.has_device_to_itself(0));
  EXPECT_TRUE(shared.has_device_to_itself(1));
  const Topology unknown({on_device("a", 1, "x"), on_device("a", 2, "")});
  for (const uint32_t r : {0u, 1u}) EXPECT_FALSE(unknown.has_device_to_itself(r)) << "it might be the same";
  const Topology threads({on_device("a", 1, "x"), on_device("a", 1, "y")});
  EXPECT_FALSE(threads.has_device_to_itself(0)) << "a thread of the same process";
  const Topology far({on_device("a", 1, "x"), on_device("b", 2, "y")});
  EXPECT_FALSE(far.has_device_to_itself(0)) << "another host";
}

TEST(Topology, MemoryIsMappedOverATransportThatBothHaveForIt) {
  const auto maps = [](const std::string& name, uint64_t latency_ns, const std::string& version = "1") {
    TransportOffer made = offer(name, TUTTI_REACH_HOST, latency_ns);
    made.version = version;
    made.maps = 1;
    return made;
  };
  const TransportOffer plain = offer("plain", TUTTI_REACH_NETWORK, 1);
  const Topology topology({rank("a", 1, {maps("slow", 9), plain, maps("quick", 5)}),
                           rank("a", 2, {plain, maps("slow", 9), maps("quick", 5)}), rank("a", 3, {plain}),
                           rank("a", 4, {plain, maps("slow", 9, "2")}), rank("b", 5, {plain, maps("slow", 9)})});
  for (const auto& [a, b] : {std::pair{0u, 1u}, {1u, 0u}}) {
    ASSERT_NE(topology.mapping_transport_of(a, b), nullptr);
    EXPECT_EQ(topology.mapping_transport_of(a, b)->name, "quick");
    EXPECT_EQ(topology.transport_of(a, b)->name, "plain") << "for host memory";
  }
  for (const uint32_t other : {2u, 3u, 4u}) {
    std::string why;
    EXPECT_EQ(topology.mapping_transport_of(0, other, &why), nullptr) << "rank " << other;
    EXPECT_NE(why.find("mapped/1"), std::string::npos) << why;
  }
}

// A slow transport costs processors time; ranks of a host share its cores and, over the same rails, its network.
TEST(Topology, WhatTheRanksOfAHostShare) {
  TransportOffer net = offer("net", TUTTI_REACH_NETWORK, 8000);
  const TransportOffer shm = offer("shm", TUTTI_REACH_HOST, 100);
  std::vector<RankDescription> ranks;
  for (const char* host : {"a", "a", "b"}) {
    ranks.push_back(rank(host, ranks.size() + 1, {net, shm}));
    ranks.back().cores = 4;
  }
  const Topology one_rail(ranks);
  ASSERT_EQ(one_rail.host_costs().size(), 2u);
  EXPECT_DOUBLE_EQ(one_rail.host_costs()[0].per_byte, 1e-9);
  EXPECT_DOUBLE_EQ(one_rail.host_costs()[0].processors, 4);
  EXPECT_DOUBLE_EQ(one_rail.cost(0, 2).gap, 4e-6) << "the operating system's work, at either end";
  EXPECT_DOUBLE_EQ(one_rail.cost(0, 2).processor_per_byte, 0.5e-9);
  EXPECT_EQ(one_rail.cost(0, 1).gap, 0);
  ranks[0].transports[0].rails = {"rail0"};
  ranks[1].transports[0].rails = {"rail1"};
  const Topology two_rails(ranks);
  EXPECT_DOUBLE_EQ(two_rails.host_costs()[0].per_byte, 0.5e-9) << "a rail for each rank";
  EXPECT_DOUBLE_EQ(two_rails.host_costs()[1].per_byte, 1e-9);
  ranks[1].transports[0].rails = {"rail0"};
  EXPECT_DOUBLE_EQ(Topology(ranks).host_costs()[0].per_byte, 1e-9) << "one rail for both";
  EXPECT_EQ(Topology({ranks[0], ranks[1]}).host_costs()[0].per_byte, 0) << "nothing leaves the only host";
}

// Ranks that are bound to cores of their own share none, however many the host has of them.
TEST(Topology, RanksShareTheCoresThatTheyAreBoundTo) {
  const auto bound = [](const std::vector<std::string>& processors) {
    std::vector<RankDescription> ranks;
    for (const std::string& mask : processors) {
      ranks.push_back(rank("a", ranks.size() + 1, {offer("shm", TUTTI_REACH_HOST, 100)}));
      ranks.back().processors = Processors(mask);
      ranks.back().cores = mask.empty() ? 2 : static_cast<uint32_t>(ranks.back().processors.count());
    }
    const Topology topology(ranks);
    std::vector<double> each;
    for (uint32_t r = 0; r < topology.nranks(); ++r) each.push_back(topology.processors_of(r));
    EXPECT_DOUBLE_EQ(topology.processors_per_rank(), *std::ranges::min_element(each));
    return each;
  };
  using Each = std::vector<double>;
  EXPECT_EQ(bound({"", "", "", ""}), Each(4, 0.5)) << "it is not known which cores";
  EXPECT_EQ(bound({"11", "11", "11", "11"}), Each(4, 0.5)) << "not bound";
  EXPECT_EQ(bound({"0001", "0010", "0100", "1000"}), Each(4, 1));
  EXPECT_EQ(bound({"0011", "0011", "1100", "1100"}), Each(4, 1)) << "bound to two nodes";
  EXPECT_EQ(bound({"0011", "0011", "0011", "1100"}), (Each{2.0 / 3, 2.0 / 3, 2.0 / 3, 1}));
  EXPECT_EQ(bound({"0001", "0001", "1111"}), (Each{0.5, 0.5, 1})) << "the last has cores that nobody else has";
}

TEST(Topology, RanksOfAHostHaveCoresApart) {
  std::vector<RankDescription> ranks;
  for (const char* mask : {"0011", "0100", "1100", ""}) {
    ranks.push_back(rank("a", ranks.size() + 1, {offer("shm", TUTTI_REACH_HOST, 100)}));
    ranks.back().processors = Processors(mask);
  }
  ranks.push_back(ranks[0]);
  ranks[4].host = "b";
  const Topology topology(ranks);
  EXPECT_TRUE(topology.have_cores_apart(0, 1));
  EXPECT_TRUE(topology.have_cores_apart(2, 0));
  EXPECT_FALSE(topology.have_cores_apart(1, 2));
  EXPECT_FALSE(topology.have_cores_apart(0, 3)) << "it is not known which cores";
  EXPECT_FALSE(topology.have_cores_apart(4, 1)) << "of another host";
}

RankDescription sent(const RankDescription& description) {
  return decode<RankDescription>(encode(description), "rank 3's description");
}

TEST(Topology, DescriptionsSurviveTheirWay) {
  RankDescription before = rank("a", 7, {offer("link", TUTTI_REACH_FABRIC, 500, "rack 7")});
  before.numa = 1;
  before.cores = 3;
  before.processors = Processors("10000000000000010001");
  before.device = {"cuda", 3, "2f00", "0000:3b:00.0", -1, 10, 20, 30};
  before.transports[0].rails = {"mlx5_0:1", "mlx5_1:1"};
  before.transports[0].maps = 1;
  before.apart = "rank 0: it runs as user 1";
  before.left_out = {{"shm", "memfd_create: Function not implemented"}};
  const RankDescription after = sent(before);
  EXPECT_EQ(after.numa, 1);
  EXPECT_EQ(after.processors, before.processors);
  EXPECT_EQ(digits_of(before.processors), "80011");
  EXPECT_TRUE(sent(rank("a", 7, {})).processors.none());
  for (const size_t processor : {0u, 1u, 2u, 3u, 4u, 63u, 1023u}) {
    RankDescription one = rank("a", 7, {});
    one.processors.set(processor);
    EXPECT_EQ(sent(one).processors, one.processors) << processor;
    EXPECT_EQ(digits_of(one.processors), "1248"[processor % 4] + std::string(processor / 4, '0'));
  }
  RankDescription most = rank("a", 7, {});
  most.processors.set();
  most.cores = 1024;
  EXPECT_EQ(digits_of(most.processors), std::string(256, 'f'));
  EXPECT_EQ(sent(most).processors, most.processors);
  EXPECT_EQ(after.device.kind, "cuda");
  EXPECT_EQ(after.device.index, 3u);
  EXPECT_EQ(after.device.id, "2f00");
  EXPECT_EQ(after.device.pci, "0000:3b:00.0");
  EXPECT_EQ(after.device.numa, -1);
  EXPECT_EQ(after.device.link_latency_ns + after.device.link_bandwidth + after.device.copy_bandwidth, 60u);
  EXPECT_EQ(after.transports.at(0).rails, before.transports[0].rails);
  EXPECT_EQ(sent(rank("a", 7, {})).device.kind, "") << "none";
  EXPECT_EQ(after.apart, before.apart);
  ASSERT_EQ(after.left_out.size(), 1u);
  EXPECT_EQ(after.left_out[0].why, before.left_out[0].why);
  ASSERT_EQ(after.transports.size(), 1u);
  EXPECT_EQ(after.transports[0].fabric, "rack 7");
  EXPECT_EQ(after.transports[0].maps, 1u);
  EXPECT_EQ(after.transports[0].reach, uint32_t{TUTTI_REACH_FABRIC});
}

// `bytes` with one text in the place of another.
std::string changed(std::string bytes, const std::string& from, const std::string& to) {
  const size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from << " is not in " << bytes;
  return at == std::string::npos ? bytes : bytes.replace(at, from.size(), to);
}

TEST(Topology, ImpossibleDescriptionsAreRefused) {
  const RankDescription good = rank("a", 7, {offer("net", TUTTI_REACH_NETWORK, 9000)});
  const auto answer = [](const std::string& bytes) -> std::string {
    try {
      decode<RankDescription>(bytes, "rank 3's description");
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.status, TUTTI_MISMATCH);
      return failure.text;
    }
    return "taken";
  };
  const auto refusal = [&](const std::function<void(RankDescription&)>& change) {
    RankDescription bad = good;
    change(bad);
    return answer(encode(bad));
  };
  EXPECT_EQ(refusal([](RankDescription&) {}), "taken");
  const std::string who = "rank 3's description has an impossible ";
  EXPECT_EQ(refusal([](auto& rank) { rank.cores = 0; }),
            who + "\"cores\": expected a whole number from 1 to 1048576, got 0");
  EXPECT_EQ(refusal([](auto& rank) { rank.cores = 1048577; }),
            who + "\"cores\": expected a whole number from 1 to 1048576, got 1048577");
  EXPECT_EQ(refusal([](auto& rank) { rank.numa = -2; }),
            who + "\"numa\": expected a whole number from -1 to 65535, got -2");
  EXPECT_EQ(refusal([](auto& rank) { rank.host = "\x1b[31m"; }),
            who + "\"host\": expected a text of at most 256 bytes without control characters, got \"?[31m\"");
  EXPECT_EQ(refusal([](auto& rank) { rank.host = std::string(257, 'a'); }),
            who + "\"host\": expected a text of at most 256 bytes without control characters, got \"" +
                std::string(80, 'a') + "\"");
  EXPECT_EQ(refusal([](auto& rank) { rank.processors = Processors("11"); }),
            who + "\"processors\": expected as many processors as \"cores\", 1, got \"3\"");
  EXPECT_EQ(refusal([](auto& rank) { rank.device = {.kind = "cuda", .numa = 65536}; }),
            who + "\"numa\": expected a whole number from -1 to 65535, got 65536");
  EXPECT_EQ(refusal([](auto& rank) { rank.transports[0].reach = 31; }),
            who + "\"reach\": expected a whole number from 10 to 30, got 31");
  EXPECT_EQ(refusal([](auto& rank) { rank.transports[0].fragment_bytes = 63; }),
            who + "\"fragment\": expected a whole number from 64 to 18446744073709551615, got 63");
  EXPECT_EQ(refusal([](auto& rank) { rank.transports[0].maps = 2; }),
            who + "\"maps\": expected a whole number from 0 to 1, got 2");
  EXPECT_EQ(refusal([](auto& rank) { rank.transports[0].rails.resize(65); }),
            who + "\"rails\": expected a list of at most 64, got 65");
  EXPECT_EQ(refusal([](auto& rank) { rank.transports[0].rails = {"\n"}; }),
            who + "\"rails\": expected a text of at most 256 bytes without control characters, got \"?\"");
  EXPECT_EQ(refusal([](auto& rank) { rank.transports.push_back(rank.transports[0]); }),
            who + "\"transports\": expected transports of different names, got \"net\"");
  EXPECT_EQ(refusal([](auto& rank) {
              rank.left_out = {{"shm", "\t"}};
            }),
            who + "\"why\": expected a text of at most 256 bytes without control characters, got \"?\"");
  RankDescription bound = good;
  bound.processors = Processors("1");
  const std::string length("\1\0\0\0", 4), bytes = encode(bound);
  EXPECT_EQ(answer(changed(bytes, length + "1", length + "x")),
            who + "\"processors\": expected hexadecimal digits, a bit for each processor, got \"x\"");
  const std::string versions = ": do all ranks run the same version of Tutti?";
  EXPECT_EQ(answer(bytes + "more"), "rank 3's description: 4 bytes too many" + versions);
  EXPECT_EQ(answer(R"({"cores":2})"), "rank 3's description: 1868767867 bytes announced, 7 left" + versions);
}

// What is wrong with a file is one type of exception, whichever part of the reader finds it.
TEST(Topology, AFileOfAnImpossibleRankIsRefused) {
  const std::string good = R"({"tutti_topology":1,"ranks":[{"host":"a","process":1,"cores":1,"transports":[)"
                           R"({"name":"shm","reach":"host","latency":1,"bandwidth":1}]}]})";
  EXPECT_EQ(TopologyFile(good).nranks(), 1u);
  try {
    TopologyFile read(changed(good, "\"cores\":1", "\"cores\":0"));
    FAIL() << "it was taken";
  } catch (const std::runtime_error& wrong) {
    EXPECT_STREQ(wrong.what(),
                 "rank 0.cores: expected a whole number from 1 to 1048576, got 0; docs/topology.md lists the keys and "
                 "their values");
  }
}

}  // namespace
}  // namespace tutti::core
