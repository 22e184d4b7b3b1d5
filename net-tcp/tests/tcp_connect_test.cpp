// SPDX-License-Identifier: Apache-2.0
//
// How links come about, and who is kept out.
#include <dirent.h>

#include <optional>
#include <random>

#include "../src/settings.hpp"
#include "bare_peer.hpp"
#include "certificates.hpp"

namespace tutti_test {
namespace {

using tutti::tcp::Answer;

tutti::tcp::Shape default_shape() { return {2, 4, 1, tutti::tcp::kEagerWindow, caps().fragment_bytes, 16 << 10, 7}; }

class Connect : public testing::Test {
 protected:
  void SetUp() override { host().settings = {{"TUTTI_TCP_INTERFACE", "127.0.0.1"}}; }
};

tutti_status settle(Rank& a, Rank& b, uint32_t b_rank) {
  const std::string blob = b.address();
  tutti_status status = TUTTI_AGAIN;
  EXPECT_TRUE(drive({&a, &b}, [&] { return (status = a.connect(b_rank, blob)) != TUTTI_AGAIN; }));
  return status;
}

// Is there nothing to wake it?
bool sleeps(Rank& rank) {
  int32_t fd = -1;
  EXPECT_EQ(wait_table().get_fd(rank.endpoint, &fd), TUTTI_OK);
  const bool armed = wait_table().arm(rank.endpoint) == TUTTI_OK;
  pollfd waiting{fd, POLLIN, 0};
  const bool quiet = ::poll(&waiting, 1, 50) == 0;
  wait_table().disarm(rank.endpoint);
  return armed && quiet;
}

size_t open_descriptors() {
  DIR* directory = opendir("/proc/self/fd");
  size_t n = 0;
  while (readdir(directory)) ++n;
  closedir(directory);
  return n;
}

TEST_F(Connect, ThePassiveSideOnlyProgresses) {
  for (const char* sockets : {"1", "4"}) {
    host().settings["TUTTI_TCP_SOCKETS"] = sockets;
    for (const bool lower_connects : {true, false}) {
      Rank a(0), b(1);
      Rank &active = lower_connects ? a : b, &passive = lower_connects ? b : a;
      const uint32_t to = lower_connects ? 1 : 0;
      ASSERT_EQ(settle(active, passive, to), TUTTI_OK) << active.error;
      ASSERT_EQ(table().send_control(active.link(to), "hi", 2), TUTTI_OK);
      ASSERT_TRUE(drive({&a, &b}, [&] { return passive.controls.size() == 1; }));
      ASSERT_EQ(passive.connect(1 - to, active.address()), TUTTI_OK) << "the link is there already";
      tutti_link* link = passive.link(1 - to);
      ASSERT_EQ(passive.connect(1 - to, active.address()), TUTTI_OK);
      EXPECT_EQ(passive.link(1 - to), link);
    }
  }
}

// Many interleavings of two crossing attempts: each makes exactly one link that works both ways.
TEST_F(Connect, CrossingAttemptsMakeOneLink) {
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    host().settings["TUTTI_TCP_SOCKETS"] = i % 3 ? "3" : "1";
    Rank a(0), b(1);
    const std::string at_a = a.address(), at_b = b.address();
    tutti_status sa = TUTTI_AGAIN, sb = TUTTI_AGAIN;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while ((sa == TUTTI_AGAIN || sb == TUTTI_AGAIN) && std::chrono::steady_clock::now() < end) {
      switch (random() % 4) {
        case 0:
          if (sa == TUTTI_AGAIN) sa = a.connect(1, at_b);
          break;
        case 1:
          if (sb == TUTTI_AGAIN) sb = b.connect(0, at_a);
          break;
        case 2:
          a.progress();
          break;
        case 3:
          b.progress();
          break;
      }
    }
    ASSERT_EQ(sa, TUTTI_OK) << a.error;
    ASSERT_EQ(sb, TUTTI_OK) << b.error;
    int x = i, y = -1, z = -1;
    ASSERT_EQ(b.receive(0, 1, &y, 4, 1), TUTTI_OK);
    ASSERT_EQ(a.receive(1, 2, &z, 4, 2), TUTTI_OK);
    ASSERT_EQ(a.send(1, 1, &x, 4, 3), TUTTI_OK);
    ASSERT_EQ(b.send(0, 2, &x, 4, 4), TUTTI_OK);
    ASSERT_TRUE(drive({&a, &b}, [&] { return a.has(2) && b.has(1); }));
    EXPECT_EQ(y, i);
    EXPECT_EQ(z, i);
    EXPECT_TRUE(a.failures.empty() && b.failures.empty());
  }
}

TEST_F(Connect, FiveRanksMeshAndTalk) {
  constexpr uint32_t n = 5;
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<Rank*> all;
  std::vector<std::string> blobs;
  for (uint32_t r = 0; r < n; ++r) {
    ranks.push_back(std::make_unique<Rank>(r, Shape{.nranks = n}));
    all.push_back(ranks.back().get());
    blobs.push_back(all.back()->address());
  }
  ASSERT_TRUE(drive(all, [&] {
    bool done = true;
    for (uint32_t r = 0; r < n; ++r)
      for (uint32_t p = 0; p < n; ++p)
        if (p != r && !all[r]->link(p)) done &= all[r]->connect(p, blobs[p]) == TUTTI_OK;
    return done;
  }));
  std::vector<std::vector<uint64_t>> in(n, std::vector<uint64_t>(n));
  for (uint64_t r = 0; r < n; ++r)
    for (uint64_t p = 0; p < n; ++p)
      if (p != r) {
        const uint64_t word = r * 100 + p;
        ASSERT_EQ(all[p]->receive(static_cast<uint32_t>(r), 0, &in[p][r], 8, r), TUTTI_OK);
        ASSERT_EQ(all[r]->send(static_cast<uint32_t>(p), 0, &word, 8, 0, TUTTI_TRANSFER_INLINE), TUTTI_OK);
      }
  ASSERT_TRUE(drive(
      all, [&] { return std::all_of(all.begin(), all.end(), [](Rank* r) { return r->ended.size() == n - 1; }); }));
  for (uint64_t r = 0; r < n; ++r)
    for (uint64_t p = 0; p < n; ++p)
      if (p != r) {
        EXPECT_EQ(in[p][r], r * 100 + p);
      }
}

TEST_F(Connect, AWrongSecretIsRefusedWhoeverConnects) {
  for (const bool lower_connects : {true, false}) {
    Rank a(0), b(1, {.secret = "another secret"});
    Rank &active = lower_connects ? a : b, &passive = lower_connects ? b : a;
    ASSERT_EQ(settle(active, passive, lower_connects ? 1 : 0), TUTTI_MISMATCH);
    EXPECT_NE(active.error.find("secret"), std::string::npos) << active.error;
    EXPECT_TRUE(host().logged("cannot prove that it knows the job's secret"));
    host().log.clear();
  }
}

// An acceptor that does not know the secret, but says yes, is refused by the connector.
TEST_F(Connect, AnImpostorThatAcceptsIsRefused) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size) || listen(listener, 4), 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  Rank a(0);
  tutti::tcp::PeerAddress fake = tutti::tcp::PeerAddress::decode(a.address());
  fake.listeners.resize(1);
  fake.listeners[0].port = ntohs(address.sin_port);
  ASSERT_EQ(a.connect(1, fake.encode()), TUTTI_AGAIN);
  const int s = accept(listener, nullptr, nullptr);
  const tutti::tcp::Challenge challenge{tutti::tcp::kMagic, tutti::tcp::kVersion, 1,
                                        default_shape(),    fake.endpoint,        {}};
  const tutti::tcp::Verdict verdict{static_cast<uint32_t>(Answer::kAccepted), 0, {}};
  ASSERT_EQ(write(s, &challenge, sizeof challenge), ssize_t{sizeof challenge});
  ASSERT_EQ(write(s, &verdict, sizeof verdict), ssize_t{sizeof verdict});
  tutti_status status = TUTTI_AGAIN;
  ASSERT_TRUE(drive({&a}, [&] { return (status = a.connect(1, fake.encode())) != TUTTI_AGAIN; }));
  EXPECT_EQ(status, TUTTI_MISMATCH);
  EXPECT_NE(a.error.find("cannot prove"), std::string::npos) << a.error;
  ::close(s);
  ::close(listener);
}

