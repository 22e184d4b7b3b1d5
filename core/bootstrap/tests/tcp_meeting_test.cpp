// SPDX-License-Identifier: Apache-2.0
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/sdk/time_scale.hpp>

#include "base/wire.hpp"
#include "bootstrap/authentication.hpp"
#include "handshake.hpp"
#include "harness/virtual_time/virtual_time.hpp"
#include "meeting_fixture.hpp"
#include "packet.hpp"

namespace tutti::core::test {
namespace {

using tutti::test::late;
using tutti::test::VirtualTime;

Rendezvous tcp(const std::string& where, uint32_t rank, uint32_t nranks, const char* secret = kSecret,
               const char* job = "job") {
  Rendezvous meeting;
  meeting.where = where;
  meeting.rank = rank;
  meeting.nranks = nranks;
  meeting.log = quiet;
  std::map<std::string, std::string> variables{{"TUTTI_JOB", job}};
  if (secret != nullptr) variables["TUTTI_SECRET"] = secret;
  meeting.environment = environment_of(variables);
  return meeting;
}

TEST(TcpMeeting, GathersInRankOrder) {
  for (const char* secret : {kSecret, static_cast<const char*>(nullptr)})
    for (uint32_t nranks : {1u, 2u, 3u, 9u}) {
      HeldPort port;
      expect_no_failures(run_ranks(nranks, [&](uint32_t rank) {
        const auto bootstrap = make_bootstrap(tcp(port.rendezvous(), rank, nranks, secret), 60s);
        EXPECT_EQ(bootstrap->rank(), rank);
        EXPECT_EQ(bootstrap->nranks(), nranks);
        EXPECT_TRUE(nranks == 1 || bootstrap->secret() == (secret ? *from_hex(secret) : ""));
        gather_and_check(*bootstrap, 20);
        EXPECT_FALSE(bootstrap->control().failed());
      }));
    }
}

TEST(TcpMeeting, NamesAndIpv6) {
  const bool ipv6 = static_cast<bool>(listen_on(SocketAddress::from_bytes(std::string(15, '\0') + '\1', 0)));
  for (const std::string host : {"localhost", "[::1]"}) {
    if (host == "[::1]" && !ipv6) continue;
    HeldPort port;
    expect_no_failures(run_ranks(2, [&](uint32_t rank) {
      gather_and_check(*make_bootstrap(tcp("tcp://" + host + ":" + std::to_string(port.port()), rank, 2), 60s), 2);
    }));
  }
}

TEST(TcpMeeting, LargeContributionsCrossFullSocketBuffers) {
  HeldPort port;
  expect_no_failures(run_ranks(4, [&](uint32_t rank) {
    const auto bootstrap = make_bootstrap(tcp(port.rendezvous(), rank, 4), 60s);
    const auto all = bootstrap->all_gather(std::string(kMaxContribution, static_cast<char>('a' + rank)), 60s);
    for (uint32_t r = 0; r < 4; ++r) EXPECT_TRUE(all[r] == std::string(kMaxContribution, static_cast<char>('a' + r)));
    gather_and_check(*bootstrap, 3);
  }));
}

// Environment as launchers make it, ranks as processes.
TEST(TcpMeeting, SixtyFourProcesses) {
  constexpr uint32_t kRanks = 64;
  HeldPort port;
  std::vector<pid_t> children;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      int status = 1;
      try {
        Rendezvous meeting;
        meeting.environment = environment_of({{"RANK", std::to_string(rank)},
                                              {"WORLD_SIZE", std::to_string(kRanks)},
                                              {"MASTER_ADDR", "127.0.0.1"},
                                              {"MASTER_PORT", std::to_string(port.port())},
                                              {"TUTTI_SECRET", kSecret}});
        gather_and_check(*make_bootstrap(meeting, 60s), 5);
        status = ::testing::Test::HasFailure();
      } catch (const Failure& failure) {
        std::fprintf(stderr, "%s\n", failure.text.c_str());
      }
      ::_exit(status);
    }
    children.push_back(child);
  }
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    int status = -1;
    ASSERT_EQ(::waitpid(children[rank], &status, 0), children[rank]);
    EXPECT_EQ(status, 0) << "rank " << rank;
  }
}

