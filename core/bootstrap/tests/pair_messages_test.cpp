// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <random>
#include <set>
#include <tutti/sdk/time_scale.hpp>

#include "control_mesh.hpp"
#include "meeting_fixture.hpp"
#include "packet.hpp"

namespace tutti::core::test {
namespace {

// 64 ranks and their messages share what cores there are.
std::chrono::milliseconds patience() { return std::chrono::ceil<std::chrono::milliseconds>(tutti_test::scaled(120s)); }

Rendezvous over_tcp(const HeldPort& port, uint32_t rank, uint32_t nranks) {
  Rendezvous meeting;
  meeting.where = port.rendezvous();
  meeting.rank = rank;
  meeting.nranks = nranks;
  meeting.environment = environment_of({{"TUTTI_SECRET", kSecret}});
  meeting.log = quiet;
  return meeting;
}

// The text of message `i` from one rank to another; the first are of every length up to the longest.
std::string words(uint32_t from, uint32_t to, uint32_t i) {
  std::string bytes = std::to_string(from) + " to " + std::to_string(to) + ": " + std::to_string(i) + " ";
  const uint64_t lengths[] = {bytes.size(), 100, 4096, kMaxPairMessage};
  bytes.resize(std::max(bytes.size(), lengths[i % 4]), static_cast<char>('a' + (from + to + i) % 26));
  return bytes;
}

// Takes messages, each checked, until `each` have come from every rank but this one and those that may stop early.
void take_all(ControlPlane& control, uint32_t each, const std::set<uint32_t>& may_stop = {}) {
  std::vector<uint32_t> got(control.nranks());
  const Deadline deadline(patience());
  const auto complete = [&] {
    for (uint32_t r = 0; r < control.nranks(); ++r)
      if (r != control.rank() && !may_stop.count(r) && got[r] < each) return false;
    return true;
  };
  while (!complete()) {
    if (deadline.passed()) throw Failure(TUTTI_TIMEOUT, "rank " + std::to_string(control.rank()) + " waits in vain");
    {
      const ControlPlane::Sleep sleep(control);
      pollfd waiting = {sleep.fd(), POLLIN, 0};
      ::poll(&waiting, 1, 60000);
    }
    for (const PairMessage& message : control.take_pair_messages())
      if (message.bytes != words(message.from, control.rank(), got.at(message.from)++))
        throw Failure(TUTTI_INTERNAL, "rank " + std::to_string(control.rank()) + " got from rank " +
                                          std::to_string(message.from) + ": " + message.bytes.substr(0, 40));
  }
}

void send_all(ControlPlane& control, uint32_t begin, uint32_t end) {
  for (uint32_t i = begin; i < end; ++i)
    for (uint32_t r = 0; r < control.nranks(); ++r)
      if (r != control.rank()) control.send_pair(r, words(control.rank(), r, i));
}

struct World {
  uint32_t tcp;
  uint32_t nranks;
};
std::string name_of(const ::testing::TestParamInfo<World>& world) {
  return (world.param.tcp ? "Tcp" : "Local") + std::to_string(world.param.nranks);
}
class PairMessages : public ::testing::TestWithParam<World> {};

TEST_P(PairMessages, ComeOnceAndInOrderFromAllToAll) {
  const HeldPort port;
  const auto [tcp, nranks] = GetParam();
  const uint32_t each = nranks > 16 ? 4 : 40;
  expect_no_failures(run_ranks(nranks, [&](uint32_t rank) {
    Rendezvous meeting = over_tcp(port, rank, nranks);
    if (!tcp) meeting.where = "local:pairs";
    const auto bootstrap = make_bootstrap(meeting, patience());
    ControlPlane& control = bootstrap->control();
    send_all(control, 0, each);
    take_all(control, each);
    bootstrap->all_gather("", patience());
    EXPECT_FALSE(control.has_pair_messages());
    EXPECT_TRUE(control.take_pair_messages().empty());
  }));
}

INSTANTIATE_TEST_SUITE_P(Of, PairMessages,
                         ::testing::Values(World{0, 2}, World{0, 16}, World{0, 64}, World{1, 2}, World{1, 3},
                                           World{1, 7}, World{1, 16}, World{1, 64}),
                         [](const auto& world) {
                           return (world.param.tcp ? "Tcp" : "Local") + std::to_string(world.param.nranks);
                         });

class PairLimits : public PairMessages {};

TEST_P(PairLimits, TooManyAndTooLongOnesAreRefused) {
  const HeldPort port;
  const auto [tcp, nranks] = GetParam();
  expect_no_failures(run_ranks(nranks, [&](uint32_t rank) {
    Rendezvous meeting = over_tcp(port, rank, nranks);
    if (!tcp) meeting.where = "local:pairs";
    const auto bootstrap = make_bootstrap(meeting, patience());
    ControlPlane& control = bootstrap->control();
    const uint32_t last = nranks - 1;
    if (rank == 0) {
      expect_failure(failure_of([&] { control.send_pair(last, std::string(kMaxPairMessage + 1, 'x')); }),
                     TUTTI_INVALID_ARGUMENT, {"4161 bytes", "4160"});
      expect_failure(failure_of([&] { control.send_pair(0, "x"); }), TUTTI_INVALID_ARGUMENT, {"to rank 0"});
      expect_failure(failure_of([&] { control.send_pair(nranks, "x"); }), TUTTI_INVALID_ARGUMENT, {"another of"});
      for (uint32_t i = 0; i < kMaxPairsUntaken; ++i) control.send_pair(last, words(0, last, i));
      expect_failure(failure_of([&] { control.send_pair(last, "x"); }), TUTTI_NO_RESOURCES,
                     {"rank " + std::to_string(last), "256"});
      bootstrap->all_gather("", patience());
      // Once they are taken there is room again.
      const Deadline deadline(patience());
      while (failure_of([&] { control.send_pair(last, words(0, last, kMaxPairsUntaken)); }))
        if (deadline.passed()) throw Failure(TUTTI_TIMEOUT, "no room for another pair message");
    } else {
      bootstrap->all_gather("", patience());
      std::set<uint32_t> silent;
      for (uint32_t r = 1; r < nranks; ++r) silent.insert(r);
      if (rank == last) take_all(control, kMaxPairsUntaken + 1, silent);
    }
    bootstrap->all_gather("", patience());
  }));
}

INSTANTIATE_TEST_SUITE_P(Of, PairLimits, ::testing::Values(World{0, 2}, World{1, 2}, World{1, 7}), name_of);

// Processes, of which some are stopped, so that what goes through them stays there, and then killed, while all send to
// all; each of the others gets all messages of all others.
TEST(PairMessages, ArriveWhicheverOtherRanksDie) {
  constexpr uint32_t nranks = 12, before = 20, after = 20;
  const std::set<uint32_t> doomed = {3, 4, 5, 8};
  const HeldPort port;
  std::vector<pid_t> processes;
  for (uint32_t rank = 0; rank < nranks; ++rank) {
    const pid_t process = ::fork();
    if (process != 0) {
      processes.push_back(process);
      continue;
    }
    try {
      const auto bootstrap = make_bootstrap(over_tcp(port, rank, nranks), patience());
      ControlPlane& control = bootstrap->control();
      send_all(control, 0, before);
      if (doomed.count(rank)) ::kill(::getpid(), SIGSTOP);
      send_all(control, before, before + after);
      take_all(control, before + after, doomed);
      // None that lives leaves before all have all.
      const Deadline deadline(patience());
      control.send_notice(NoticeKind::calls, "done");
      std::set<uint32_t> done;
      while (done.size() + 1 + doomed.size() < nranks && !deadline.passed()) {
        for (const Notice& notice : control.take_notices(NoticeKind::calls)) done.insert(notice.rank);
        ::usleep(1000);
      }
      ::_exit(deadline.passed() ? 2 : 0);
    } catch (const std::exception& failure) {
      std::fprintf(stderr, "rank %u: %s\n", rank, failure.what());
      ::_exit(1);
    }
  }
  for (const uint32_t rank : doomed) {
    int status = 0;
    ASSERT_EQ(::waitpid(processes[rank], &status, WUNTRACED), processes[rank]);
    ASSERT_TRUE(WIFSTOPPED(status)) << status;
  }
  std::this_thread::sleep_for(200ms);
  for (const uint32_t rank : doomed) ::kill(processes[rank], SIGKILL);
  for (uint32_t rank = 0; rank < nranks; ++rank) {
    int status = 0;
    ASSERT_EQ(::waitpid(processes[rank], &status, 0), processes[rank]);
    if (doomed.count(rank))
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "rank " << rank << ": " << status;
    else
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank << ": " << status;
  }
}

TEST(PairRoute, IsShortAndNeverGoesBack) {
  for (const uint32_t nranks : {2u, 3u, 7u, 64u, 100u})
    for (const Route way : {Route::up, Route::down})
      for (uint32_t from = 0; from < nranks; ++from)
        for (uint32_t to = 0; to < nranks; ++to) {
          uint32_t here = from, hops = 0;
          for (; here != to; ++hops) {
            const auto neighbours = mesh_neighbours(here, nranks);
            const auto choice = ring_hops(here, to, nranks, way);
            ASSERT_FALSE(choice.empty());
            for (const uint32_t hop : choice) {
              EXPECT_TRUE(std::binary_search(neighbours.begin(), neighbours.end(), hop)) << here << " to " << hop;
              EXPECT_LT(ring_distance(hop, to, nranks, way), ring_distance(here, to, nranks, way));
            }
            here = choice.front();
          }
          EXPECT_LE(hops, std::bit_width(nranks - 1)) << from << " to " << to << " of " << nranks;
          EXPECT_TRUE(ring_hops(to, to, nranks, way).empty());
        }
}

TEST(PairLedger, DropsWhatComesTwiceAndHoldsBackWhatComesEarly) {
  PairLedger receiver;
  EXPECT_TRUE(receiver.receive(1, 2, "two"));
  EXPECT_TRUE(receiver.receive(1, 2, "two"));
  EXPECT_FALSE(receiver.has_messages());
  EXPECT_TRUE(receiver.receive(1, 1, "one"));
  EXPECT_TRUE(receiver.receive(1, 1, "one"));
  EXPECT_TRUE(receiver.receive(2, 1, "other"));
  const auto all = receiver.take();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].bytes + all[1].bytes + all[2].bytes, "onetwoother");
  EXPECT_EQ(receiver.taken_from(1), 2u);
  EXPECT_FALSE(receiver.receive(1, 2, "two")) << "its sender is to be told";
  EXPECT_FALSE(receiver.has_messages());
  EXPECT_TRUE(receiver.receive(1, 2 + kMaxPairsUntaken, "last"));
  EXPECT_TRUE(failure_of([&] { receiver.receive(1, 3 + kMaxPairsUntaken, "flood"); }));
  EXPECT_TRUE(failure_of([&] { receiver.receive(1, 0, ""); }));
  EXPECT_TRUE(failure_of([&] { receiver.receive(1, 3, std::string(kMaxPairMessage + 1, 'x')); }));

