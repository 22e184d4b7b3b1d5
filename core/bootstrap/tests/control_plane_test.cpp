// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <bit>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <random>
#include <set>
#include <tutti/net/basic_tls.hpp>

#include "base/wire.hpp"
#include "bootstrap/authentication.hpp"
#include "bootstrap/membership.hpp"
#include "child_descriptors.hpp"
#include "control_mesh.hpp"
#include "harness/virtual_time/virtual_time.hpp"
#include "meeting_fixture.hpp"
#include "packet.hpp"

namespace tutti::core::test {
namespace {

struct Meeting {
  const char* name;
  std::function<Rendezvous(uint32_t rank, uint32_t nranks)> of;
};

Rendezvous local(uint32_t rank, uint32_t nranks) {
  Rendezvous meeting;
  meeting.where = "local:control";
  meeting.rank = rank;
  meeting.nranks = nranks;
  return meeting;
}

Rendezvous tcp(uint32_t rank, uint32_t nranks) {
  static HeldPort& port = *new HeldPort;
  Rendezvous meeting;
  meeting.where = port.rendezvous();
  meeting.rank = rank;
  meeting.nranks = nranks;
  meeting.environment = environment_of({{"TUTTI_SECRET", kSecret}});
  meeting.log = quiet;
  return meeting;
}

class Control : public ::testing::TestWithParam<Meeting> {
 protected:
  void run(uint32_t nranks, const std::function<void(Bootstrap&, std::barrier<>&)>& body) {
    std::barrier together(nranks);
    expect_no_failures(run_ranks(nranks, [&](uint32_t rank) {
      const auto bootstrap = make_bootstrap(GetParam().of(rank, nranks), 60s);
      body(*bootstrap, together);
      together.arrive_and_wait();
    }));
  }
};

template <typename Condition>
bool eventually(Condition&& holds) {
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

TEST_P(Control, NoticesReachAllOthersOnceAndInOrder) {
  constexpr uint32_t nranks = 7, each = 20;
  run(nranks, [&](Bootstrap& bootstrap, std::barrier<>& together) {
    ControlPlane& control = bootstrap.control();
    for (uint32_t i = 0; i < each; ++i) {
      control.send_notice(NoticeKind::calls, std::to_string(bootstrap.rank()) + "." + std::to_string(i));
      control.send_notice(NoticeKind::membership, "other");
    }
    std::vector<std::vector<std::string>> got(nranks);
    uint32_t count = 0;
    EXPECT_TRUE(eventually([&] {
      for (Notice& notice : control.take_notices(NoticeKind::calls)) {
        got.at(notice.rank).push_back(notice.bytes);
        ++count;
      }
      return count >= each * (nranks - 1);
    })) << count;
    together.arrive_and_wait();
    EXPECT_TRUE(control.take_notices(NoticeKind::calls).empty());
    for (uint32_t r = 0; r < nranks; ++r) {
      ASSERT_EQ(got[r].size(), r == bootstrap.rank() ? 0 : each);
      for (uint32_t i = 0; i < got[r].size(); ++i) EXPECT_EQ(got[r][i], std::to_string(r) + "." + std::to_string(i));
    }
  });
}

TEST_P(Control, ARollCallIsAnsweredByRanksThatAreBusyElsewhere) {
  constexpr uint32_t nranks = 6;
  run(nranks, [&](Bootstrap& bootstrap, std::barrier<>& together) {
    bootstrap.control().answer_roll_calls([r = bootstrap.rank()] { return "state of " + std::to_string(r); });
    together.arrive_and_wait();
    if (bootstrap.rank() % 2 == 0) {
      const auto states = bootstrap.control().roll_call(60s);
      ASSERT_EQ(states.size(), nranks);
      for (uint32_t r = 0; r < nranks; ++r) EXPECT_EQ(states[r].value_or("none"), "state of " + std::to_string(r));
    }
    together.arrive_and_wait();
    bootstrap.control().answer_roll_calls(nullptr);
  });
}

TEST_P(Control, AllAgreeOnTheFirstCause) {
  run(5, [&](Bootstrap& bootstrap, std::barrier<>& together) {
    ControlPlane& control = bootstrap.control();
    EXPECT_FALSE(control.failed());
    together.arrive_and_wait();
    // Two causes that know nothing of each other, and what follows from them.
    if (bootstrap.rank() == 3) control.announce(3, TUTTI_ABORTED, "aborted: out of tea");
    if (bootstrap.rank() == 1) control.announce(2, TUTTI_TIMEOUT, "does not answer");
    EXPECT_TRUE(eventually([&] { return control.losses().size() == 2; }));
    together.arrive_and_wait();
    if (bootstrap.rank() == 0) control.announce(0, TUTTI_PEER_FAILED, "failed too");
    EXPECT_TRUE(eventually([&] { return control.losses().size() == 3; }));
    const auto first = control.first_cause();
    ASSERT_TRUE(first);
    // Rank 0 knew of the others. Which of the two knew of the other is chance: the lower rank wins a tie.
    EXPECT_NE(first->rank, 0u);
    EXPECT_EQ(first->epoch, 0u);
    EXPECT_TRUE(control.failed());
  });
}

// A busy rank is one that does not call Tutti: here they all only look at what they know, and rank 0's notice crosses 2
// to 5 of them.
TEST_P(Control, NoticesCrossRanksThatAreBusyElsewhere) {
  run(24, [&](Bootstrap& bootstrap, std::barrier<>& together) {
    if (bootstrap.rank() == 0) bootstrap.control().announce(7, TUTTI_TIMEOUT, "does not answer");
    together.arrive_and_wait();
    EXPECT_TRUE(eventually([&] { return bootstrap.control().first_cause().value_or(Loss{}).rank == 7; }));
    together.arrive_and_wait();
  });
}

TEST_P(Control, TooLongANoticeIsRefused) {
  run(2, [&](Bootstrap& bootstrap, std::barrier<>&) {
    expect_failure(
        failure_of([&] { bootstrap.control().send_notice(NoticeKind::calls, std::string(kMaxNotice + 1, 'x')); }),
        TUTTI_INVALID_ARGUMENT, {"65537", "65536"});
  });
}

// The ranks that a notice from `origin` reaches when these ranks are dead.
uint32_t reached(uint32_t nranks, uint32_t origin, const std::set<uint32_t>& dead) {
  std::set<uint32_t> seen{origin};
  std::vector<uint32_t> next{origin};
  while (!next.empty()) {
    const uint32_t rank = next.back();
    next.pop_back();
    for (const uint32_t peer : mesh_neighbours(rank, nranks))
      if (!dead.count(peer) && seen.insert(peer).second) next.push_back(peer);
  }
  return static_cast<uint32_t>(seen.size());
}

TEST(ControlMesh, NeighboursAreMutualAndFew) {
  for (uint32_t nranks = 2; nranks < 70; ++nranks)
    for (uint32_t rank = 0; rank < nranks; ++rank) {
      const auto neighbours = mesh_neighbours(rank, nranks);
      EXPECT_LE(neighbours.size(), 2 * std::bit_width(nranks - 1));
      for (const uint32_t peer : neighbours) {
        const auto back = mesh_neighbours(peer, nranks);
        EXPECT_NE(peer, rank);
        EXPECT_TRUE(std::binary_search(back.begin(), back.end(), rank)) << rank << " and " << peer << " of " << nranks;
      }
    }
  EXPECT_EQ(mesh_neighbours(0, 512).size(), 17u);
}

// Whatever fewer ranks than one has neighbours are dead, the others reach each other: all choices for small worlds,
// and whole hosts (ranks in a row) and random ones for large worlds.
TEST(ControlMesh, StaysInOnePiece) {
  for (uint32_t nranks = 2; nranks <= 14; ++nranks) {
    const auto degree = mesh_neighbours(0, nranks).size();
    for (uint32_t mask = 0; mask < 1u << nranks; ++mask) {
      const auto n = static_cast<uint32_t>(std::popcount(mask));
      if (n >= degree || n + 2 > nranks) continue;
      std::set<uint32_t> dead;
      for (uint32_t r = 0; r < nranks; ++r)
        if ((mask >> r) & 1) dead.insert(r);
      uint32_t origin = 0;
      while (dead.count(origin)) ++origin;
      ASSERT_EQ(reached(nranks, origin, dead), nranks - n) << nranks << " ranks, dead: " << mask;
    }
  }
  for (const uint32_t nranks : {64u, 512u, 1000u})
    for (uint32_t first = 0; first < nranks; first += 61)
      for (const uint32_t row : {1u, 8u, 32u}) {
        std::set<uint32_t> dead;
        for (uint32_t i = 0; i < row; ++i) dead.insert((first + i) % nranks);
        ASSERT_EQ(reached(nranks, (first + row) % nranks, dead), nranks - row) << nranks << ", " << row;
      }
}

// A child that lives on must not hide that its parent's end of a connection is closed.
TEST(ChildDescriptors, AForkedChildDoesNotKeepThemOpen) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  close_in_children(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    ::pause();
    ::_exit(0);
  }
  forget_in_children(ends[1]);
  ::close(ends[1]);
  pollfd waiting = {ends[0], POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 60000), 1) << "the child keeps it open";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
}

// More strangers than there is room for connect to a port and say nothing, one says a byte now and then, for ever. All
// are hung up on in time, and cost hardly any work meanwhile.
constexpr auto kRealTimePatience = 500ms;
void real_time_besiege(uint16_t port, const std::string& slow_words) {
  const auto work = [] {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
  };
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(stranger(port));
  const auto start = std::chrono::steady_clock::now();
  const auto spent = work();
  const FileDescriptor slow = stranger(port);
  size_t said = 0;
  EXPECT_TRUE(eventually([&] {
    std::this_thread::sleep_for(20ms);
    char answer[256];
    const bool refused = ::send(slow.get(), &slow_words[said++ % slow_words.size()], 1, MSG_NOSIGNAL) < 0;
    return refused || ::recv(slow.get(), answer, sizeof answer, MSG_DONTWAIT) == 0;
  })) << "who says a byte now and then is listened to for ever";
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took, kRealTimePatience) << "it was not listened to";
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT((work() - spent) * 2, took);
#endif
  for (const FileDescriptor& one : silent) {
    pollfd waiting = {one.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&waiting, 1, 60000), 1) << "who says nothing is listened to for ever";
  }
}

