// SPDX-License-Identifier: Apache-2.0
//
// Peers that die, leave or are given up; and sleeping.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "../src/acknowledgement.hpp"
#include "listening_socket.hpp"
#include "tcp_ranks.hpp"

namespace tutti_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class Failure : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    host().settings = {{"TUTTI_TCP_INTERFACE", "127.0.0.1"}, {"TUTTI_TCP_SOCKETS", GetParam()}};
    a = std::make_unique<Rank>(0);
    b = std::make_unique<Rank>(1);
    ASSERT_NO_FATAL_FAILURE(join(*a, *b));
  }
  bool both(const std::function<bool()>& until) { return drive({a.get(), b.get()}, until); }
  // Transfers in every state: a large send that fills the socket, sends that wait, receives that wait.
  void make_pending() {
    const uint64_t fragment = caps().fragment_bytes;
    out = pattern(fragment, 1);
    in.assign(fragment, 0);
    for (uint64_t i = 0; i < 60; ++i) ASSERT_EQ(b->receive(0, 0, in.data(), fragment, i), TUTTI_OK);
    for (int i = 0; i < 100; ++i) a->progress();
    for (uint64_t i = 0; i < 60; ++i) ASSERT_EQ(a->send(1, 0, out.data(), fragment, i), TUTTI_OK);
    for (uint64_t i = 100; i < 150; ++i) ASSERT_EQ(a->send(1, 1, out.data(), 9000, i), TUTTI_OK);
    for (uint64_t i = 200; i < 205; ++i) ASSERT_EQ(a->receive(1, 2, in.data(), 77, i), TUTTI_OK);
    for (int i = 0; i < 5; ++i) a->progress();
  }
  static constexpr size_t kPending = 60 + 50 + 5;
  void expect_all_ended(tutti_status status) {
    ASSERT_TRUE(drive({a.get()}, [&] { return a->ended.size() == kPending; }));
    for (uint64_t i = 200; i < 205; ++i) EXPECT_TRUE(a->has(i, status)) << i;
    for (const auto& [cookie, ended] : a->ended)
      EXPECT_TRUE(ended.status == TUTTI_OK || ended.status == status) << cookie;
    char byte = 0;
    EXPECT_EQ(a->send(1, 0, &byte, 1, 999), status);
    EXPECT_EQ(a->receive(1, 0, &byte, 1, 999), status);
    EXPECT_EQ(table().send_control(a->link(1), &byte, 1), status);
  }
  std::unique_ptr<Rank> a, b;
  std::vector<unsigned char> out, in;
};

INSTANTIATE_TEST_SUITE_P(Sockets, Failure, testing::Values("1", "3"));