  PairLedger sender;
  for (uint64_t i = 1; i <= kMaxPairsUntaken; ++i) ASSERT_EQ(sender.send(7, "m"), i);
  EXPECT_EQ(sender.send(7, "m"), 0u);
  EXPECT_TRUE(failure_of([&] { sender.taken(7, kMaxPairsUntaken + 1); }));
  sender.taken(7, 2);
  sender.taken(7, 1);
  uint64_t first = 0, count = 0;
  sender.for_each_untaken([&](uint32_t, uint64_t number, std::string_view) { first = count++ ? first : number; });
  EXPECT_EQ(first, 3u);
  EXPECT_EQ(count, kMaxPairsUntaken - 2);
  sender.forget(7);
  EXPECT_EQ(sender.send(7, "m"), kMaxPairsUntaken + 1);
}

TEST(Packet, ComesBackAndLiesAreRefused) {
  const Packet packet{PacketKind::message, Route::down, 1, 4, 9, "bytes"};
  const std::string bytes = encode(packet);
  const Packet back = decode_packet(bytes, 5);
  EXPECT_EQ(back.kind, PacketKind::message);
  EXPECT_EQ(back.origin, 1u);
  EXPECT_EQ(back.target, 4u);
  EXPECT_EQ(back.route, Route::down);
  EXPECT_EQ(back.number, 9u);
  EXPECT_EQ(back.bytes, "bytes");
  const auto refused = [](Packet lie, uint32_t nranks = 5) {
    const std::string said = encode(lie);
    return failure_of([&] { decode_packet(said, nranks); }).has_value();
  };
  EXPECT_TRUE(refused(packet, 4)) << "rank 4 of 4";
  EXPECT_TRUE(refused({PacketKind::message, Route::up, 4, 4, 1, ""})) << "to itself";
  EXPECT_TRUE(refused({PacketKind::taken, Route::up, 1, 4, 1, "bytes"}));
  EXPECT_TRUE(refused({static_cast<PacketKind>(9), Route::up, 1, 4, 1, ""}));
  EXPECT_TRUE(refused({PacketKind::message, static_cast<Route>(5), 1, 4, 1, ""}));
  EXPECT_TRUE(refused({PacketKind::message, Route::back, 1, 4, 1, ""}));
  EXPECT_TRUE(refused({PacketKind::ask, Route::up, 1, 4, 1, ""}));
  EXPECT_TRUE(refused({PacketKind::answer, Route::flood, 1, 4, 1, ""}));
  EXPECT_TRUE(refused({PacketKind::part, Route::flood, 1, 4, 1, ""}));
  EXPECT_TRUE(refused({PacketKind::loss, Route::flood, 5, 4, 1, ""})) << "rank 5 of 5";
  const std::string longest(kMaxPairMessage + 1, 'x');
  EXPECT_TRUE(refused({PacketKind::message, Route::up, 1, 4, 1, longest}));
  for (size_t n = 0; n < 32; ++n) EXPECT_TRUE(failure_of([&] { decode_packet(bytes.substr(0, n), 5); })) << n;
}