// With certificates and without, at the meeting's port and at the control plane's.
class Strangers : public ::testing::TestWithParam<bool> {
 protected:
  Strangers() {
    if (!GetParam()) return;
    EXPECT_NE(mkdtemp(folder_.data()), nullptr) << folder_;
    const std::string key = folder_ + "/strangers.key", certificate = folder_ + "/strangers.pem";
    const std::string make =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=tutti -keyout '" + key +
        "' -out '" + certificate + "' 2>/dev/null";
    EXPECT_EQ(std::system(make.c_str()), 0) << make;
    const auto variables =
        environment_of({{"TUTTI_TLS_CERTIFICATE", certificate}, {"TUTTI_TLS_KEY", key}, {"TUTTI_TLS_CA", certificate}});
    tls_ = Tls::make("test", [&](const char* name) { return std::optional<std::string>(variables(name)); });
  }
  ~Strangers() override { std::filesystem::remove_all(folder_); }
  // How a rank begins.
  std::string words() const {
    return GetParam() ? std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + std::string(500, 'r')
                      : meeting_prefix() + std::string(500, 'n');
  }
  std::string folder_ = testing::TempDir() + "tutti-strangers-XXXXXX";
  std::shared_ptr<const Tls> tls_;
};

TEST_P(Strangers, RealTimeAreHungUpOnByTheMeeting) {
  const HeldPort port;
  std::atomic<bool> gone = false;
  expect_no_failures(run_ranks(3, [&](uint32_t rank) {
    if (rank == 2) {
      real_time_besiege(port.port(), words());
      gone = true;
      return;
    }
    while (rank == 1 && !gone) std::this_thread::sleep_for(1ms);
    Rendezvous meeting = tcp(rank, 2);
    meeting.where = port.rendezvous();
    meeting.handshake_limit = kRealTimePatience;
    meeting.tls = tls_;
    gather_and_check(*make_bootstrap(meeting, 60s), 2);
  }));
}

