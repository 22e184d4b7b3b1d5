// SPDX-License-Identifier: Apache-2.0
//
// Connecting to ranks that are elsewhere for a while: before their first step, between two steps, or behind addresses
// that somebody else answers or nobody.
#include <deque>

#include "../src/settings.hpp"
#include "bare_peer.hpp"
#include "harness/virtual_time/virtual_time.hpp"
#include "listening_socket.hpp"

namespace tutti_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using tutti::test::late;
using tutti::test::VirtualTime;

// Longer than an acceptor waits for a stranger.
constexpr milliseconds kPause = tutti::tcp::kStrangerLimit + milliseconds(400);

class Late : public testing::Test {
 protected:
  void SetUp() override { host().settings = {{"TUTTI_TCP_INTERFACE", "127.0.0.1"}}; }
  void TearDown() override { host().settings.clear(); }
};

// Two ranks of which `a` connects, and dials or is dialled.
struct Pair {
  explicit Pair(bool dials, uint64_t timeout_ns = 60'000'000'000, uint64_t communicator = 7)
      : a_rank(dials),
        a(a_rank, {.communicator = communicator, .timeout_ns = timeout_ns}),
        b(1 - a_rank, {.communicator = communicator}) {}
  const uint32_t a_rank;
  Rank a, b;
  tutti_status status = TUTTI_AGAIN;

  bool step() {
    if (status == TUTTI_AGAIN) status = a.connect(1 - a_rank);
    a.progress();
    return status != TUTTI_AGAIN;
  }
  void expect_link() {
    const uint32_t b_rank = 1 - a_rank;
    ASSERT_TRUE(drive({&a, &b}, [&] { return step(); }));
    ASSERT_EQ(status, TUTTI_OK) << a.error;
    uint32_t out = 77, in = 0;
    ASSERT_TRUE(drive({&a, &b}, [&] { return b.connect(a_rank) != TUTTI_AGAIN; }));
    ASSERT_EQ(b.connect(a_rank), TUTTI_OK) << b.error;
    ASSERT_EQ(b.receive(a_rank, 1, &in, 4, 1), TUTTI_OK);
    ASSERT_EQ(a.send(b_rank, 1, &out, 4, 2), TUTTI_OK);
    ASSERT_TRUE(drive({&a, &b}, [&] { return a.has(2) && b.has(1); }));
    EXPECT_EQ(in, out);
    EXPECT_TRUE(a.failures.empty() && b.failures.empty());
  }
};

// An address has 7.5 s here; the peer's kernel accepts, the peer itself comes after 75 s.
TEST_F(Late, APeerThatComesLateIsWaitedFor) {
  const VirtualTime time;
  for (const char* sockets : {"1", "3"}) {
    host().settings["TUTTI_TCP_SOCKETS"] = sockets;
    Pair pair(true, 30'000'000'000);
    pair.step();
    pair.b.progress();  // it makes its offer, and leaves
    EXPECT_FALSE(drive(
        {}, [&] { return pair.step(); }, seconds(75)))
        << pair.a.error;
    ASSERT_NO_FATAL_FAILURE(pair.expect_link());
  }
}

// A link of several sockets is made in many steps. Each pair stops after another number of them: one end goes away for
// longer than strangers are waited for, and the other end goes on.
TEST_F(Late, APauseBetweenAnyTwoStepsBreaksNothing) {
  const VirtualTime time;
  host().settings["TUTTI_TCP_SOCKETS"] = "4";
  struct Stopped : Pair {
    Stopped(bool dials, bool stops, uint64_t communicator)
        : Pair(dials, 60'000'000'000, communicator), connector_stops(stops) {}
    bool connector_stops;
  };
  std::deque<Stopped> pairs;
  for (int steps = 0; steps < 12; ++steps)
    for (const bool dials : {true, false})
      for (const bool connector_stops : {true, false}) {
        Stopped& pair = pairs.emplace_back(dials, connector_stops, pairs.size());
        for (int i = 0; i < steps; ++i) pair.step(), pair.b.progress();
      }
  drive(
      {},
      [&] {
        for (Stopped& pair : pairs) {
          if (pair.connector_stops) {
            pair.b.progress();
          } else {
            pair.step();
          }
        }
        return false;
      },
      kPause);
  for (Stopped& pair : pairs) ASSERT_NO_FATAL_FAILURE(pair.expect_link());
}

// A listener between rank 0 and rank 1, which dials, that hangs up on some connections and hands the bytes of the
// others on. The offers have been exchanged, and the next progress of rank 1 dials.
class Between {
 public:
  Between(Rank& zero, Rank& one) {
    exchange_offers(zero, one);
    to_ = mailed_to(1);
    divert(1, listener_.port());
  }
  void hang_up_on(std::vector<int> connections) { doomed_ = std::move(connections); }
  int connections() const { return count_; }

  void step() {
    for (int fd; (fd = listener_.accept()) >= 0;) {
      const bool doomed = std::find(doomed_.begin(), doomed_.end(), count_++) != doomed_.end();
      if (doomed) {
        ::close(fd);
      } else {
        ways_.push_back(std::make_unique<Way>(fd, to_));
      }
    }
    for (const auto& way : ways_) {
      hand_on(way->near, way->far.descriptor());
      hand_on(way->far.descriptor(), way->near);
    }
  }

 private:
  struct Way {
    Way(int fd, const PairMessage& to) : near(fd), far(to) {}
    ~Way() { ::close(near); }
    int near;
    BarePeer far;
  };
  static void hand_on(int from, int to) {
    char bytes[4096];
    const ssize_t n = ::recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n > 0) {
      EXPECT_EQ(::send(to, bytes, static_cast<size_t>(n), MSG_NOSIGNAL), n);
    }
    if (n == 0) ::shutdown(to, SHUT_WR);
  }

  PairMessage to_;
  ListeningSocket listener_;
  std::vector<int> doomed_;
  int count_ = 0;
  std::vector<std::unique_ptr<Way>> ways_;
};

tutti_status connect_by(Rank& zero, Rank& one, Between& between) {
  tutti_status status = TUTTI_AGAIN;
  EXPECT_TRUE(drive({&zero, &one}, [&] {
    between.step();
    return (status = one.connect(0)) != TUTTI_AGAIN;
  }));
  return status;
}

TEST_F(Late, ADroppedHandshakeBeginsAgainOnEverySocket) {
  host().settings["TUTTI_TCP_SOCKETS"] = "3";
  Rank a(0), b(1);
  Between between(a, b);
  between.hang_up_on({0, 2, 4});  // socket 0's first connection, and some of the others'
  EXPECT_EQ(connect_by(a, b, between), TUTTI_OK) << b.error;
  EXPECT_EQ(between.connections(), 6);
}

// The other end is asked to dial then, and fails alike.
TEST_F(Late, AnAddressThatAlwaysHangsUpIsGivenUp) {
  Rank a(0), b(1);
  Between between(a, b);
  between.hang_up_on({0, 1, 2, 3, 4, 5, 6, 7});
  const ListeningSocket dead(ListeningSocket::kDead);
  divert(0, dead.port());
  EXPECT_EQ(connect_by(a, b, between), TUTTI_SYSTEM);
  EXPECT_NE(b.error.find("hung up during the handshake"), std::string::npos) << b.error;
  EXPECT_LE(between.connections(), 3);
}

TEST_F(Late, AnAddressThatDoesNotAnswerTimesOut) {
  const VirtualTime time;
  const ListeningSocket full(ListeningSocket::kFull);
  Rank a(0, {.timeout_ns = 30'000'000'000}), b(1, {.timeout_ns = 30'000'000'000});
  ASSERT_NO_FATAL_FAILURE(exchange_offers(a, b));
  ASSERT_NO_FATAL_FAILURE(divert(0, full.port()));
  ASSERT_NO_FATAL_FAILURE(divert(1, full.port()));
  const auto begin = time.passed();
  tutti_status sa, sb;
  settle(a, b, sa, sb);
  EXPECT_GE(time.passed() - begin, milliseconds(7500));
  EXPECT_LT(time.passed() - begin, seconds(30)) << "longer than the core waits";
  EXPECT_EQ(sa, TUTTI_TIMEOUT) << a.error;
  EXPECT_EQ(sb, TUTTI_TIMEOUT) << b.error;
  for (const std::string& error : {a.error, b.error}) {
    EXPECT_NE(error.find("rank 1 tried 127.0.0.1"), std::string::npos) << error;
    EXPECT_NE(error.find("(no answer within 7.5 s)"), std::string::npos) << error;
  }
}

// Somebody else who accepts and says nothing cannot be told from a peer that is late; the next address is tried beside.
TEST_F(Late, ASilentStrangerHidesNoPeer) {
  const VirtualTime time;
  const ListeningSocket silent;
  Rank a(0), b(1);
  ASSERT_NO_FATAL_FAILURE(exchange_offers(a, b));
  PairMessage offer = mailed_to(1);
  offer.listeners[offer.n_listeners++] = offer.listeners[0];
  offer.listeners[0].port = silent.port();
  mail_for(1).back().bytes = offer.encode();
  tutti_status status = TUTTI_AGAIN;
  const auto connected = [&] { return (status = b.connect(0)) != TUTTI_AGAIN; };
  EXPECT_FALSE(drive({&b}, connected, milliseconds(3500))) << b.error;  // both addresses are tried, and a is late
  ASSERT_TRUE(drive({&a, &b}, connected));
  EXPECT_EQ(status, TUTTI_OK) << b.error;
}

// A dialler that was away may find out that its socket was dropped; the token is still good.
TEST_F(Late, ADroppedSocketUsesNoTokenUp) {
  const VirtualTime time;
  Rank a(0);
  ASSERT_EQ(a.connect(1), TUTTI_AGAIN);
  const PairMessage offer = mailed_to(1);
  ASSERT_EQ(a.receive_pair(1, offer.encode()), TUTTI_OK);
  BarePeer slow(offer);
  slow.say("no token", 8);
  const auto begin = time.passed();
  EXPECT_TRUE(slow.is_hung_up_on(a, seconds(120)));
  EXPECT_GE(time.passed() - begin, tutti::tcp::kStrangerLimit);
  EXPECT_LT(time.passed() - begin, late(tutti::tcp::kStrangerLimit));
  BarePeer again(offer);
  EXPECT_TRUE(again.knock(a));
  EXPECT_EQ(a.connect(1), TUTTI_OK) << a.error;
}

}  // namespace
}  // namespace tutti_test