TEST(Packet, MustComeAlongItsRoute) {
  constexpr uint32_t nranks = 8;
  const auto leads = [](PacketKind kind, Route route, uint32_t origin, uint32_t target, uint32_t peer, uint32_t rank) {
    return leads_here({kind, route, origin, target}, peer, rank, nranks);
  };
  EXPECT_TRUE(leads(PacketKind::part, Route::neighbour, 1, 2, 1, 2));
  EXPECT_FALSE(leads(PacketKind::part, Route::neighbour, 0, 2, 1, 2)) << "in another rank's name";
  EXPECT_FALSE(leads(PacketKind::part, Route::neighbour, 1, 3, 1, 2)) << "for another rank";
  EXPECT_TRUE(leads(PacketKind::message, Route::up, 1, 6, 1, 5));
  EXPECT_TRUE(leads(PacketKind::message, Route::up, 7, 2, 7, 1));
  EXPECT_TRUE(leads(PacketKind::message, Route::down, 6, 1, 2, 1));
  EXPECT_FALSE(leads(PacketKind::message, Route::up, 1, 6, 5, 1)) << "it goes back";
  EXPECT_FALSE(leads(PacketKind::message, Route::up, 1, 6, 1, 7)) << "it overshoots";
  EXPECT_FALSE(leads(PacketKind::message, Route::up, 3, 6, 2, 4)) << "from before its origin";
}

}  // namespace
}  // namespace tutti::core::test