TEST_P(Strangers, RealTimeAreHungUpOnByTheControlPlane) {
  std::barrier together(2);
  std::string said[2];
  expect_no_failures(run_ranks(2, [&](uint32_t rank) {
    Rendezvous rendezvous;
    rendezvous.handshake_limit = kRealTimePatience;
    rendezvous.tls = tls_;
    rendezvous.log = quiet;
    rendezvous.rank = rank;
    rendezvous.nranks = 2;
    MeshDoor door = open_mesh_door(rank, kSecret, {});
    said[rank] = encode(door.address);
    together.arrive_and_wait();
    // Rank 0 listens for rank 1, which is late.
    if (rank == 1) real_time_besiege(decode_address(said[0]).addresses[0].port(), words());
    const auto bootstrap =
        link_ranks(rendezvous, kSecret, {said[0], said[1 - rank]}, std::move(door.listener), Deadline(60s));
    together.arrive_and_wait();
    bootstrap->leave_together();
    together.arrive_and_wait();
  }));
}

INSTANTIATE_TEST_SUITE_P(Of, Strangers, ::testing::Bool(), [](const auto& tls) { return tls.param ? "Tls" : "Plain"; });

// A rank's end of a control plane that only hears.
class Hearer final : public ControlPlane {
 public:
  Hearer() : ControlPlane(0, 5) {}
  void receive_loss(uint64_t epoch, uint32_t rank, bool gone) {
    const std::string bytes = encode(Loss{epoch, rank, TUTTI_ABORTED, gone, "ends"});
    deliver({PacketKind::loss, Route::flood, 1, 1, 0, bytes});
  }
  void hear_left(uint32_t rank, uint64_t gathers) { deliver({PacketKind::left, Route::flood, rank, rank, gathers, {}}); }
  void hear_goodbye(uint32_t rank) { deliver_goodbye(rank); }
  // Rank 4's bytes of the first all-gather.
  void hear_rank_4() {
    WireWriter part;
    part.text("");
    deliver({PacketKind::part, Route::neighbour, 4, 0, 1, part.take()});
  }
  // All ranks come to the first all-gather.
  void complete_one() {
    for (const auto [to, from, blocks] : gather_rounds(0, 5)) {
      WireWriter part;
      for (uint64_t i = 0; i < blocks; ++i) part.text("");
      deliver({PacketKind::part, Route::neighbour, from, 0, 1, part.take()});
    }
    all_gather("", 60s);
  }
  // Rank 3 answers roll calls: it has come to so many all-gathers, completed so many, and knows who has left.
  struct Answer {
    uint64_t gathers, completed;
    std::vector<uint32_t> left;
  };
  std::optional<Answer> answer_of_3;

