// SPDX-License-Identifier: Apache-2.0
//
// No rank sends or receives more than O(n) bytes and O(log n) frames to begin a job and to end it. Only rank 0 of a
// meeting gets a connection and a few small frames from each rank: that is the meeting itself.
#include <barrier>
#include <bit>
#include <filesystem>

#include "../benches/traffic_model.hpp"
#include "meeting_fixture.hpp"

namespace tutti::core::test {
namespace {

// A rank with the most that a host usually has: ten addresses, and a long name.
TrafficModel usual(uint32_t nranks) {
  MeshAddress address;
  for (int i = 0; i < 10; ++i)
    address.addresses.push_back(SocketAddress::from_bytes(std::string(i < 5 ? 4 : 16, 'a'), 1));
  address.who = "process 1234567 on host " + std::string(40, 'h');
  return {nranks, address, {address.who, std::string(48, 's'), 1}, std::string(16, 'j')};
}

void expect_bounded(const Traffic& traffic, uint32_t rank, uint32_t nranks, uint64_t frames_of_meeting,
                    const std::string& what) {
  const uint64_t rounds = std::bit_width(nranks - 1);
  const uint64_t frames = 12 * rounds + 8 + (rank == 0 ? frames_of_meeting * nranks : 0);
  const uint64_t bytes = 1024 * nranks + 2048 * rounds;
  EXPECT_LE(std::max(traffic.frames_sent, traffic.frames_received), frames)
      << what << " rank " << rank << " of " << nranks;
  EXPECT_LE(std::max(traffic.bytes_sent, traffic.bytes_received), bytes)
      << what << " rank " << rank << " of " << nranks;
}

TEST(Traffic, OfBeginningAndEndingIsBounded) {
  for (uint32_t nranks = 2; nranks <= 65536; nranks += nranks < 70 ? 1 : nranks - 1) {
    const TrafficModel model = usual(nranks);
    for (const uint32_t rank : {0u, 1u, nranks / 2, nranks - 1}) {
      expect_bounded(model.begin(rank), rank, nranks, 3, "begin");
      expect_bounded(model.end(rank), rank, nranks, 0, "end");
    }
  }
}

// Real ranks send and receive as many bytes and messages as the model says.
TEST(Traffic, OfRealRanksIsThatOfTheModel) {
  for (const uint32_t nranks : {2u, 3u, 7u, 16u, 33u}) {
    const HeldPort port;
    std::barrier together(nranks);
    std::vector<Traffic> begin(nranks), gather(nranks), end(nranks);
    expect_no_failures(run_ranks(nranks, [&](uint32_t rank) {
      Rendezvous meeting;
      meeting.where = port.rendezvous();
      meeting.rank = rank;
      meeting.nranks = nranks;
      meeting.environment = environment_of({{"TUTTI_SECRET", kSecret}});
      meeting.log = quiet;
      const auto bootstrap = make_bootstrap(meeting, 60s);
      // Once all have completed a phase, all that belongs to it has come.
      const auto measure = [&](Traffic& traffic) {
        together.arrive_and_wait();
        traffic = bootstrap->control().traffic();
        together.arrive_and_wait();
      };
      measure(begin[rank]);
      bootstrap->all_gather(std::string(100, 'x'), 60s);
      measure(gather[rank]);
      bootstrap->all_gather("", 60s);
      bootstrap->leave_together();
      measure(end[rank]);
    }));
    const std::string who = this_process();
    MeshAddress address;
    address.addresses = own_addresses(1);
    address.who = who;
    // The listener at a port of all addresses is offered as the address that the meeting has seen, too.
    const TrafficModel model(nranks, address, {who, std::string(47, 's'), 1}, "");
    for (uint32_t rank = 0; rank < nranks; ++rank) {
      const auto near = [&](const Traffic& real, const Traffic& said, const char* what) {
        const auto within = [&](uint64_t a, uint64_t b) { return 10 * a <= 11 * b + 200 && 10 * b <= 11 * a + 200; };
        EXPECT_TRUE(within(real.bytes_sent, said.bytes_sent) && within(real.bytes_received, said.bytes_received))
            << what << " rank " << rank << " of " << nranks << ": " << real.bytes_sent << " and " << real.bytes_received
            << " bytes, expected " << said.bytes_sent << " and " << said.bytes_received;
        EXPECT_TRUE(real.frames_sent == said.frames_sent && real.frames_received == said.frames_received)
            << what << " rank " << rank << " of " << nranks << ": " << real.frames_sent << ", " << said.frames_sent;
      };
      near(begin[rank], model.begin(rank), "begin");
      near(gather[rank] - begin[rank], model.gather(rank, 100), "gather");
      // A neighbour that was quicker needs no goodbye.
      const Traffic last = end[rank] - gather[rank], said = model.end(rank);
      EXPECT_TRUE(last.frames_sent <= said.frames_sent && last.bytes_sent <= said.bytes_sent &&
                  last.frames_received <= said.frames_received && last.bytes_received <= said.bytes_received)
          << "end rank " << rank << " of " << nranks << ": " << last.frames_sent << " frames, expected at most "
          << said.frames_sent;
    }
  }
}

}  // namespace
}  // namespace tutti::core::test
