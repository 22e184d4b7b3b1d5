// SPDX-License-Identifier: Apache-2.0
//
// Settings of listeners and sockets, and the addresses that they choose.
#include <netinet/tcp.h>

#include <fstream>

#include "../src/congestion.hpp"
#include "tcp_ranks.hpp"

namespace tutti_test {
namespace {

class Settings : public testing::Test {
 protected:
  void SetUp() override { host().settings = {{"TUTTI_TCP_INTERFACE", "127.0.0.1"}}; }
};

// The descriptors of this process's sockets that have a peer.
std::vector<int> connected_sockets() {
  std::vector<int> found;
  for (int fd = 3; fd < 200; ++fd) {
    sockaddr_storage peer;
    socklen_t length = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0) found.push_back(fd);
  }
  return found;
}

std::string congestion_of(int fd) {
  char name[16] = {};
  socklen_t size = sizeof name;
  EXPECT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size), 0);
  return name;
}

// The algorithms of a link's four sockets, two at each end.
std::vector<std::string> congestion_with(const char* setting) {
  host().settings = {{"TUTTI_TCP_INTERFACE", "127.0.0.1"}, {"TUTTI_TCP_SOCKETS", "2"}};
  if (setting) host().settings["TUTTI_TCP_CONGESTION"] = setting;
  Rank a(0), b(1);
  join(a, b);
  std::vector<std::string> names;
  for (const int fd : connected_sockets()) names.push_back(congestion_of(fd));
  return names;
}

TEST_F(Settings, InterfacesAreListedWithTheirMtu) {
  for (const auto& rail : tutti::tcp::interface_facts("127.0.0.1"))
    EXPECT_TRUE(!rail.chosen || rail.mtu >= 1280) << rail.name << " " << rail.mtu;
}

TEST_F(Settings, ListensWhereTheRanksHaveMetUnlessTheUserChooses) {
  const auto listeners = [](const std::string& met) {
    Rank a(0, {.address = met});
    EXPECT_EQ(a.open_status, TUTTI_OK) << Host::error;
    EXPECT_EQ(a.connect(1), TUTTI_AGAIN);
    std::string text;
    for (const auto& listener : mailed_to(1).addresses()) text += listener.address().to_string() + " ";
    return text;
  };
  host().settings.clear();
  EXPECT_EQ(listeners("127.0.0.1"), "127.0.0.1 ");
  EXPECT_EQ(listeners("127.0.0.7"), "127.0.0.1 ");
  EXPECT_EQ(listeners("::1"), "::1 ");
  host().settings["TUTTI_TCP_INTERFACE"] = "::1";
  EXPECT_EQ(listeners("127.0.0.1"), "::1 ");
  host().settings.clear();
  Rank a(0, {.address = "192.0.2.1"});
  EXPECT_EQ(a.open_status, TUTTI_INVALID_ARGUMENT);
  EXPECT_NE(Host::error.find("TUTTI_TCP_INTERFACE chooses another): \"192.0.2.1\" matches no address of this host"),
            std::string::npos)
      << Host::error;
}

// Every socket of a link carries the traffic class, whichever end has made it.
TEST_F(Settings, SocketsCarryTheTrafficClass) {
  const auto count = [](int level, int name, int value) {
    int found = 0;
    for (const int fd : connected_sockets()) {
      int set = -1;
      socklen_t size = sizeof set;
      found += ::getsockopt(fd, level, name, &set, &size) == 0 && set == value;
    }
    return found;
  };
  for (const bool v6 : {false, true}) {
    host().settings = {{"TUTTI_TCP_INTERFACE", v6 ? "::1" : "127.0.0.1"}, {"TUTTI_TCP_SOCKETS", "2"}};
    Rank a(0, {.traffic_class = 0x68}), b(1, {.traffic_class = 0x68});
    ASSERT_NO_FATAL_FAILURE(join(a, b));
    EXPECT_EQ(v6 ? count(IPPROTO_IPV6, IPV6_TCLASS, 0x68) : count(IPPROTO_IP, IP_TOS, 0x68), 4);
  }
  Rank wrong(0, {.traffic_class = 256});
  EXPECT_EQ(wrong.open_status, TUTTI_INVALID_ARGUMENT);
}

// Reno is open to every process.
TEST_F(Settings, SocketsUseTheCongestionControlThatIsAskedFor) {
  EXPECT_EQ(congestion_with("reno"), std::vector<std::string>(4, "reno"));
}

// Where the system's is BBR, only "system" leaves it to sockets between near ends.
TEST_F(Settings, NearSocketsDoNotUseBbrByThemselves) {
  std::string system;
  std::ifstream("/proc/sys/net/ipv4/tcp_congestion_control") >> system;
  EXPECT_EQ(congestion_with("system"), std::vector<std::string>(4, system));
  for (const std::string& name : congestion_with(nullptr))
    if (system.starts_with("bbr"))
      EXPECT_TRUE(name == "cubic" || name == "reno") << name;
    else
      EXPECT_EQ(name, system);
}