TEST_F(Connect, DifferentSetupsAreNamedOnBothSides) {
  std::optional<Rank> a, b;
  a.emplace(0);
  host().settings["TUTTI_TCP_FRAGMENT_BYTES"] = "65536";
  b.emplace(1, Shape{.lanes = 6});
  ASSERT_EQ(settle(*a, *b, 1), TUTTI_MISMATCH);
  for (const char* part :
       {"lanes is 4 on rank 0 and 6 on rank 1", "TUTTI_TCP_FRAGMENT_BYTES is 262144 on rank 0 and 65536 on rank 1"})
    EXPECT_NE(a->error.find(part), std::string::npos) << a->error;
  ASSERT_EQ(b->connect(0, a->address()), TUTTI_MISMATCH);
  EXPECT_NE(b->error.find("lanes is 6 on rank 1 and 4 on rank 0"), std::string::npos) << b->error;
}

TEST_F(Connect, StrangersDisturbNobody) {
  Rank a(0), b(1);
  const std::string blob = a.address();
  BarePeer silent(blob), garbage(blob), half(blob), liar(blob), range(blob);
  const auto noise = pattern(5000, 4);
  garbage.say(noise.data(), noise.size());
  half.say(noise.data(), 50);
  ASSERT_NO_FATAL_FAILURE(join(a, 0, b, 1));
  EXPECT_TRUE(garbage.is_hung_up_on(a));
  EXPECT_EQ(liar.introduce(a, "a guess", default_shape()), static_cast<uint32_t>(Answer::kWrongSecret));
  EXPECT_TRUE(liar.is_hung_up_on(a));
  EXPECT_EQ(range.introduce(a, "the job's secret", default_shape(), 1u << 30),
            static_cast<uint32_t>(Answer::kWrongTarget));
  BarePeer second(blob);
  EXPECT_EQ(second.introduce(a, "the job's secret", default_shape(), 1), static_cast<uint32_t>(Answer::kConnected));
  // Who says nothing, or a byte now and then, also of a TLS record, has as long as anybody for its handshake.
  Authority authority("strangers");
  const PemFiles files = authority.issue("zero");
  host().settings["TUTTI_TLS_CERTIFICATE"] = files.certificate;
  host().settings["TUTTI_TLS_KEY"] = files.key;
  host().settings["TUTTI_TLS_CA"] = authority.file();
  Rank c(0);
  BarePeer slow(blob), slow_in_tls(c.address());
  slow_in_tls.say("\x16\x03\x01\x02", 4);
  drive({&a, &c}, [] { return false; }, std::chrono::milliseconds(50));
  EXPECT_TRUE(sleeps(a) && sleeps(c)) << "a rank is woken for ever by strangers who say nothing more";
  const auto hung_up = [](const BarePeer& peer) {
    char byte;
    const ssize_t n = ::recv(peer.descriptor(), &byte, 1, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
  };
  auto next = std::chrono::steady_clock::now();
  EXPECT_TRUE(drive(
      {&a, &c},
      [&] {
        if (std::chrono::steady_clock::now() >= next) {
          for (const BarePeer* peer : {&slow, &slow_in_tls}) ::send(peer->descriptor(), "\0", 1, MSG_NOSIGNAL);
          next += std::chrono::milliseconds(100);
        }
        return hung_up(silent) && hung_up(half) && hung_up(slow) && hung_up(slow_in_tls);
      },
      std::chrono::seconds(20)))
      << "a stranger keeps its descriptor";
  int x = 42, y = 0;
  ASSERT_EQ(b.receive(0, 0, &y, 4, 1), TUTTI_OK);
  ASSERT_EQ(a.send(1, 0, &x, 4, 2), TUTTI_OK);
  ASSERT_TRUE(drive({&a, &b}, [&] { return b.has(1); }));
  EXPECT_TRUE(a.failures.empty());
}

// A peer with the secret that breaks the protocol is lost, with a reason; nothing is written out of bounds.
TEST_F(Connect, FramesAreCheckedBeforeUse) {
  using tutti::tcp::Frame;
  using tutti::tcp::FrameKind;
  host().settings["TUTTI_TCP_FRAGMENT_BYTES"] = "1000000";
  const std::vector<std::pair<Frame, const char*>> bad{
      {{FrameKind::kData, 4, 0, 0, 8}, "lane 4"},
      {{FrameKind::kData, 0xffffffff, 0, 0, 8}, "lane 4294967295"},
      {{FrameKind::kData, 0, 0, 0, caps().fragment_bytes + 1}, "at most"},
      {{FrameKind::kData, 0, 0, 0, UINT64_MAX}, "at most"},
      {{FrameKind::kData, 0, 0, 5, 8}, "expected number 0"},
      {{FrameKind::kData, 0, 0, 0, 300000}, "without credit"},
      {{FrameKind::kControl, 0, 0, 0, 257}, "control message of 257"},
      {{FrameKind::kPosted, 0, 0x80000001, 0, 0}, "went back"},
      {{static_cast<FrameKind>(77), 0, 0, 0, 0}, "unknown kind 77"}};
  for (const auto& [frame, reason] : bad) {
    Rank a(0);
    BarePeer peer(a.address());
    ASSERT_EQ(peer.introduce(a, "the job's secret", default_shape()), static_cast<uint32_t>(Answer::kAccepted));
    peer.say(frame);
    ASSERT_TRUE(drive({&a}, [&] { return a.failures.contains(1); })) << reason;
    EXPECT_NE(a.failures[1].find(reason), std::string::npos) << a.failures[1];
  }
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{16384}, uint64_t{16385}, tutti::tcp::kAheadBytes}) {
    Rank a(0);  // one message more than the window
    BarePeer peer(a.address());
    ASSERT_EQ(peer.introduce(a, "the job's secret", default_shape()), static_cast<uint32_t>(Answer::kAccepted));
    const std::string payload(bytes, 'x');
    const uint32_t window = bytes <= 16384 ? tutti::tcp::kEagerWindow : tutti::tcp::kAheadWindow;
    for (uint32_t i = 0; i < window; ++i) {
      peer.say(Frame{FrameKind::kData, 0, 0, i, bytes});
      peer.say(payload, a);
    }
    for (int k = 0; k < 200; ++k) a.progress();
    EXPECT_TRUE(a.failures.empty()) << bytes << " " << a.failures[1];
    peer.say(Frame{FrameKind::kData, 0, 0, window, bytes});
    ASSERT_TRUE(drive({&a}, [&] { return a.failures.contains(1); })) << bytes;
    EXPECT_NE(a.failures[1].find("without credit"), std::string::npos) << a.failures[1];
  }
}