TEST(TcpMeeting, WhoDoesNotComeIsNamed) {
  const VirtualTime time;
  HeldPort port;
  auto failures = run_ranks(4, [&](uint32_t rank) {
    if (rank == 0 || rank == 2) make_bootstrap(tcp(port.rendezvous(), rank, 4), rank == 0 ? 30s : 600s);
  });
  expect_failure(failures[0], TUTTI_TIMEOUT, {"ranks 1 and 3 of 4", "30 s", std::to_string(port.port())});
  expect_failure(failures[2], TUTTI_TIMEOUT, {"ranks 1 and 3 of 4"});
  EXPECT_GE(time.passed(), 30s);
  EXPECT_LT(time.passed(), late(30s));

  // The spoke's deadline passes first: rank 0 tells it whom all wait for.
  HeldPort other;
  auto before = time.passed();
  failures = run_ranks(3, [&](uint32_t rank) {
    if (rank != 2) make_bootstrap(tcp(other.rendezvous(), rank, 3), rank == 1 ? 30s : 600s);
  });
  expect_failure(failures[1], TUTTI_TIMEOUT, {"rank 1: ", "rank 2 of 3"});
  expect_failure(failures[0], TUTTI_PEER_FAILED, {"rank 1 gave up", "rank 2 of 3"});
  EXPECT_GE(time.passed() - before, 30s);
  EXPECT_LT(time.passed() - before, late(30s));

  // Nobody listens.
  HeldPort nobody;
  before = time.passed();
  expect_failure(failure_of([&] { make_bootstrap(tcp(nobody.rendezvous(), 1, 2), 30s); }), TUTTI_TIMEOUT,
                 {"rank 1", "rank 0 was not met", "Connection refused", "30 s"});
  EXPECT_GE(time.passed() - before, 30s);
  EXPECT_LT(time.passed() - before, late(30s));
}

// Rank `absent` stays away from all_gather; rank `impatient` is the first to lose patience.
void late_rank(uint32_t absent, uint32_t impatient) {
  SCOPED_TRACE("late " + std::to_string(absent) + ", impatient " + std::to_string(impatient));
  const VirtualTime time;
  HeldPort port;
  std::atomic<bool> over = false;
  expect_no_failures(run_ranks(3, [&](uint32_t rank) {
    const auto bootstrap = make_bootstrap(tcp(port.rendezvous(), rank, 3), 60s);
    if (rank == absent) {
      while (!over) std::this_thread::sleep_for(1ms);
      return;
    }
    const auto begin = time.passed();
    const auto failure = failure_of([&] { bootstrap->all_gather("x", rank == impatient ? 30s : 600s); });
    EXPECT_TRUE(failure);
    if (rank != impatient) return;
    EXPECT_GE(time.passed() - begin, 30s);
    EXPECT_LT(time.passed() - begin, late(30s));
    expect_failure(failure, TUTTI_TIMEOUT, {"30 s", ": rank " + std::to_string(absent) + " did not arrive"});
    over = true;
  }));
}

TEST(TcpMeeting, WhoDoesNotGatherIsNamed) {
  late_rank(2, 0);
  late_rank(2, 1);
  late_rank(0, 1);
}

// A rank of two in a network namespace of its own, whose loopback interface is down, or up without its address.
int in_a_namespace(bool up, uint32_t rank, const char* secret) {
  if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return 77;
  if (up) {
    const FileDescriptor any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request = {};
    std::strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP;
    if (::ioctl(any.get(), SIOCSIFFLAGS, &request) != 0) return 2;
    std::memset(&request.ifr_addr, 0, sizeof request.ifr_addr);
    request.ifr_addr.sa_family = AF_INET;
    if (::ioctl(any.get(), SIOCSIFADDR, &request) != 0) return 3;  // 0.0.0.0 removes the address
  }
  const HeldPort port;
  const std::string_view advice = up ? "up, but without this address (ip addr add 127.0.0.1/8 dev lo)"
                                     : "is down (ip link set lo up)";
  try {
    make_bootstrap(tcp(port.rendezvous(), rank, 2, secret), 60s);
  } catch (const Failure& failure) {
    if (failure.status == TUTTI_SYSTEM && failure.text.find(advice) != std::string::npos) return 0;
    std::fprintf(stderr, "%s\n", failure.text.c_str());
  }
  return 1;
}