 protected:
  void send(Packet packet) override {
    if (packet.kind != PacketKind::ask || !answer_of_3) return;
    WireWriter answer;
    answer(answer_of_3->gathers, answer_of_3->completed, answer_of_3->left, std::string("busy"));
    deliver({PacketKind::answer, Route::back, 3, 0, packet.number, answer.take()});
  }
};

// Rank 3 aborts and then dies; the notice of its death comes first, by a shorter way.
TEST(ControlPlane, ARankOnceKnownDeadStaysDead) {
  for (const bool death_first : {true, false}) {
    Hearer plane;
    plane.receive_loss(death_first ? 1 : 0, 3, death_first);
    EXPECT_EQ(plane.is_gone(3), death_first);
    plane.receive_loss(death_first ? 0 : 1, 3, !death_first);
    EXPECT_TRUE(plane.is_gone(3));
    ASSERT_EQ(plane.losses().size(), 1u);
    EXPECT_EQ(plane.losses()[0].epoch, 0u) << "the first cause counts";
    EXPECT_EQ(plane.first_cause()->rank, 3u);
  }
}

// Ranks that had all they needed of the last all_gather leave and answer no roll call. They had come.
void expect_missing(Hearer& plane, const std::string& who) {
  try {
    plane.all_gather("", 60s);
    FAIL() << "no part has come";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status, TUTTI_TIMEOUT);
    EXPECT_TRUE(failure.text.ends_with(": " + who + " did not arrive")) << failure.text;
  }
}

TEST(ControlPlane, WhoHasLeftAfterItHadCome) {
  const tutti::test::VirtualTime time;
  Hearer plane;
  plane.hear_goodbye(1);
  plane.hear_left(4, 1);
  expect_missing(plane, "ranks 2 and 3");
}

TEST(ControlPlane, WhoHasLeftAsOthersKnow) {
  const tutti::test::VirtualTime time;
  Hearer plane;
  plane.hear_left(4, 1);
  plane.answer_of_3 = Hearer::Answer{1, 0, {2, 99}};
  expect_missing(plane, "rank 1");
}

// It may have left, and those who know it as well.
TEST(ControlPlane, WhoseBytesAreHereHasCome) {
  const tutti::test::VirtualTime time;
  Hearer plane;
  plane.hear_rank_4();
  plane.hear_goodbye(1);
  expect_missing(plane, "ranks 2 and 3");
}

// A rank that stops may have given its bytes of an all_gather to some ranks only: the others are still in that one.
TEST(ControlPlane, WhoWaitsInAnEarlierOneIsNotToBlame) {
  for (const uint64_t completed : {0u, 1u}) {
    const tutti::test::VirtualTime time;
    Hearer plane;
    plane.complete_one();
    plane.hear_left(1, 2);
    plane.hear_left(4, 2);
    plane.answer_of_3 = Hearer::Answer{1, completed, {}};
    expect_missing(plane, completed == 0 ? "rank 2" : "ranks 2 and 3");
  }
}

INSTANTIATE_TEST_SUITE_P(Over, Control, ::testing::Values(Meeting{"local", local}, Meeting{"tcp", tcp}),
                         [](const auto& meeting) { return meeting.param.name; });

}  // namespace
}  // namespace tutti::core::test
