// SPDX-License-Identifier: Apache-2.0
//
// Connecting links, and keeping strangers out.
#include <dirent.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <atomic>
#include <climits>
#include <optional>
#include <random>

#include "../src/settings.hpp"
#include "bare_peer.hpp"
#include "certificates.hpp"
#include "listening_socket.hpp"

namespace {
std::atomic<int> watches_left{INT_MAX};  // that the system allows
}  // namespace

// The C library's, with a limit.
extern "C" int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  if (operation == EPOLL_CTL_ADD && watches_left-- <= 0) {
    errno = ENOSPC;
    return -1;
  }
  return static_cast<int>(syscall(SYS_epoll_ctl, epoll, operation, fd, event));
}

namespace tutti_test {
namespace {

class Connect : public testing::Test {
 protected:
  void SetUp() override { host().settings = {{"TUTTI_TCP_INTERFACE", "127.0.0.1"}}; }
  void TearDown() override { watches_left = INT_MAX; }
};

// Only `a` calls connect.
tutti_status settle(Rank& a, Rank& b, uint32_t b_rank) {
  tutti_status status = TUTTI_AGAIN;
  EXPECT_TRUE(drive({&a, &b}, [&] { return (status = a.connect(b_rank)) != TUTTI_AGAIN; }));
  return status;
}

// Rank 0's offer to rank 1, which answers with the same offer.
PairMessage offer_of(Rank& a) {
  EXPECT_EQ(a.connect(1), TUTTI_AGAIN) << a.error;
  const PairMessage offer = mailed_to(1);
  EXPECT_EQ(a.receive_pair(1, offer.encode()), TUTTI_OK) << a.error;
  return offer;
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
      ASSERT_EQ(passive.connect(1 - to), TUTTI_OK) << "the link is there already";
      tutti_link* link = passive.link(1 - to);
      ASSERT_EQ(passive.connect(1 - to), TUTTI_OK);
      EXPECT_EQ(passive.link(1 - to), link);
    }
  }
}