TEST(TcpMeeting, ADeadLoopbackIsNamedWithoutWaiting) {
  for (const bool up : {false, true})
    for (const uint32_t rank : {0u, 1u})
      for (const char* secret : {kSecret, static_cast<const char*>(nullptr)}) {
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0) ::_exit(in_a_namespace(up, rank, secret));
        int status = -1;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no network namespace can be made";
        EXPECT_EQ(status, 0) << "rank " << rank << (up ? ", up" : ", down") << (secret ? ", secret" : "");
      }
}

// Rank 0 says it of its own address, instead of waiting for ranks that cannot know it either.
TEST(TcpMeeting, ANameThatRankZeroDoesNotKnowIsItsOwnError) {
  const VirtualTime time;
  for (const bool secret : {false, true}) {
    std::vector<std::string> told;
    Rendezvous meeting;
    meeting.log = [&](uint32_t level, const std::string& text) {
      if (level == TUTTI_LOG_WARN) told.push_back(text);
    };
    HeldPort port;
    std::map<std::string, std::string> variables{{"RANK", "0"},
                                                 {"WORLD_SIZE", "2"},
                                                 {"MASTER_ADDR", "[fe80::1%nosuch9]"},
                                                 {"MASTER_PORT", std::to_string(port.port())}};
    if (secret) variables["TUTTI_SECRET"] = kSecret;
    meeting.environment = environment_of(variables);
    const auto before = time.passed();
    const auto failure = failure_of([&] { make_bootstrap(meeting, 30s); });
    const char* own = "rank 0: bootstrap: the host \"fe80::1%nosuch9\" has no address: ";
    expect_failure(failure, secret ? TUTTI_TIMEOUT : TUTTI_NOT_FOUND, {own, "correct MASTER_ADDR"});
    EXPECT_EQ(failure->text.find("rank 1 of 2 did not connect") != std::string::npos, secret) << failure->text;
    EXPECT_EQ(time.passed() - before >= 30s, secret);
    // With a secret it listens on all interfaces, and the others may know the name: a warning at once.
    EXPECT_EQ(!told.empty() && told.front().find(own) == 0, secret);
  }
}

TEST(TcpMeeting, ContradictionsNameBoth) {
  HeldPort port;
  auto failures = run_ranks(3, [&](uint32_t i) { make_bootstrap(tcp(port.rendezvous(), i == 0 ? 0 : 1, 3), 60s); });
  expect_failure(failures[0], TUTTI_MISMATCH, {"rank 1 (process", "already rank 1 (process"});
  expect_failure(failures[1], TUTTI_MISMATCH, {"already rank 1"});
  expect_failure(failures[2], TUTTI_MISMATCH, {"already rank 1"});
  HeldPort other;
  failures = run_ranks(2, [&](uint32_t i) { make_bootstrap(tcp(other.rendezvous(), i, 2 + i), 60s); });
  for (const auto& failure : failures)
    expect_failure(failure, TUTTI_MISMATCH, {"rank 0", "world of 2", "rank 1", "one of 3"});
}

TEST(TcpMeeting, AnotherSecretIsRefusedOnBothSides) {
  const char* kOther = "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
  for (const char* secret : {kOther, static_cast<const char*>(nullptr)}) {
    const VirtualTime time;
    HeldPort port;
    const auto failures = run_ranks(2, [&](uint32_t rank) {
      make_bootstrap(tcp(port.rendezvous(), rank, 2, rank == 0 ? kSecret : secret), rank == 0 ? 30s : 600s);
    });
    EXPECT_GE(time.passed(), 30s);
    EXPECT_LT(time.passed(), late(30s));
    expect_failure(failures[0], TUTTI_TIMEOUT, {"rank 1 of 2", "turned away", "its secret may differ"});
    expect_failure(failures[1], TUTTI_MISMATCH, {"does not know this rank's secret", "TUTTI_SECRET"});
  }
}

TEST(TcpMeeting, AnotherJobIsTurnedAwayAndDisturbsNothing) {
  HeldPort port;
  std::atomic<bool> told = false;
  const auto failures = run_ranks(3, [&](uint32_t i) {
    if (i == 2) {  // the rank of another job comes first
      expect_failure(failure_of([&] { make_bootstrap(tcp(port.rendezvous(), 1, 2, nullptr, "theirs"), 60s); }),
                     TUTTI_MISMATCH, {"\"theirs\"", "\"ours\"", "TUTTI_JOB"});
      told = true;
      return;
    }
    while (i == 1 && !told) std::this_thread::sleep_for(1ms);
    gather_and_check(*make_bootstrap(tcp(port.rendezvous(), i, 2, nullptr, "ours"), 60s), 2);
  });
  expect_no_failures(failures);
}