TEST_F(Connect, AddressesAreCheckedBeforeUse) {
  Rank a(0), b(1);
  const std::string good = b.address();
  EXPECT_EQ(a.connect(1, ""), TUTTI_INVALID_ARGUMENT);
  for (size_t cut = 0; cut < good.size(); ++cut)
    EXPECT_EQ(a.connect(1, good.substr(0, cut)), TUTTI_INVALID_ARGUMENT) << cut;
  EXPECT_EQ(a.connect(1, good + "x"), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(a.connect(1, std::string(4096, '\xff')), TUTTI_INVALID_ARGUMENT);
  for (size_t at : {0, 8, 12}) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] + 100);
    EXPECT_EQ(a.connect(1, bad), TUTTI_INVALID_ARGUMENT) << at;
  }
  EXPECT_EQ(a.connect(2, good), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(a.connect(0, good), TUTTI_INVALID_ARGUMENT);
  uint64_t small = 3;
  char buffer[3];
  EXPECT_EQ(table().get_address(a.endpoint, buffer, &small), TUTTI_NO_RESOURCES);
  EXPECT_EQ(small, good.size());
}

TEST_F(Connect, ADeadAddressFailsAndSaysWhatWasTried) {
  Rank a(0);
  std::string blob;
  {
    Rank b(1);
    blob = b.address();
  }
  tutti_status status = TUTTI_AGAIN;
  ASSERT_TRUE(drive({&a}, [&] { return (status = a.connect(1, blob)) != TUTTI_AGAIN; }));
  EXPECT_EQ(status, TUTTI_PEER_FAILED);
  EXPECT_NE(a.error.find("tried 127.0.0.1:"), std::string::npos) << a.error;
  EXPECT_NE(a.error.find("refused"), std::string::npos) << a.error;
}