// Many interleavings of two ends that connect: each makes exactly one link that works both ways.
TEST_F(Connect, CrossingAttemptsMakeOneLink) {
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    host().settings["TUTTI_TCP_SOCKETS"] = i % 3 ? "3" : "1";
    Rank a(0), b(1);
    tutti_status sa = TUTTI_AGAIN, sb = TUTTI_AGAIN;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while ((sa == TUTTI_AGAIN || sb == TUTTI_AGAIN) && std::chrono::steady_clock::now() < end) {
      switch (random() % 4) {
        case 0:
          if (sa == TUTTI_AGAIN) sa = a.connect(1);
          break;
        case 1:
          if (sb == TUTTI_AGAIN) sb = b.connect(0);
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
  for (uint32_t r = 0; r < n; ++r) {
    ranks.push_back(std::make_unique<Rank>(r, Shape{.nranks = n}));
    all.push_back(ranks.back().get());
  }
  ASSERT_TRUE(drive(all, [&] {
    bool done = true;
    for (uint32_t r = 0; r < n; ++r)
      for (uint32_t p = 0; p < n; ++p)
        if (p != r && !all[r]->link(p)) done &= all[r]->connect(p) == TUTTI_OK;
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

// A listener at the peer's address that does not know the answer is not the peer.
TEST_F(Connect, AnImpostorThatAcceptsIsRefused) {
  ListeningSocket listener;
  Rank a(0), b(1);
  ASSERT_NO_FATAL_FAILURE(exchange_offers(a, b));
  ASSERT_NO_FATAL_FAILURE(divert(1, listener.port()));
  b.progress();  // it dials
  const int s = listener.accept();
  ASSERT_GE(s, 0);
  Opening opening;
  ASSERT_TRUE(drive({&b}, [&] { return ::recv(s, &opening, sizeof opening, MSG_PEEK) == sizeof opening; }));
  mail_for(0).clear();
  ASSERT_EQ(write(s, &opening, sizeof opening), ssize_t{sizeof opening});
  ASSERT_TRUE(drive({&b}, [&] { return !mail_for(0).empty(); }));
  const PairMessage request = mailed_to(0);
  EXPECT_EQ(request.kind, PairMessage::kDial);
  EXPECT_NE(request.text.find("something other than rank 0 listens there"), std::string::npos) << request.text;
  ::close(s);
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
  ASSERT_EQ(b->connect(0), TUTTI_MISMATCH);
  EXPECT_NE(b->error.find("lanes is 6 on rank 1 and 4 on rank 0"), std::string::npos) << b->error;
}

// Neither can read what the other one offers, and both say so.
TEST_F(Connect, AnotherVersionIsNamedOnBothSides) {
  Rank a(0), b(1);
  ASSERT_EQ(a.connect(1), TUTTI_AGAIN);
  std::string later = mail_for(1).front().bytes;
  mail_for(1).clear();
  later[4] = 9;
  EXPECT_EQ(b.receive_pair(0, later), TUTTI_MISMATCH);
  EXPECT_NE(b.error.find("rank 1: net-tcp: from rank 0: it speaks version 9 of the tcp transport, this rank version 6"),
            std::string::npos)
      << b.error;
  ASSERT_EQ(mail_for(0).size(), 1u) << "rank 0 must learn of it";
  EXPECT_EQ(mailed_to(0).kind, PairMessage::kOffer);
}

TEST_F(Connect, RealTimeStrangersDisturbNobody) {
  Rank a(0), b(1);
  ASSERT_EQ(a.connect(1), TUTTI_AGAIN);
  const PairMessage offer = mailed_to(1);
  PairMessage guess = offer;
  guess.knock[0] = static_cast<uint8_t>(guess.knock[0] + 1);
  BarePeer silent(offer), garbage(offer), half(offer), liar(guess);
  const auto noise = pattern(5000, 4);
  garbage.say(noise.data(), noise.size());
  half.say(noise.data(), 30);
  EXPECT_FALSE(liar.knock(a));
  EXPECT_TRUE(host().logged("it has presented no valid token"));
  ASSERT_NO_FATAL_FAILURE(join(a, b));
  EXPECT_TRUE(garbage.is_hung_up_on(a));
  BarePeer second(offer);
  EXPECT_FALSE(second.knock(a)) << "a token has opened the socket twice";
  // A stranger that sends nothing, or a byte now and then, even of a TLS record, gets no more time than others.
  Authority authority("strangers");
  const PemFiles files = authority.issue("zero");
  host().settings["TUTTI_TLS_CERTIFICATE"] = files.certificate;
  host().settings["TUTTI_TLS_KEY"] = files.key;
  host().settings["TUTTI_TLS_CA"] = authority.file();
  Rank c(0);
  ASSERT_EQ(c.connect(1), TUTTI_AGAIN);
  BarePeer slow(offer), slow_in_tls(mailed_to(1));
  slow_in_tls.say("\x16\x03\x01\x02", 4);
  drive(
      {&a, &c}, [] { return false; }, std::chrono::milliseconds(50));
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

// Each socket of a link is opened once, by the peer that has the token, whatever else it says of itself.
TEST_F(Connect, ATokenOpensItsSocketsOnce) {
  host().settings["TUTTI_TCP_SOCKETS"] = "2";
  Rank a(0, {.nranks = 3});
  ASSERT_EQ(a.connect(1), TUTTI_AGAIN);
  ASSERT_EQ(a.connect(2), TUTTI_AGAIN);
  const PairMessage offer = mailed_to(1);
  EXPECT_NE(offer.knock, mailed_to(2).knock);
  EXPECT_NE(offer.knock, offer.answer);
  ASSERT_EQ(a.receive_pair(1, offer.encode()), TUTTI_OK);
  BarePeer first(offer), again(offer), beyond(offer), another(offer), far(offer), last(offer), late(offer);
  EXPECT_TRUE(first.knock(a, 1, 0));
  EXPECT_FALSE(again.knock(a, 1, 0));
  EXPECT_FALSE(beyond.knock(a, 1, 2));
  EXPECT_FALSE(another.knock(a, 2, 1)) << "that is rank 1's token";
  EXPECT_FALSE(far.knock(a, 1u << 30, 0));
  ASSERT_EQ(a.connect(1), TUTTI_AGAIN);
  EXPECT_TRUE(last.knock(a, 1, 1));
  ASSERT_EQ(a.connect(1), TUTTI_OK) << a.error;
  EXPECT_FALSE(late.knock(a, 1, 0));
  EXPECT_TRUE(a.failures.empty());
}

// A peer with the token that breaks the protocol is lost, with a reason; nothing is written out of bounds.
TEST_F(Connect, FramesAreCheckedBeforeUse) {
  using tutti::tcp::Frame;
  using tutti::tcp::FrameKind;
  host().settings["TUTTI_TCP_FRAGMENT_BYTES"] = "1000000";
  const std::vector<std::pair<Frame, const char*>> bad{
      {{FrameKind::kData, 4, 0, 0, 8}, "lane 4"},
      {{FrameKind::kData, 0xffffffff, 0, 0, 8}, "lane 4294967295"},
      {{FrameKind::kData, 0, 0, 0, static_cast<uint32_t>(caps().fragment_bytes + 1)}, "at most"},
      {{FrameKind::kData, 0, 0, 0, UINT32_MAX}, "at most"},
      {{FrameKind::kData, 0, 0, 5, 8}, "expected number 0"},
      {{FrameKind::kData, 0, 0, 0, 300000}, "without credit"},
      {{FrameKind::kControl, 0, 0, 0, 257}, "control message of 257"},
      {{FrameKind::kPosted, 0, 0x80000001, 0, 0}, "went back"},
      {{static_cast<FrameKind>(77), 0, 0, 0, 0}, "unknown kind 77"}};
  for (const auto& [frame, reason] : bad) {
    Rank a(0);
    BarePeer peer(offer_of(a));
    ASSERT_TRUE(peer.knock(a));
    peer.say(frame);
    ASSERT_TRUE(drive({&a}, [&] { return a.failures.contains(1); })) << reason;
    EXPECT_NE(a.failures[1].find(reason), std::string::npos) << a.failures[1];
  }
  const std::vector<std::pair<uint32_t, uint32_t>> windows{{0, 64},     {4096, 64}, {4097, 16},
                                                           {16384, 16}, {16385, 2}, {262144, 2}};
  for (const auto& [bytes, window] : windows) {
    Rank a(0);  // one message more than the window
    BarePeer peer(offer_of(a));
    ASSERT_TRUE(peer.knock(a));
    const std::string payload(bytes, 'x');
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

TEST_F(Connect, PairMessagesAreCheckedBeforeUse) {
  Rank a(0);
  ASSERT_EQ(a.connect(1), TUTTI_AGAIN);
  const PairMessage offer = mailed_to(1);
  const std::string good = offer.encode();
  for (size_t cut = 0; cut < good.size(); ++cut)
    EXPECT_EQ(a.receive_pair(1, good.substr(0, cut)), TUTTI_INVALID_ARGUMENT) << cut;
  EXPECT_EQ(a.receive_pair(1, good + "x"), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(a.receive_pair(1, std::string(4096, '\xff')), TUTTI_INVALID_ARGUMENT);
  const size_t body = sizeof(tutti::sdk::PairFormat::Head), listeners = offsetof(tutti::tcp::Offer, listeners);
  for (const size_t at : {size_t{0}, size_t{8}, size_t{12}, body + listeners - 8, body + listeners + 16}) {
    std::string bad = good;  // the magic number, the kind, the status, the number of listeners, the first one's port
    if (at == body + listeners + 16)
      bad.replace(at, 2, 2, '\0');
    else
      bad[at] = static_cast<char>(bad[at] + 100);
    EXPECT_EQ(a.receive_pair(1, bad), TUTTI_INVALID_ARGUMENT) << at;
    EXPECT_NE(a.error.find("rank 0: net-tcp: from rank 1: "), std::string::npos) << a.error;
  }
  PairMessage note;
  note.kind = PairMessage::kDial;
  note.status = TUTTI_SYSTEM;
  EXPECT_EQ(a.receive_pair(1, note.encode()), TUTTI_INVALID_ARGUMENT) << "asked to dial before the offer";
  note.status = TUTTI_OK;
  EXPECT_EQ(a.receive_pair(1, note.encode()), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(a.receive_pair(0, good), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(a.receive_pair(2, good), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(a.connect(2), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(a.connect(0), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(a.receive_pair(1, good), TUTTI_OK) << a.error;
  EXPECT_EQ(a.receive_pair(1, good), TUTTI_INVALID_ARGUMENT) << "a second offer";
}

// Nothing is lost while the core has no room for pair messages.
TEST_F(Connect, PairMessagesWaitForRoom) {
  Rank a(0), b(1);
  PairMail::job().full = true;
  ASSERT_EQ(a.connect(1), TUTTI_AGAIN);
  EXPECT_EQ(wait_table().arm(a.endpoint), TUTTI_AGAIN) << "nobody would wake it";
  for (int i = 0; i < 10; ++i) a.progress();
  EXPECT_TRUE(mail_for(1).empty());
  PairMail::job().full = false;
  ASSERT_EQ(settle(a, b, 1), TUTTI_OK) << a.error;
}

// Both ends try, and both say what was tried.
TEST_F(Connect, DeadAddressesFailOnBothSidesAndSayWhatWasTried) {
  const ListeningSocket dead(ListeningSocket::kDead);
  Rank a(0), b(1);
  ASSERT_NO_FATAL_FAILURE(exchange_offers(a, b));
  ASSERT_NO_FATAL_FAILURE(divert(0, dead.port()));
  ASSERT_NO_FATAL_FAILURE(divert(1, dead.port()));
  tutti_status sa, sb;
  settle(a, b, sa, sb);
  EXPECT_EQ(sa, TUTTI_SYSTEM);
  EXPECT_EQ(sb, TUTTI_SYSTEM);
  const std::string where = "127.0.0.1:" + std::to_string(dead.port()) + " (Connection refused)";
  for (const std::string& error : {a.error, b.error})
    EXPECT_NE(error.find("rank 1 tried " + where + "; rank 0 tried " + where), std::string::npos) << error;
}

TEST_F(Connect, WhereOneEndCannotReachTheOtherItIsReached) {
  const ListeningSocket dead(ListeningSocket::kDead);
  for (const char* sockets : {"1", "3"}) {
    host().settings["TUTTI_TCP_SOCKETS"] = sockets;
    Rank a(0), b(1);
    ASSERT_NO_FATAL_FAILURE(exchange_offers(a, b));
    ASSERT_NO_FATAL_FAILURE(divert(1, dead.port()));
    ASSERT_NO_FATAL_FAILURE(join(a, b));
    int x = 42, y = 0;
    ASSERT_EQ(b.receive(0, 0, &y, 4, 1), TUTTI_OK);
    ASSERT_EQ(a.send(1, 0, &x, 4, 2), TUTTI_OK);
    ASSERT_TRUE(drive({&a, &b}, [&] { return b.has(1); }));
    EXPECT_EQ(y, x);
  }
}

// An accepted socket is the last thing for which the system may lack something: each end has its link then.
TEST_F(Connect, AnEndThatHasAnsweredCannotFail) {
  Rank a(0), b(1);
  ASSERT_NO_FATAL_FAILURE(exchange_offers(a, b));
  b.progress();  // it dials
  watches_left = 1;
  tutti_status sa, sb;
  settle(a, b, sa, sb);
  EXPECT_EQ(sa, TUTTI_OK) << a.error;
  EXPECT_EQ(sb, TUTTI_OK) << b.error;
}

// The system watches so few descriptors: none, one, and so on until there is a link.
TEST_F(Connect, ALackOfWatchesIsTheSameErrorAtBothEnds) {
  for (const char* sockets : {"1", "3"}) {
    host().settings["TUTTI_TCP_SOCKETS"] = sockets;
    tutti_status sa = TUTTI_AGAIN, sb = TUTTI_AGAIN;
    for (int allowed = 0; sa != TUTTI_OK; ++allowed) {
      ASSERT_LT(allowed, 20);
      watches_left = INT_MAX;
      Rank a(0), b(1);
      ASSERT_NO_FATAL_FAILURE(exchange_offers(a, b));
      watches_left = allowed;
      settle(a, b, sa, sb);
      ASSERT_EQ(sa, sb) << a.error << "; " << b.error;
      ASSERT_TRUE(sa == TUTTI_OK || sa == TUTTI_NO_RESOURCES || sa == TUTTI_SYSTEM) << a.error;
      ASSERT_TRUE(a.failures.empty() && b.failures.empty());
    }
  }
}

// Rank 1 has failed to dial, and may open no more descriptors when it is dialled. Rank 0 finds that its sockets are
// turned away before it hears why.
TEST_F(Connect, ARefusalThatIsSlowerThanTheSocketsIsTheReasonAtBothEnds) {
  const ListeningSocket dead(ListeningSocket::kDead);
  Rank a(0), b(1);
  ASSERT_NO_FATAL_FAILURE(exchange_offers(a, b));
  ASSERT_NO_FATAL_FAILURE(divert(1, dead.port()));
  ASSERT_TRUE(drive({&b}, [&] { return mail_for(0).size() == 2; }));  // it asks rank 0 to dial
  a.progress();                                                       // it dials
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
  const int next = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
  ASSERT_EQ(::close(next), 0);
  const rlimit none{static_cast<rlim_t>(next), usual.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool refused = drive({&b}, [&] { return !mail_for(0).empty(); });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
  ASSERT_TRUE(refused);
  const auto late = std::exchange(mail_for(0), {});
  tutti_status sa, sb;
  settle(a, b, sa, sb);
  EXPECT_EQ(sa, TUTTI_NO_RESOURCES) << a.error;
  EXPECT_EQ(sb, TUTTI_NO_RESOURCES) << b.error;
  EXPECT_NE(a.error.find("rank 1 cannot accept connections: Too many open files"), std::string::npos) << a.error;
  mail_for(0) = late;
  a.progress();
  EXPECT_EQ(a.connect(1), TUTTI_NO_RESOURCES) << a.error;
}

TEST_F(Connect, AnotherHostsLoopbackIsNotTried) {
  host().settings["TUTTI_HOST_ID"] = "here";
  Rank a(0);
  host().settings["TUTTI_HOST_ID"] = "there";
  Rank b(1);
  tutti_status sa, sb;
  settle(a, b, sa, sb);
  EXPECT_EQ(sa, TUTTI_SYSTEM);
  EXPECT_EQ(sb, TUTTI_SYSTEM);
  EXPECT_NE(a.error.find("rank 0 has no address from which it could reach rank 1's (127.0.0.1:"), std::string::npos)
      << a.error;
  EXPECT_NE(a.error.find("rank 1 offers loopback addresses only"), std::string::npos) << a.error;
}

TEST_F(Connect, NoDescriptorIsLost) {
  host().settings["TUTTI_TCP_SOCKETS"] = "2";
  size_t before = 0;
  for (int i = 0; i < 100; ++i) {
    Rank a(0), b(1);
    ASSERT_NO_FATAL_FAILURE(join(a, b));
    if (i == 0) continue;  // the libraries open theirs once
    if (before == 0) before = open_descriptors();
    ASSERT_EQ(open_descriptors(), before) << "round " << i;
  }
}

}  // namespace
}  // namespace tutti_test