TEST(TcpMeeting, StrangersDoNotDisturb) {
  HeldPort port;
  const std::string opening = meeting_prefix() + std::string(kNonceBytes, 'n');
  const std::string openings[] = {"",
                                  "GET / HTTP/1.1\r\n\r\n",
                                  std::string(100000, '\0'),
                                  "TUTTI",
                                  opening,
                                  opening.substr(0, 20),
                                  opening + std::string(kProofBytes, 'p'),
                                  opening + std::string(100000, 'x')};
  std::atomic<bool> there = false;
  const auto failures = run_ranks(3, [&](uint32_t i) {
    if (i == 2) {
      std::vector<FileDescriptor> open;
      for (int round = 0; round < 10; ++round)
        for (const std::string& bytes : openings) {
          open.push_back(stranger(port.port()));
          (void)::send(open.back().get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        }
      there = true;
      std::this_thread::sleep_for(100ms);  // some stay connected while the ranks meet
      return;
    }
    while (i == 1 && !there) std::this_thread::sleep_for(1ms);
    gather_and_check(*make_bootstrap(tcp(port.rendezvous(), i, 2), 60s), 5);
  });
  expect_no_failures(failures);
}

TEST(TcpMeeting, AHandshakeHasATimeLimit) {
  const VirtualTime time;
  HeldPort port;
  std::thread silent([&] {
    const auto begin = time.passed();
    const FileDescriptor socket = stranger(port.port());
    pollfd waiting = {socket.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&waiting, 1, -1), 1);
    EXPECT_GE(time.passed() - begin, Rendezvous().handshake_limit);
    EXPECT_LT(time.passed() - begin, late(Rendezvous().handshake_limit));
  });
  expect_failure(failure_of([&] { make_bootstrap(tcp(port.rendezvous(), 0, 2), 60s); }), TUTTI_TIMEOUT,
                 {"1 connection was turned away", "within " + Deadline(Rendezvous().handshake_limit).text()});
  silent.join();
}

TEST(TcpMeeting, AnotherVersionIsNamedOnBothSides) {
  const VirtualTime time;
  HeldPort port;
  std::thread old([&] {
    const FileDescriptor socket = stranger(port.port());
    std::string prefix = meeting_prefix();
    prefix[8] = 77;
    (void)::send(socket.get(), prefix.data(), prefix.size(), MSG_NOSIGNAL);
    char answer[kPrefixBytes];
    pollfd waiting = {socket.get(), POLLIN, 0};
    ::poll(&waiting, 1, 60000);
    EXPECT_EQ(::recv(socket.get(), answer, sizeof answer, 0), static_cast<ssize_t>(kPrefixBytes));
  });
  expect_failure(failure_of([&] { make_bootstrap(tcp(port.rendezvous(), 0, 2), 30s); }), TUTTI_TIMEOUT,
                 {"version 77", "version " + std::to_string(kMeetingVersion)});
  old.join();
}

