// SPDX-License-Identifier: Apache-2.0
//
// The ends of things: a killed peer, a peer given up, abort, corrupt shared memory, and that nothing is left behind.
#include <sys/stat.h>

#include <tutti/sdk/local/segment.hpp>

#include "ranks.hpp"

namespace {
using ranks::As;
using ranks::Board;
using ranks::Rank;

TEST(Failure, AKilledPeerIsNoticedAndItsTransfersEnd) {
  ranks::run(
      As::kProcesses, 3,
      [](Board& board, uint32_t rank) {
        Rank r(board, rank, 3, {});
        r.connect_all();
        std::vector<uint8_t> buffer(65536);
        if (rank == 0) {
          ranks::fill(r.reserve(1, 0, 100), 100, 0, 0);  // sent in time, so it arrives
          r.v->commit(r.links[1], 0, 100);
          r.meet();
          kill(getpid(), SIGKILL);
        }
        uint64_t sends = 0;
        std::vector<uint8_t> first(100);
        if (rank == 1) REQUIRE(r.post(Rank::transfer(r.links[0], 0, TUTTI_TRANSFER_RECV, first.data(), 100, 1000)));
        for (uint64_t i = 0; i < 10; i++)
          REQUIRE(r.post(Rank::transfer(r.links[0], 1, TUTTI_TRANSFER_RECV, buffer.data(), 8, i)));
        while (r.post(Rank::transfer(r.links[0], 2, TUTTI_TRANSFER_SEND, buffer.data(), 65536, 2000 + sends))) sends++;
        r.meet();
        const auto end = ranks::in_a_minute();
        while (r.failed.empty()) {  // no error before the record
          REQUIRE(r.t->send_control(r.links[0], "x", 1) >= 0);
          REQUIRE(r.post_status(Rank::transfer(r.links[0], 3, TUTTI_TRANSFER_SEND, nullptr, 0, 0,
                                               TUTTI_TRANSFER_INLINE)) >= TUTTI_OK);
          r.progress();
          REQUIRE(std::chrono::steady_clock::now() < end);  // some milliseconds on an idle machine
        }
        REQUIRE(r.failed[0].first == 0 && r.failed[0].second.find("process has ended") != std::string::npos);
        REQUIRE(r.done.size() == 10 + sends + (rank == 1));  // all ended no later than the news
        for (const auto& c : r.done) {
          if (c.cookie == 1000) REQUIRE(c.status == TUTTI_OK && ranks::matches(first.data(), 100, 0, 0));
          if (c.cookie < 1000) REQUIRE(c.status == TUTTI_PEER_FAILED);
          if (c.cookie >= 2004) REQUIRE(c.status == TUTTI_PEER_FAILED);
        }
        uint64_t bytes;
        REQUIRE(r.post_status(Rank::transfer(r.links[0], 0, TUTTI_TRANSFER_RECV, buffer.data(), 8, 0)) ==
                TUTTI_PEER_FAILED);
        REQUIRE(r.t->send_control(r.links[0], "x", 1) == TUTTI_PEER_FAILED);
        REQUIRE(r.v->try_receive(r.links[0], 3, &bytes) == nullptr && r.v->try_reserve(r.links[0], 3, 8) == nullptr);
        REQUIRE(r.v->released(r.links[0], 3) == UINT64_MAX);
        // The survivors go on.
        const uint32_t other = 3 - rank;
        r.done.clear();
        REQUIRE(r.post(Rank::transfer(r.links[other], 0, TUTTI_TRANSFER_RECV, &bytes, 8, 1)));
        uint64_t mine = rank;
        r.post_soon(Rank::transfer(r.links[other], 0, TUTTI_TRANSFER_SEND, &mine, 8, 0, TUTTI_TRANSFER_INLINE));
        r.until([&] { return r.done.size() == 1; });
        REQUIRE(r.done[0].status == TUTTI_OK && bytes == other && r.failed.size() == 1);
        // Leave together without rank 0.
        board.word[1]++;
        r.until([&] { return board.word[1] == 2; });
      },
      {0});
}

TEST(Failure, APeerThatIsGivenUp) {
  ranks::run(As::kThreads, 2, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, {});
    r.connect_all();
    std::vector<uint8_t> buffer(8);
    for (uint64_t i = 0; i < 5; i++)
      REQUIRE(r.post(Rank::transfer(r.links[1 - rank], 0, TUTTI_TRANSFER_RECV, buffer.data(), 8, i)));
    r.meet();
    if (rank == 0) REQUIRE(r.t->fail_peer(r.endpoint, 1) == TUTTI_OK);
    r.until([&] { return r.done.size() == 5; });
    for (const auto& c : r.done) REQUIRE(c.status == TUTTI_PEER_FAILED);
    if (rank == 0) {
      REQUIRE(r.failed.empty() && r.try_connect(1) == TUTTI_PEER_FAILED);
      REQUIRE(r.t->fail_peer(r.endpoint, 2) == TUTTI_INVALID_ARGUMENT);
    } else {
      r.until([&] { return r.failed.size() == 1; });
      REQUIRE(r.failed[0].second.find("gave this rank up") != std::string::npos);
    }
    REQUIRE(r.post_status(Rank::transfer(r.links[1 - rank], 0, TUTTI_TRANSFER_SEND, buffer.data(), 8, 0)) ==
            TUTTI_PEER_FAILED);
    r.meet();
  });
}