TEST_F(Connect, APeerThatNeverProgressesTimesOut) {
  host().settings["TUTTI_TCP_CONNECT_TIMEOUT"] = "1";
  Rank a(0), b(1);
  const std::string blob = b.address();
  tutti_status status = TUTTI_AGAIN;
  ASSERT_TRUE(drive({&a}, [&] { return (status = a.connect(1, blob)) != TUTTI_AGAIN; }, std::chrono::seconds(5)));
  EXPECT_EQ(status, TUTTI_TIMEOUT) << a.error;
}

TEST_F(Connect, AnotherHostsLoopbackIsNotTried) {
  host().settings["TUTTI_HOST_ID"] = "here";
  Rank a(0);
  host().settings["TUTTI_HOST_ID"] = "there";
  Rank b(1);
  EXPECT_EQ(a.connect(1, b.address()), TUTTI_NOT_SUPPORTED);
  EXPECT_NE(a.error.find("none of rank 1's addresses (127.0.0.1:"), std::string::npos) << a.error;
}

TEST_F(Connect, ListensWithinThePortRange) {
  Rank probe(0);  // an ephemeral port that is free a moment later
  const uint16_t port = tutti::tcp::PeerAddress::decode(probe.address()).listeners[0].port;
  probe.close();
  const uint16_t last = static_cast<uint16_t>(std::min(65535, port + 20));
  host().settings["TUTTI_TCP_PORTS"] = std::to_string(port) + "-" + std::to_string(last);
  Rank a(0), b(1);
  ASSERT_EQ(a.open_status, TUTTI_OK) << Host::error;
  for (Rank* r : {&a, &b}) {
    const uint16_t got = tutti::tcp::PeerAddress::decode(r->address()).listeners[0].port;
    EXPECT_TRUE(got >= port && got <= last) << got;
  }
  ASSERT_EQ(settle(a, b, 1), TUTTI_OK) << a.error;
  host().settings["TUTTI_TCP_PORTS"] =
      std::to_string(tutti::tcp::PeerAddress::decode(a.address()).listeners[0].port);  // taken by a
  Rank c(0);
  EXPECT_EQ(c.open_status, TUTTI_SYSTEM);
  EXPECT_TRUE(host().logged("on any port of TUTTI_TCP_PORTS="));
}