TEST_P(Failure, FailPeerEndsWhatIsPending) {
  ASSERT_NO_FATAL_FAILURE(make_pending());
  ASSERT_EQ(table().fail_peer(a->endpoint, 1), TUTTI_OK);
  expect_all_ended(TUTTI_PEER_FAILED);
  EXPECT_EQ(a->connect(1), TUTTI_PEER_FAILED);
  ASSERT_TRUE(drive({b.get()}, [&] { return b->failures.contains(0); })) << "the other side must learn of it";
  const auto frozen = in;
  for (int i = 0; i < 200; ++i) b->progress();
  EXPECT_EQ(in, frozen) << "memory of an ended receive was written";
  EXPECT_EQ(table().fail_peer(a->endpoint, 0), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(table().fail_peer(a->endpoint, 2), TUTTI_INVALID_ARGUMENT);
}

TEST_P(Failure, AbortEndsEverything) {
  ASSERT_NO_FATAL_FAILURE(make_pending());
  ASSERT_EQ(table().abort(a->endpoint), TUTTI_OK);
  ASSERT_EQ(table().abort(a->endpoint), TUTTI_OK);
  expect_all_ended(TUTTI_ABORTED);
  EXPECT_EQ(a->connect(1), TUTTI_ABORTED);
  ASSERT_TRUE(drive({b.get()}, [&] { return b->failures.contains(0); }));
}

TEST_P(Failure, AGivenUpPeerCannotConnect) {
  Rank c(0), d(1);
  ASSERT_EQ(table().fail_peer(c.endpoint, 1), TUTTI_OK);
  tutti_status status = TUTTI_AGAIN;
  ASSERT_TRUE(drive({&c, &d}, [&] { return (status = d.connect(0)) != TUTTI_AGAIN; }));
  EXPECT_EQ(status, TUTTI_PEER_FAILED);
  EXPECT_NE(d.error.find("given this rank up"), std::string::npos) << d.error;
}

// The end that gives up while the two are connecting says so: no socket of theirs would tell.
TEST_P(Failure, APeerThatConnectsLearnsThatItIsGivenUp) {
  const ListeningSocket silent;
  for (const bool aborts : {false, true}) {
    Rank c(0), d(1);
    ASSERT_NO_FATAL_FAILURE(exchange_offers(c, d));
    ASSERT_NO_FATAL_FAILURE(divert(1, silent.port()));
    for (int i = 0; i < 10; ++i) d.progress(), c.progress();
    ASSERT_EQ(d.connect(0), TUTTI_AGAIN) << d.error;
    ASSERT_EQ(aborts ? table().abort(c.endpoint) : table().fail_peer(c.endpoint, 1), TUTTI_OK);
    tutti_status status = TUTTI_AGAIN;
    ASSERT_TRUE(drive(
        {&c, &d}, [&] { return (status = d.connect(0)) != TUTTI_AGAIN; }, milliseconds(60000)));
    EXPECT_EQ(status, TUTTI_PEER_FAILED);
    EXPECT_NE(d.error.find("rank 0 has given this rank up"), std::string::npos) << d.error;
  }
}

TEST_P(Failure, SmallCapacityLosesNoCompletion) {
  ASSERT_NO_FATAL_FAILURE(make_pending());
  ASSERT_EQ(table().fail_peer(a->endpoint, 1), TUTTI_OK);
  for (int i = 0; i < 1000 && a->ended.size() < kPending; ++i) a->progress(1);
  EXPECT_EQ(a->ended.size(), kPending);
}

// Messages that completed before an orderly close arrive; then the peer is lost.
TEST_P(Failure, RealTimeClosingDeliversWhatWasCompleted) {
  const uint64_t fragment = caps().fragment_bytes;
  const auto data = pattern(fragment, 2);
  std::vector<unsigned char> large(fragment), small(100), late(100);
  ASSERT_EQ(b->receive(0, 0, large.data(), fragment, 1), TUTTI_OK);
  for (uint64_t i = 0; i < 30; ++i) ASSERT_EQ(b->receive(0, 1, small.data(), 100, 10 + i), TUTTI_OK);
  ASSERT_EQ(a->send(1, 0, data.data(), fragment, 1), TUTTI_OK);
  for (uint64_t i = 0; i < 30; ++i)
    ASSERT_TRUE(both([&] { return a->send(1, 1, data.data(), 100, 0, TUTTI_TRANSFER_INLINE) == TUTTI_OK; }));
  ASSERT_EQ(a->send(1, 2, data.data(), 100, 0, TUTTI_TRANSFER_INLINE), TUTTI_OK);  // its receive comes after the close
  ASSERT_TRUE(both([&] { return a->has(1); }));
  const auto begin = steady_clock::now();
  std::thread closer([&] { a->close(); });
  ASSERT_TRUE(drive({b.get()}, [&] { return b->ended.size() == 31; }));
  closer.join();
  EXPECT_LT(steady_clock::now() - begin, milliseconds(1900));
  EXPECT_EQ(large, data);
  for (int i = 0; i < 1000; ++i) b->progress();
  EXPECT_TRUE(b->failures.empty()) << "nothing was pending: " << b->failures[0];
  ASSERT_EQ(b->receive(0, 2, late.data(), 100, 50), TUTTI_OK) << b->error;
  ASSERT_TRUE(drive({b.get()}, [&] { return b->has(50); }));
  EXPECT_TRUE(std::equal(late.begin(), late.end(), data.begin()));
  EXPECT_EQ(table().send_control(b->link(0), late.data(), 1), TUTTI_OK) << "nothing is expected of the peer";
  for (int i = 0; i < 10; ++i) b->progress();
  EXPECT_TRUE(b->failures.empty());
  EXPECT_EQ(b->receive(0, 2, late.data(), 100, 51), TUTTI_AGAIN) << "no error before the record";
  EXPECT_EQ(b->send(0, 2, late.data(), 100, 51), TUTTI_AGAIN);
  b->progress();
  EXPECT_NE(b->failures[0].find("closed its endpoint"), std::string::npos) << b->failures[0];
  EXPECT_EQ(b->receive(0, 2, late.data(), 100, 51), TUTTI_PEER_FAILED);
  EXPECT_NE(b->error.find("closed its endpoint"), std::string::npos) << b->error;
  EXPECT_EQ(b->send(0, 2, late.data(), 100, 52), TUTTI_PEER_FAILED);
}

// Both directions are full when one end closes, in the middle of a message, and the other takes nothing before.
TEST_P(Failure, ClosingUnderTrafficDeliversWhatWasCompleted) {
  host().settings["TUTTI_TCP_BUFFER_BYTES"] = "1048576";
  a = std::make_unique<Rank>(0);
  b = std::make_unique<Rank>(1);
  ASSERT_NO_FATAL_FAILURE(join(*a, *b));
  const uint64_t fragment = caps().fragment_bytes;
  constexpr uint64_t kEach = 40;
  const auto data = pattern(fragment, 4);
  std::vector<unsigned char> unwanted(fragment), wanted(fragment);
  for (uint64_t i = 0; i < kEach; ++i) {
    ASSERT_EQ(b->receive(0, 0, wanted.data(), fragment, i), TUTTI_OK);
    ASSERT_EQ(a->receive(1, 0, unwanted.data(), fragment, i), TUTTI_OK);
  }
  for (int i = 0; i < 100; ++i) a->progress(), b->progress();
  for (uint64_t i = 0; i < kEach; ++i) {
    ASSERT_EQ(a->send(1, 0, data.data(), fragment, 100 + i), TUTTI_OK);
    ASSERT_EQ(b->send(0, 0, data.data(), fragment, 100 + i), TUTTI_OK);
  }
  for (int i = 0; i < 200; ++i) a->progress();
  uint64_t sent = 0;
  while (a->has(100 + sent)) ++sent;
  ASSERT_GT(sent, 0u);
  ASSERT_LT(sent, kEach) << "the buffers took everything";
  a->close();
  drive(
      {b.get()}, [&] { return b->failures.contains(0); }, milliseconds(60000));
  uint64_t received = 0;
  while (b->has(received)) ++received;
  EXPECT_GE(received, sent) << "of what was completed before the close";
  EXPECT_EQ(wanted, data);
  EXPECT_NE(b->failures[0].find("closed its endpoint"), std::string::npos) << b->failures[0];
}

TEST_P(Failure, ClosingWhileThePeerWaitsLosesIt) {
  char byte;
  ASSERT_EQ(b->receive(0, 0, &byte, 1, 1), TUTTI_OK);
  a->close();
  ASSERT_TRUE(drive({b.get()}, [&] { return b->has(1, TUTTI_PEER_FAILED) && b->failures.contains(0); }));
}

// Until its record is handed over a lost peer has no room, and there is no error.
TEST_P(Failure, ALostPeerHasNoRoomUntilItsRecord) {
  char byte = 0;
  for (uint64_t i = 0; i < 5; ++i) ASSERT_EQ(b->receive(0, 0, &byte, 1, i), TUTTI_OK);
  ASSERT_EQ(table().fail_peer(a->endpoint, 1), TUTTI_OK);
  ASSERT_TRUE(drive({b.get()}, [&] {
    b->progress(1);
    return !b->ended.empty();
  }));
  for (int i = 0; i < 100 && b->failures.empty(); ++i) {
    EXPECT_EQ(b->send(0, 1, &byte, 1, 99), TUTTI_AGAIN);
    EXPECT_EQ(b->receive(0, 1, &byte, 1, 99), TUTTI_AGAIN);
    EXPECT_EQ(table().send_control(b->link(0), &byte, 1), TUTTI_AGAIN);
    b->progress(1);
  }
  EXPECT_EQ(b->ended.size(), 5u);
  EXPECT_EQ(b->send(0, 1, &byte, 1, 99), TUTTI_PEER_FAILED);
  EXPECT_EQ(table().send_control(b->link(0), &byte, 1), TUTTI_PEER_FAILED);
  EXPECT_EQ(b->connect(0), TUTTI_PEER_FAILED);
}

// Hands the first pair message of a box to another process, and takes one from there.
void mail_out(int pipe, uint32_t to) {
  PairMail::Letter letter;
  ASSERT_TRUE(PairMail::job().take(7, to, letter));
  const uint64_t bytes = letter.bytes.size();
  ASSERT_EQ(write(pipe, &bytes, 8), 8);
  ASSERT_EQ(write(pipe, letter.bytes.data(), bytes), static_cast<ssize_t>(bytes));
}
void mail_in(int pipe, uint32_t from, uint32_t to) {
  uint64_t bytes = 0;
  ASSERT_EQ(read(pipe, &bytes, 8), 8);
  std::string letter(bytes, '\0');
  ASSERT_EQ(read(pipe, letter.data(), bytes), static_cast<ssize_t>(bytes));
  PairMail::job().put(7, to, {from, letter});
}

// The core gives a lost peer up before it has the record of the loss.
TEST_P(Failure, AGivenUpPeerHasNoRecordAndNoRoom) {
  a->close();
  for (int i = 0; i < 1000; ++i) b->progress();
  int word = 0;
  EXPECT_EQ(b->receive(0, 0, &word, sizeof word, 1), TUTTI_AGAIN) << "it is lost now";
  ASSERT_EQ(table().fail_peer(b->endpoint, 0), TUTTI_OK);
  for (int i = 0; i < 10; ++i) b->progress();
  EXPECT_TRUE(b->failures.empty()) << b->failures[0];
  EXPECT_EQ(b->receive(0, 0, &word, sizeof word, 2), TUTTI_PEER_FAILED);
}

TEST(Killed, APeerThatDiesIsNoticedWithinASecond) {
  host().settings = {{"TUTTI_TCP_INTERFACE", "127.0.0.1"}};
  for (const bool busy : {true, false}) {
    int to_child[2], to_parent[2];
    ASSERT_EQ(pipe(to_child) | pipe(to_parent), 0);
    const pid_t child = fork();
    if (child == 0) {
      Rank b(1);
      if (b.connect(0) != TUTTI_AGAIN) _exit(2);
      mail_out(to_parent[1], 0);
      mail_in(to_child[0], 0, 1);
      std::vector<char> memory(1 << 18);
      bool receives = false;
      uint64_t cookie = 0;
      for (;;) {  // until killed
        b.progress();
        if (!receives && b.connect(0) == TUTTI_OK) receives = true;
        if (receives && busy && b.receive(0, 0, memory.data(), memory.size(), cookie) == TUTTI_OK) ++cookie;
      }
    }
    Rank a(0);
    ASSERT_EQ(a.connect(1), TUTTI_AGAIN);
    ASSERT_NO_FATAL_FAILURE(mail_out(to_child[1], 1));
    ASSERT_NO_FATAL_FAILURE(mail_in(to_parent[0], 1, 0));
    tutti_status status = TUTTI_AGAIN;
    ASSERT_TRUE(drive({&a}, [&] { return (status = a.connect(1)) != TUTTI_AGAIN; }));
    ASSERT_EQ(status, TUTTI_OK) << a.error;
    std::vector<char> memory(1 << 18);
    ASSERT_EQ(a.receive(1, 1, memory.data(), 8, 1), TUTTI_OK);
    uint64_t sent = 100;
    const auto until = steady_clock::now() + milliseconds(100);
    while (steady_clock::now() < until) {
      if (a.send(1, 0, memory.data(), memory.size(), sent) == TUTTI_OK) ++sent;
      a.progress();
    }
    kill(child, SIGKILL);
    ASSERT_TRUE(drive({&a}, [&] { return a.failures.contains(1); }));
    EXPECT_NE(a.failures[1].find("rank 0: net-tcp: rank 1 is lost: "), std::string::npos) << a.failures[1];
    EXPECT_TRUE(drive({&a}, [&] { return a.has(1, TUTTI_PEER_FAILED) && a.ended.size() == sent - 100 + 1; }));
    waitpid(child, nullptr, 0);
    for (int fd : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) ::close(fd);
  }
}

// Sleeps on the descriptor between all progress calls; true when `until` came about.
bool sleep_until(Rank& r, const std::function<bool()>& until) {
  int32_t fd = -1;
  EXPECT_EQ(wait_table().get_fd(r.endpoint, &fd), TUTTI_OK);
  const auto end = steady_clock::now() + milliseconds(60000);
  while (!until()) {
    if (wait_table().arm(r.endpoint) == TUTTI_OK) {
      pollfd p{fd, POLLIN, 0};
      if (::poll(&p, 1, 60000) == 0) return false;  // nobody woke us
    }
    wait_table().disarm(r.endpoint);
    r.progress();
    if (steady_clock::now() > end) return false;
  }
  return true;
}

TEST_P(Failure, SleepersAreWokenForEverything) {
  const uint64_t fragment = caps().fragment_bytes;
  const auto data = pattern(fragment, 3);
  const auto run = [&](Rank& r, uint32_t peer, bool& fine) {
    std::vector<unsigned char> memory(fragment);
    for (uint64_t i = 0; i < 400; ++i) {
      const uint64_t bytes = i % 8 == 0 ? fragment : i * 37 % 20000;
      r.receive(peer, i % 4, memory.data(), bytes, 4 * i);
      r.send(peer, i % 4, data.data(), bytes, 4 * i + 1);
      if (!(fine = sleep_until(r, [&] { return r.has(4 * i) && r.has(4 * i + 1); }))) return;
      fine = std::memcmp(memory.data(), data.data(), bytes) == 0;
      if (!fine) return;
    }
  };
  bool fine_a = false, fine_b = false;
  std::thread other([&] { run(*b, 0, fine_b); });
  run(*a, 1, fine_a);
  other.join();
  EXPECT_TRUE(fine_a && fine_b);
}

TEST_P(Failure, AnIdleEndpointSleepsAndAFullOneWakesWhenThereIsRoom) {
  int32_t fd = -1;
  ASSERT_EQ(wait_table().get_fd(a->endpoint, &fd), TUTTI_OK);
  for (int i = 0; i < 50; ++i) a->progress(), b->progress();
  ASSERT_EQ(wait_table().arm(a->endpoint), TUTTI_OK);
  pollfd p{fd, POLLIN, 0};
  EXPECT_EQ(::poll(&p, 1, 50), 0) << "readable with nothing to do";
  wait_table().disarm(a->endpoint);
  ASSERT_NO_FATAL_FAILURE(make_pending());  // the socket of lane 0 is full or all is sent
  for (int i = 0; i < 50; ++i) a->progress();
  std::thread reader([&] { drive({b.get()}, [&] { return b->ended.size() == 60; }); });
  EXPECT_TRUE(sleep_until(*a, [&] { return a->has(59); }));
  reader.join();
  ASSERT_EQ(table().abort(a->endpoint), TUTTI_OK);
  EXPECT_EQ(wait_table().arm(a->endpoint), TUTTI_AGAIN) << "completions are there already";
}

// Packets that are sent again and again are told of; one that is lost by chance is not, nor are none.
TEST(Acknowledgement, TellsWhatIsStuckForHowLongAndWhere) {
  using tutti::tcp::describe;
  const tutti::tcp::Route route{"10.0.0.1", "10.0.0.2"};
  EXPECT_EQ(describe({1'048'576, 5, milliseconds(12'340)}, route),
            "1048576 bytes are not acknowledged: nothing has come back for 12.3 s (5 retransmissions in a row). The "
            "network between 10.0.0.1 and 10.0.0.2 drops them, or 10.0.0.2 is gone. If small messages pass, it drops "
            "large packets: run tutti-doctor on these hosts");
  EXPECT_EQ(describe({1'048'576, 1, milliseconds(61'000)}, route), "");
  EXPECT_EQ(describe({0, 0, milliseconds(600'000)}, route), "");
  EXPECT_EQ(describe({0, 5, milliseconds(12'340)}, route), "");
}

// Its host is there and acknowledges what it has room for.
TEST(Acknowledgement, APeerThatDoesNotReadIsNoFaultOfTheNetwork) {
  const ListeningSocket peer;
  tutti::tcp::Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(peer.port());
  ASSERT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  const std::vector<char> data(1 << 16);
  while (::send(socket.get(), data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  const tutti::tcp::Unacknowledged state = tutti::tcp::unacknowledged_of(socket);
  const tutti::tcp::Route route = tutti::tcp::route_of(socket);
  EXPECT_GT(state.bytes, 0u);
  EXPECT_EQ(describe(state, route), "");
  EXPECT_EQ(route.from, "127.0.0.1");
  EXPECT_EQ(route.to, "127.0.0.1");
}

// Offers come by pair messages, of which the core knows; all else wakes the endpoint, at either end.
TEST(Sleeping, ConnectsWithoutSpinning) {
  host().settings = {{"TUTTI_TCP_INTERFACE", "127.0.0.1"}, {"TUTTI_TCP_SOCKETS", "2"}};
  for (const bool dialler_sleeps : {true, false}) {
    Rank a(0), b(1);
    ASSERT_NO_FATAL_FAILURE(exchange_offers(a, b));
    Rank &sleeper = dialler_sleeps ? b : a, &busy = dialler_sleeps ? a : b;
    const uint32_t peer = dialler_sleeps ? 0 : 1;
    sleeper.progress();
    std::atomic<bool> connected = false;
    std::thread other([&] { drive({&busy}, [&] { return connected.load(); }); });
    tutti_status status = TUTTI_AGAIN;
    EXPECT_TRUE(sleep_until(sleeper, [&] { return (status = sleeper.connect(peer)) != TUTTI_AGAIN; }));
    EXPECT_EQ(status, TUTTI_OK) << sleeper.error;
    connected = true;
    other.join();
  }
}

TEST(Sleeping, RealTimeADeadlineWakes) {
  host().settings = {{"TUTTI_TCP_INTERFACE", "127.0.0.1"}};
  const ListeningSocket full(ListeningSocket::kFull);
  Rank a(0), b(1, {.timeout_ns = 2'000'000'000});
  ASSERT_NO_FATAL_FAILURE(exchange_offers(a, b));
  ASSERT_NO_FATAL_FAILURE(divert(1, full.port()));
  mail_for(0).clear();
  b.progress();
  EXPECT_TRUE(sleep_until(b, [&] { return !mail_for(0).empty(); }));
  const PairMessage request = mailed_to(0);
  EXPECT_EQ(request.kind, PairMessage::kDial);
  EXPECT_EQ(request.status, TUTTI_TIMEOUT) << request.text;
}

}  // namespace
}  // namespace tutti_test