TEST(Congestion, BbrIsLeftToFarPeers) {
  using std::chrono::microseconds;
  const tutti::tcp::Congestion congestion{"reno", "bbr"};
  tutti::tcp::Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, "bbr", 3) != 0) GTEST_SKIP() << "this kernel has no BBR";
  begin_congestion(socket, congestion);
  const std::string near = congestion_of(socket.get());
  EXPECT_TRUE(near == "cubic" || near == "reno") << near;
  settle_congestion(socket, congestion, tutti::tcp::kNear);
  EXPECT_EQ(congestion_of(socket.get()), near);
  settle_congestion(socket, congestion, tutti::tcp::kNear + microseconds(1));
  EXPECT_EQ(congestion_of(socket.get()), "bbr");
  EXPECT_EQ(tutti::tcp::round_trip_of(socket), microseconds::max()) << "it is not connected";
}

TEST(Congestion, OnlyBbrHasABetterOne) {
  using tutti::tcp::better_congestion;
  const std::vector<std::string> better{"cubic", "reno"}, none;
  for (const char* system : {"bbr", "bbr3"}) EXPECT_EQ(better_congestion(system), better);
  for (const char* system : {"cubic", "reno", "dctcp", ""}) EXPECT_EQ(better_congestion(system), none);
}

TEST_F(Settings, ListensWithinThePortRange) {
  const auto port_of = [](Rank& a, uint32_t peer) {
    EXPECT_EQ(a.connect(peer), TUTTI_AGAIN);
    return mailed_to(peer).addresses().at(0).port();
  };
  Rank probe(0);  // an ephemeral port that is free a moment later
  const uint16_t port = port_of(probe, 1);
  probe.close();
  const uint16_t last = static_cast<uint16_t>(std::min(65535, port + 20));
  host().settings["TUTTI_TCP_PORTS"] = std::to_string(port) + "-" + std::to_string(last);
  Rank a(0), b(1);
  ASSERT_EQ(a.open_status, TUTTI_OK) << Host::error;
  const uint16_t at_a = port_of(a, 1), at_b = port_of(b, 0);
  for (const uint16_t got : {at_a, at_b}) EXPECT_TRUE(got >= port && got <= last) << got;
  ASSERT_NO_FATAL_FAILURE(join(a, b));
  host().settings["TUTTI_TCP_PORTS"] = std::to_string(at_a);
  Rank c(0);
  EXPECT_EQ(c.open_status, TUTTI_SYSTEM);
  EXPECT_TRUE(host().logged("on any port of TUTTI_TCP_PORTS="));
}

TEST_F(Settings, BadSettingsAreRefusedByName) {
  const std::vector<std::pair<const char*, const char*>> bad{{"TUTTI_TCP_INTERFACE", ""},
                                                             {"TUTTI_TCP_INTERFACE", "nosuch0"},
                                                             {"TUTTI_TCP_INTERFACE", "^lo,"},
                                                             {"TUTTI_TCP_INTERFACE", "10.0.0.0/99"},
                                                             {"TUTTI_TCP_INTERFACE", "lo,^lo"},
                                                             {"TUTTI_TCP_INTERFACE", "^lo,^docker0"},
                                                             {"TUTTI_TCP_INTERFACE", "=lo9"},
                                                             {"TUTTI_TCP_PORTS", "0-10"},
                                                             {"TUTTI_TCP_PORTS", "20-10"},
                                                             {"TUTTI_TCP_PORTS", "1-65536"},
                                                             {"TUTTI_TCP_PORTS", ""},
                                                             {"TUTTI_TCP_PORTS", "5-"},
                                                             {"TUTTI_TCP_SOCKETS", "0"},
                                                             {"TUTTI_TCP_SOCKETS", "9"},
                                                             {"TUTTI_TCP_SOCKETS", "two"},
                                                             {"TUTTI_TCP_FRAGMENT_BYTES", "4095"},
                                                             {"TUTTI_TCP_EAGER_BYTES", "1"},
                                                             {"TUTTI_TCP_BUFFER_BYTES", "-1"},
                                                             {"TUTTI_TCP_KEEPALIVE", "x"},
                                                             {"TUTTI_TCP_TEST_FIRST", "4294967296"},
                                                             {"TUTTI_TCP_TEST_PIECE", "1048577"},
                                                             {"TUTTI_TCP_USER_TIMEOUT", "1s"},
                                                             {"TUTTI_TCP_CONGESTION", ""},
                                                             {"TUTTI_TCP_CONGESTION", "turtle"},
                                                             {"TUTTI_TCP_CONGESTION", "sixteen_letters_"},
                                                             {"TUTTI_HOST_ID", ""}};
  for (const auto& [name, value] : bad) {
    host().settings = {{name, value}};
    Rank a(0);
    EXPECT_EQ(a.open_status, TUTTI_INVALID_ARGUMENT) << name << "=" << value;
    EXPECT_NE(Host::error.find(name), std::string::npos) << Host::error;
  }
}