TEST(TcpMeeting, ATakenPortIsNamed) {
  HeldPort port;
  const FileDescriptor taken = listen_anywhere(port.port());
  ASSERT_TRUE(taken);
  Rendezvous meeting = tcp("", -1, -1);
  meeting.rank = meeting.nranks = -1;
  meeting.environment = environment_of(
      {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", std::to_string(port.port())}});
  expect_failure(failure_of([&] { make_bootstrap(meeting, 5s); }), TUTTI_SYSTEM,
                 {std::to_string(port.port()), "MASTER_PORT", "in use"});
}

TEST(TcpMeeting, WithoutASecretOneInterfaceListensAndAForeignAddressIsRefused) {
  const VirtualTime time;
  HeldPort port;
  const auto failures = run_ranks(2, [&](uint32_t i) {
    if (i == 0) {
      expect_failure(failure_of([&] { make_bootstrap(tcp(port.rendezvous(), 0, 2, nullptr), 30s); }), TUTTI_TIMEOUT,
                     {"rank 1 of 2"});
      return;
    }
    const FileDescriptor local = stranger(port.port());
    std::string problem;
    EXPECT_FALSE(connect_to(SocketAddress::from_bytes(std::string("\x7f\0\0\2", 4), port.port()), 1000, problem));
  });
  expect_no_failures(failures);
  expect_failure(failure_of([&] { make_bootstrap(tcp("tcp://192.0.2.1:9", 0, 2, nullptr), 1s); }), TUTTI_SYSTEM,
                 {"192.0.2.1", "rank 0 must run on the host of that address"});
}

// A process that is killed says no goodbye.
void real_time_killed_rank(uint32_t victim) {
  HeldPort port;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    try {
      const auto bootstrap = make_bootstrap(tcp(port.rendezvous(), victim, 3), 60s);
      if (::write(ready[1], "x", 1) == 1) ::pause();
    } catch (...) {
    }
    ::_exit(1);
  }
  std::atomic<int64_t> killed = 0;
  const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
  const auto failures = run_ranks(3, [&](uint32_t rank) {
    if (rank == victim) {
      char byte;
      EXPECT_EQ(::read(ready[0], &byte, 1), 1);
      std::this_thread::sleep_for(20ms);
      killed = now();
      ::kill(child, SIGKILL);
      return;
    }
    const auto bootstrap = make_bootstrap(tcp(port.rendezvous(), rank, 3), 60s);
    ControlPlane& control = bootstrap->control();
    while (!control.failed()) {
      const ControlPlane::Sleep sleep(control);
      pollfd waiting = {sleep.fd(), POLLIN, 0};
      ASSERT_EQ(::poll(&waiting, 1, 60000), 1);
    }
    EXPECT_LT(std::chrono::nanoseconds(now() - killed), tutti_test::scaled(2s)) << "noticed too late";
    const Loss loss = *control.first_cause();
    EXPECT_EQ(loss.rank, victim);
    EXPECT_TRUE(loss.gone);
    EXPECT_NE(loss.reason.find("without a goodbye"), std::string::npos) << loss.reason;
    expect_failure(failure_of([&] { bootstrap->all_gather("x", 5s); }), TUTTI_PEER_FAILED,
                   {"rank " + std::to_string(victim) + " died"});
  });
  expect_no_failures(failures);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}
TEST(TcpMeeting, RealTimeAKilledSpokeIsNoticed) { real_time_killed_rank(2); }
TEST(TcpMeeting, RealTimeAKilledHubIsNoticed) { real_time_killed_rank(0); }

TEST(TcpMeeting, AnnouncedFailuresReachAll) {
  for (const uint32_t announcer : {0u, 2u}) {
    HeldPort port;
    expect_no_failures(run_ranks(3, [&](uint32_t rank) {
      const auto bootstrap = make_bootstrap(tcp(port.rendezvous(), rank, 3), 60s);
      if (rank == announcer) return bootstrap->announce_failure(TUTTI_ABORTED, "aborted: out of tea");
      expect_failure(failure_of([&] { bootstrap->all_gather("x", 60s); }), TUTTI_ABORTED,
                     {"rank " + std::to_string(announcer) + " aborted: out of tea"});
    }));
  }
}

TEST(TcpMeeting, LeavingInOrderIsNoFailure) {
  for (const uint32_t leaver : {0u, 2u}) {
    HeldPort port;
    expect_no_failures(run_ranks(3, [&](uint32_t rank) {
      const auto bootstrap = make_bootstrap(tcp(port.rendezvous(), rank, 3), 60s);
      if (rank == leaver) return;
      std::this_thread::sleep_for(100ms);
      EXPECT_FALSE(bootstrap->control().failed());
      expect_failure(failure_of([&] { bootstrap->all_gather("x", 60s); }), TUTTI_PEER_FAILED,
                     {"rank " + std::to_string(leaver), "left"});
    }));
  }
}

// A connection that has come as far as its hello, as rank 1 of 2.
FrameStream introduce(uint16_t port, const std::string& secret, const std::string& contact = "") {
  FrameStream stream(stranger(port));
  const std::string nonce(kNonceBytes, 'n');
  const auto read = [&](size_t n) {
    while (stream.buffered() < n && !stream.ended()) stream.fill(n - stream.buffered());
    return *stream.take(n);
  };
  stream.put(meeting_prefix() + nonce);
  stream.flush();
  read(kPrefixBytes);
  const std::string hub_nonce = read(kNonceBytes);
  read(kProofBytes);
  stream.put(spoke_proof(secret, nonce, hub_nonce));
  stream.put(FrameKind::hello, WireWriter().text("job").u32(1).u32(2).text("a liar").text(contact).text("").take());
  stream.flush();
  return stream;
}

TEST(TcpMeeting, WhoIgnoresTheHubsProofStillNeedsTheSecret) {
  const VirtualTime time;
  HeldPort port;
  std::thread thief([&] {
    FrameStream stream = introduce(port.port(), std::string(32, 'x'));
    while (!stream.ended()) stream.fill(1000);
    EXPECT_EQ(stream.buffered(), 0u) << "it was welcomed";
  });
  expect_failure(failure_of([&] { make_bootstrap(tcp(port.rendezvous(), 0, 2), 30s); }), TUTTI_TIMEOUT,
                 {"rank 1 of 2", "does not know this job's secret"});
  thief.join();
}

// A rank that can open no door for the others tells them why, whether they have come before it or come later.
TEST(TcpMeeting, ARankThatCannotTakePartSaysWhy) {
  for (const auto delay : {0ms, 500ms}) {
    const VirtualTime time;
    HeldPort port;
    const auto failures = run_ranks(3, [&](uint32_t rank) {
      if (rank != 1) {
        if (rank == 2) std::this_thread::sleep_for(delay);
        make_bootstrap(tcp(port.rendezvous(), rank, 3), 60s);
        return;
      }
      const OpenDoor door = [](const std::string&, const SocketAddress&) -> std::string {
        throw Failure(TUTTI_NO_RESOURCES, "no descriptors are left");
      };
      const SocketAddress hub = SocketAddress::from_bytes(std::string("\x7f\0\0\1", 4), port.port());
      const MeetingPlace place{{hub}, "", *from_hex(kSecret), "job"};
      core::introduce(
          {.rank = 1, .nranks = 3, .host = 0, .door = door}, [&] { return place; }, 60s, Deadline(60s),
          [](const std::string&) {});
    });
    for (uint32_t rank = 0; rank < 3; ++rank)
      expect_failure(
          failures[rank], rank == 1 ? TUTTI_NO_RESOURCES : TUTTI_PEER_FAILED,
          {rank == 1 ? "no descriptors are left" : "rank 1 cannot take part in the meeting: no descriptors are left"});
  }
}

// A member that breaks the protocol after a good handshake is lost, with the reason; nothing is allocated for its lies.
TEST(TcpMeeting, AMemberThatBreaksTheProtocolIsLost) {
  const auto frame_header = [](uint32_t kind, uint64_t length) {
    return WireWriter().u32(kind).u32(0).u64(length).take();
  };
  const auto kind = [](FrameKind k) { return static_cast<uint32_t>(k); };
  const std::string contact = encode(MeshAddress{{SocketAddress::from_bytes("\x7f\x01\x01\x01", 1)}, "a liar", ""});
  struct Lie {
    std::string contact, frame, noticed;
  };
  const Lie lies[] = {{contact, frame_header(kind(FrameKind::packet), ~0ull), std::to_string(~0ull) + " bytes"},
                      {contact, frame_header(kind(FrameKind::packet), max_packet(2) + 1), "are allowed"},
                      {contact, frame_header(99, 0), "unknown kind 99"},
                      {contact, frame_header(kind(FrameKind::contacts), 0), "only rank 0 sends"},
                      {contact, frame_header(kind(FrameKind::hello), 3) + "abc", "the control plane has no such frame"},
                      {contact, frame_header(kind(FrameKind::error), 8) + WireWriter().u64(7).take(),
                       "the control plane has no such frame"},
                      {contact, frame_header(kind(FrameKind::met), 0), "that the control plane needs"},
                      {"abc", "", "3 left"},
                      {std::string(kMaxContact, 'x'), "", "bytes announced"}};
  for (const Lie& lie : lies) {
    HeldPort port;
    std::thread liar([&] {
      FrameStream stream = introduce(port.port(), *from_hex(kSecret), lie.contact);
      std::this_thread::sleep_for(50ms);
      stream.put(lie.frame);
      stream.flush();
      while (!stream.ended()) stream.fill(1000);
    });
    const auto failure = failure_of([&] {
      const auto hub = make_bootstrap(tcp(port.rendezvous(), 0, 2), 60s);
      hub->all_gather("x", 60s);
    });
    expect_failure(failure, TUTTI_PEER_FAILED, {"rank 1 broke the bootstrap protocol", lie.noticed});
    liar.join();
  }
}

}  // namespace
}  // namespace tutti::core::test