// Rank 0 closes its endpoint in order, and rank 1 has had time to see it. False: this is rank 0.
bool see_rank_0_close(Rank& r) {
  r.connect_all();
  if (r.rank == 0) r.t->close_endpoint(std::exchange(r.endpoint, nullptr));
  r.meet();
  for (int i = 0; i < 3000 && r.rank == 1; i++) r.progress();
  return r.rank == 1;
}

// Nothing is expected of a peer that has closed, until a control message finds no room there.
TEST(Failure, ControlMessagesToAClosedPeerEndInItsRecord) {
  ranks::run(As::kThreads, 2, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, {});
    if (!see_rank_0_close(r)) return;
    tutti_status status = TUTTI_OK;
    while (status == TUTTI_OK) {
      REQUIRE(r.failed.empty());
      status = r.t->send_control(r.links[0], "x", 1);
    }
    REQUIRE(status == TUTTI_AGAIN);
    r.until([&] { return r.failed.size() == 1; });
    REQUIRE(r.failed[0].second.find("closed its endpoint") != std::string::npos);
    REQUIRE(r.t->send_control(r.links[0], "x", 1) == TUTTI_PEER_FAILED && r.try_connect(0) == TUTTI_PEER_FAILED);
  });
}

// Its end is noticed, and the caller gives it up before the record has come.
TEST(Failure, NoRecordComesOfAPeerThatWasGivenUp) {
  ranks::run(As::kThreads, 2, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, {});
    if (!see_rank_0_close(r)) return;
    while (r.t->send_control(r.links[0], "x", 1) == TUTTI_OK) {
    }
    REQUIRE(r.t->fail_peer(r.endpoint, 0) == TUTTI_OK);
    for (int i = 0; i < 3000; i++) r.progress();
    REQUIRE(r.failed.empty() && r.w->arm(r.endpoint) == TUTTI_OK);
  });
}

TEST(Failure, AbortEndsEverything) {
  ranks::run(As::kThreads, 3, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 3, {});
    r.connect_all();
    std::vector<uint8_t> buffer(65536);
    uint64_t pending = 0;
    for (uint32_t peer = 0; peer < 3; peer++) {
      if (peer == rank) continue;
      for (uint32_t lane = 0; lane < 4; lane++, pending++)
        REQUIRE(r.post(Rank::transfer(r.links[peer], lane, TUTTI_TRANSFER_RECV, buffer.data(), 8, 1)));
    }
    r.meet();
    REQUIRE(r.t->abort(r.endpoint) == TUTTI_OK);
    r.until([&] { return r.done.size() == pending; });
    for (const auto& c : r.done) REQUIRE(c.status == TUTTI_ABORTED);
    const uint32_t peer = (rank + 1) % 3;
    REQUIRE(r.post_status(Rank::transfer(r.links[peer], 0, TUTTI_TRANSFER_SEND, buffer.data(), 8, 0)) == TUTTI_ABORTED);
    REQUIRE(r.v->try_reserve(r.links[peer], 0, 8) == nullptr);
    REQUIRE(r.failed.empty());
    r.meet();
  });
}

// Every mapping of a segment in this process: (address, bytes).
std::vector<std::pair<uint8_t*, size_t>> segments() {
  std::vector<std::pair<uint8_t*, size_t>> found;
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[512];
  while (maps && fgets(line, sizeof line, maps)) {
    unsigned long from = 0, to = 0;
    if (strstr(line, "memfd:tutti-shm-segment") && sscanf(line, "%lx-%lx", &from, &to) == 2)
      found.emplace_back(reinterpret_cast<uint8_t*>(from), to - from);
  }
  if (maps) fclose(maps);
  return found;
}