TEST(Addresses, AreSelectedByNamePrefixAddressAndNetwork) {
  using namespace tutti::tcp;
  const auto make = [](const char* interface, const char* ip, uint8_t prefix) {
    return LocalAddress{boost::asio::ip::make_address(ip), prefix, interface};
  };
  const std::vector<LocalAddress> all{make("lo", "127.0.0.1", 8),      make("eth0", "10.0.0.5", 24),
                                      make("eth1", "10.0.1.5", 24),    make("ib0", "192.168.7.2", 16),
                                      make("eth0", "2001:db8::5", 64), make("lo", "::1", 128)};
  const auto names = [&](const char* selection) {
    std::string text;
    for (const auto& a : select_addresses(all, selection)) text += a.ip.to_string() + " ";
    return text;
  };
  EXPECT_EQ(names(""), "10.0.0.5 10.0.1.5 192.168.7.2 2001:db8::5 127.0.0.1 ::1 ");
  EXPECT_EQ(names("eth"), "10.0.0.5 10.0.1.5 2001:db8::5 ");
  EXPECT_EQ(names("^eth1"), "10.0.0.5 192.168.7.2 2001:db8::5 127.0.0.1 ::1 ");
  EXPECT_EQ(names("ib0,10.0.1.5"), "10.0.1.5 192.168.7.2 ");
  EXPECT_EQ(names("10.0.0.0/23"), "10.0.0.5 10.0.1.5 ");
  EXPECT_EQ(names("^lo,eth1"), "10.0.0.5 192.168.7.2 2001:db8::5 ") << "the ^ covers the entire list";
  EXPECT_EQ(names("^lo,docker0,2001:db8::/32"), "10.0.0.5 10.0.1.5 192.168.7.2 ") << "no host has all that is left out";
  EXPECT_EQ(names("[2001:db8::5],[::]/64"), "2001:db8::5 ::1 ");
  const std::vector<LocalAddress> alike{make("eth1", "10.0.1.5", 24), make("eth10", "10.0.2.5", 24)};
  for (const auto& [selection, chosen] : {std::pair("eth1", 2u), {"=eth1", 1u}, {"^=eth1", 1u}, {"=10.0.1.5", 1u}})
    EXPECT_EQ(select_addresses(alike, selection).size(), chosen) << selection;

  std::vector<Where> peer;
  for (const char* ip : {"127.0.0.1", "192.0.2.1", "10.0.1.77", "2001:db8:1::1", "::1"})
    peer.emplace_back(boost::asio::ip::make_address(ip), 5);
  const auto order = [&](const char* selection, bool same_host) {
    std::string text;
    for (const auto& l : plausible(peer, select_addresses(all, selection), same_host))
      text += l.address().to_string() + " ";
    return text;
  };
  EXPECT_EQ(order("", false), "10.0.1.77 192.0.2.1 2001:db8:1::1 ");
  EXPECT_EQ(order("", true), "127.0.0.1 ::1 10.0.1.77 192.0.2.1 2001:db8:1::1 ");
  EXPECT_EQ(order("ib0", false), "192.0.2.1 10.0.1.77 ");
  EXPECT_EQ(order("lo", false), "");
}

TEST(Addresses, WhatToDoWhereNoneIsReachedIsSomethingThatHelps) {
  using namespace tutti::tcp;
  const auto at = [](const char* ip) { return Where(boost::asio::ip::make_address(ip), 5); };
  const LocalAddress loopback{boost::asio::ip::make_address("127.0.0.1"), 8, "lo"};
  const LocalAddress v4{boost::asio::ip::make_address("10.0.0.5"), 24, "eth0"};
  const std::vector<Where> inner{at("127.0.0.1"), at("::1")}, v6{at("2001:db8::1")};
  // Hosts with link-local addresses only: no setting helps this rank.
  std::string advice = unreachable_advice(inner, {loopback}, {loopback}, 3);
  EXPECT_EQ(advice.find("this host has loopback and link-local addresses only"), 0u) << advice;
  EXPECT_NE(advice.find("; rank 3 offers loopback addresses only"), advice.npos) << advice;
  // This host has another one, which is left out.
  advice = unreachable_advice(inner, {loopback}, {loopback, v4}, 3);
  EXPECT_EQ(advice.find("TUTTI_TCP_INTERFACE can let this rank use eth0 10.0.0.5"), 0u) << advice;
  // Only the other host lacks one.
  advice = unreachable_advice(inner, {v4, loopback}, {v4, loopback}, 3);
  EXPECT_EQ(advice.find("rank 3 offers loopback addresses only"), 0u) << advice;
  EXPECT_EQ(unreachable_advice(v6, {v4}, {v4, loopback}, 3),
            "one has IPv4 addresses only and the other IPv6: give both hosts addresses of one family");
}

}  // namespace
}  // namespace tutti_test