TEST_F(Connect, BadSettingsAreRefusedByName) {
  const std::vector<std::pair<const char*, const char*>> bad{{"TUTTI_TCP_INTERFACE", ""},
                                                             {"TUTTI_TCP_INTERFACE", "nosuch0"},
                                                             {"TUTTI_TCP_INTERFACE", "^lo,"},
                                                             {"TUTTI_TCP_INTERFACE", "10.0.0.0/99"},
                                                             {"TUTTI_TCP_INTERFACE", "lo,^lo"},
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
                                                             {"TUTTI_TCP_USER_TIMEOUT", "1s"},
                                                             {"TUTTI_TCP_CONNECT_TIMEOUT", "0"},
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
  const auto make = [](const char* interface, const char* ip, uint32_t prefix) {
    LocalAddress a{{}, prefix, interface};
    EXPECT_TRUE(IpAddress::parse(ip, a.ip));
    return a;
  };
  const std::vector<LocalAddress> all{make("lo", "127.0.0.1", 8),      make("eth0", "10.0.0.5", 24),
                                      make("eth1", "10.0.1.5", 24),    make("ib0", "192.168.7.2", 16),
                                      make("eth0", "2001:db8::5", 64), make("lo", "::1", 128)};
  const auto names = [&](const char* selection) {
    std::string text;
    for (const auto& a : select_addresses(all, selection)) text += a.ip.text() + " ";
    return text;
  };
  EXPECT_EQ(names(""), "10.0.0.5 10.0.1.5 192.168.7.2 2001:db8::5 127.0.0.1 ::1 ");
  EXPECT_EQ(names("eth"), "10.0.0.5 10.0.1.5 2001:db8::5 ");
  EXPECT_EQ(names("^eth1"), "10.0.0.5 192.168.7.2 2001:db8::5 127.0.0.1 ::1 ");
  EXPECT_EQ(names("ib0,10.0.1.5"), "10.0.1.5 192.168.7.2 ");
  EXPECT_EQ(names("10.0.0.0/23"), "10.0.0.5 10.0.1.5 ");
  EXPECT_EQ(names("eth,^2001:db8::/32"), "10.0.0.5 10.0.1.5 ");

  PeerAddress peer;
  for (const char* ip : {"127.0.0.1", "192.0.2.1", "10.0.1.77", "2001:db8:1::1", "::1"}) {
    PeerAddress::Listener listener{{}, 5};
    ASSERT_TRUE(IpAddress::parse(ip, listener.ip));
    peer.listeners.push_back(listener);
  }
  const auto order = [&](const char* selection, bool same_host) {
    std::string text;
    for (const auto& l : plausible(peer, select_addresses(all, selection), same_host)) text += l.ip.text() + " ";
    return text;
  };
  EXPECT_EQ(order("", false), "10.0.1.77 192.0.2.1 2001:db8:1::1 ");
  EXPECT_EQ(order("", true), "127.0.0.1 ::1 10.0.1.77 192.0.2.1 2001:db8:1::1 ");
  EXPECT_EQ(order("ib0", false), "192.0.2.1 10.0.1.77 ");
  EXPECT_EQ(order("lo", false), "");
}

TEST_F(Connect, NoDescriptorIsLost) {
  host().settings["TUTTI_TCP_SOCKETS"] = "2";
  size_t before = 0;
  for (int i = 0; i < 100; ++i) {
    Rank a(0), b(1);
    ASSERT_NO_FATAL_FAILURE(join(a, 0, b, 1));
    if (i == 0) continue;  // the libraries open theirs once
    if (before == 0) before = open_descriptors();
    ASSERT_EQ(open_descriptors(), before) << "round " << i;
  }
}

}  // namespace
}  // namespace tutti_test