// Rank 0 spoils the shared memory in one way; rank 1 must say so and live.
TEST(Failure, CorruptSharedMemoryIsAFailedPeer) {
  using namespace tutti::sdk::local;
  struct Way {
    const char* name;
    void (*spoil)(Direction& toward, Direction& back);
    const char* expected;
  };
  const Way ways[] = {
      {"kind",
       [](Direction& d, Direction&) {
         d.lane(0)->descriptors[0].kind = 77;
         d.lane(0)->descriptors[0].sequence = 1;
       },
       "kind or size"},
      {"inline size",
       [](Direction& d, Direction&) {
         d.lane(0)->descriptors[0].bytes = 49;
         d.lane(0)->descriptors[0].kind = kInline;
         d.lane(0)->descriptors[0].sequence = 1;
       },
       "kind or size"},
      {"slot size",
       [](Direction& d, Direction&) {
         d.lane(0)->descriptors[0].bytes = 65537;
         d.lane(0)->descriptors[0].kind = kData;
         d.lane(0)->descriptors[0].sequence = 1;
       },
       "kind or size"},
      {"region",
       [](Direction& d, Direction&) {
         memset(d.lane(0)->descriptors[0].payload, 0x55, kInlineBytes);
         d.lane(0)->descriptors[0].kind = kReference;
         d.lane(0)->descriptors[0].sequence = 1;
       },
       "outside of every region"},
      {"address",
       [](Direction& d, Direction&) {
         memset(d.lane(0)->descriptors[0].payload, 0xff, kInlineBytes);
         d.lane(0)->descriptors[0].bytes = 8;
         d.lane(0)->descriptors[0].kind = kReference;
         d.lane(0)->descriptors[0].sequence = 1;
       },
       "8 bytes of its memory at 0xffffffffffffffff cannot be read: Bad address; set TUTTI_SHM_DIRECT_COPY=0"},
      {"released", [](Direction&, Direction& back) { back.lane(0)->released = 1u << 30; }, "never sent"},
      {"control size",
       [](Direction& d, Direction&) {
         d.control()->slots[0].bytes = 257;
         d.control()->slots[0].sequence = 1;
       },
       "control message of an impossible size"},
      {"control released", [](Direction&, Direction& back) { back.control()->released = 5; },
       "control messages that were never sent"},
      {"everything",
       [](Direction& d, Direction& back) {
         memset(static_cast<void*>(d.control()), 0xa5, sizeof(ControlRing) + 4 * sizeof(LaneRing));
         memset(static_cast<void*>(back.control()), 0xa5, sizeof(ControlRing) + 4 * sizeof(LaneRing));
       },
       "corrupt"}};
  for (const Way& way : ways) {
    SCOPED_TRACE(way.name);
    ranks::run(As::kProcesses, 2, [&](Board& board, uint32_t rank) {
      Rank r(board, rank, 2, {});
      r.connect_all();
      if (rank == 0) {
        const auto found = segments();
        REQUIRE(found.size() == 1);
        const Geometry geometry{4, 4, 65536};
        REQUIRE(found[0].second == geometry.segment_bytes());
        Direction toward(found[0].first, geometry, 0), back(found[0].first, geometry, 1);
        // This rank reads rank 1's `released` in its own direction; what rank 1 reads of it is in the other.
        REQUIRE(r.t->send_control(r.links[1], "look", 4) == TUTTI_OK);
        way.spoil(toward, back);
        r.meet();
        board.word[0] = 1;
        r.until([&] { return board.word[1] == 1; });
      } else {
        r.meet();
        uint64_t bytes, i = 0;
        r.until([&] {
          r.v->try_receive(r.links[0], 0, &bytes);
          if (void* room = r.v->try_reserve(r.links[0], 0, 8)) {
            memcpy(room, &i, 8);
            r.v->commit(r.links[0], 0, 8);
          }
          if (!r.failed.empty()) return true;
          REQUIRE(r.t->send_control(r.links[0], "x", 1) >= 0);  // no error before the record
          return false;
        });
        if (r.failed[0].second.find(way.expected) == std::string::npos)
          throw std::runtime_error("said: " + r.failed[0].second);
        board.word[1] = 1;
      }
    });
  }
}

TEST(Failure, OpeningAndClosingLeavesNothingBehind) {
  ranks::run(As::kThreads, 1, [](Board&, uint32_t) {});  // what the first use allocates
  const std::set<int> before = ranks::open_descriptors();
  for (int i = 0; i < 200; i++)
    ranks::run(As::kThreads, 2, [&](Board& board, uint32_t rank) {
      Rank r(board, rank, 2, {.lanes = 2});
      r.connect_all();
      uint64_t value = 7, got = 0;
      REQUIRE(r.post(Rank::transfer(r.links[1 - rank], 0, TUTTI_TRANSFER_RECV, &got, 8, 1)));
      r.post_soon(Rank::transfer(r.links[1 - rank], 0, TUTTI_TRANSFER_SEND, &value, 8, 0, TUTTI_TRANSFER_INLINE));
      r.until([&] { return r.done.size() == 1; });
      REQUIRE(got == 7);
      if (i == 0) {  // every descriptor that the ranks have opened is closed on exec
        size_t opened = 0;
        for (const int fd : ranks::open_descriptors()) {
          if (before.contains(fd)) continue;
          REQUIRE(fcntl(fd, F_GETFD) & FD_CLOEXEC);
          opened++;
        }
        REQUIRE(opened > 0);
      }
      r.meet();
    });
  EXPECT_EQ(ranks::open_descriptors(), before);
  EXPECT_TRUE(segments().empty());
}

}  // namespace
