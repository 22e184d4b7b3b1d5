// SPDX-License-Identifier: Apache-2.0
//
// How links come about: crossing and one-sided connects, settings that differ, ranks of elsewhere, strangers and
// garbage.
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <random>
#include <tutti/sdk/local/connector.hpp>

#include "ranks.hpp"

namespace {
thread_local uint64_t looks = 0;  // at an epoll descriptor
}  // namespace

// The C library's, counted.
extern "C" int epoll_wait(int epoll, epoll_event* events, int most, int timeout) {
  looks++;
  return static_cast<int>(syscall(SYS_epoll_pwait, epoll, events, most, timeout, nullptr, 0));
}

namespace {
using ranks::As;
using ranks::Board;
using ranks::Rank;
using tutti::sdk::local::Card;
using Head = tutti::sdk::PairFormat::Head;
constexpr size_t kCardBytes = sizeof(Head) + sizeof(Card);

// All pairs at once, so that many connections cross; then every pair has exactly one working link.
TEST(Connect, ManyRanksConnectAtTheSameTime) {
  for (const As as : {As::kThreads, As::kProcesses})
    for (int repeat = 0; repeat < 5; repeat++)
      ranks::run(as, 6, [](Board& board, uint32_t rank) {
        Rank r(board, rank, 6, {});
        r.connect_all();
        uint64_t got[6];
        for (uint32_t peer = 0; peer < 6; peer++) {
          if (peer == rank) continue;
          tutti_link* const again = r.links[peer];
          REQUIRE(r.try_connect(peer) == TUTTI_OK && r.links[peer] == again);
          const uint64_t value = rank * 10 + peer;
          REQUIRE(r.post(Rank::transfer(r.links[peer], 0, TUTTI_TRANSFER_RECV, &got[peer], 8, peer)));
          r.post_soon(Rank::transfer(r.links[peer], 0, TUTTI_TRANSFER_SEND, const_cast<uint64_t*>(&value), 8, 0,
                                     TUTTI_TRANSFER_INLINE));
        }
        r.until([&] { return r.done.size() == 5; });
        for (uint32_t peer = 0; peer < 6; peer++) REQUIRE(peer == rank || got[peer] == peer * 10 + rank);
        r.meet();
      });
}

// A rank that waits for many peers calls connect for each of them, again and again. The lines are looked at by
// progress, once for all peers.
TEST(Connect, LooksAtNoSocket) {
  constexpr uint32_t n = 8;
  ranks::run(As::kThreads, n, [](Board& board, uint32_t rank) {
    Rank r(board, rank, n, {});
    r.meet();
    bool all = false;
    while (!all) {
      all = true;
      const uint64_t before = looks;
      for (uint32_t peer = 0; peer < n; peer++)
        if (peer != rank) all &= r.try_connect(peer) == TUTTI_OK;
      REQUIRE(looks == before);
      r.progress();
      REQUIRE(looks <= before + 2);  // at the endpoint's and the doorway's
      sched_yield();
    }
    r.meet();
  });
}

// Either side alone may call connect; the other needs progress only, and gets the link by a later connect.
TEST(Connect, OneSideIsEnough) {
  for (const uint32_t caller : {0u, 1u})
    ranks::run(As::kThreads, 2, [&](Board& board, uint32_t rank) {
      Rank r(board, rank, 2, {});
      r.meet();
      if (rank == caller) {
        r.until([&] { return r.try_connect(1 - rank) == TUTTI_OK; });
        REQUIRE(r.t->send_control(r.links[1 - rank], "hello", 5) == TUTTI_OK);
      } else {
        r.until([&] { return r.control.size() == 1; });
        REQUIRE(r.control[0] == std::make_pair(1 - rank, std::string("hello")));
        REQUIRE(r.try_connect(1 - rank) == TUTTI_OK);
      }
      board.word[0]++;
      r.until([&] { return board.word[0] == 2; });
    });
}

// Two endpoints of other communicators in the same processes do not meet.
TEST(Connect, TwoEndpointsPerProcess) {
  ranks::run(As::kProcesses, 2, [](Board& board, uint32_t rank) {
    Rank a(board, rank, 2, {}), b(board, rank, 2, {.lanes = 1, .communicator = 8});
    for (Rank* r : {&b, &a})
      r->until([&] {
        a.progress();
        b.progress();
        return r->try_connect(1 - rank) == TUTTI_OK;
      });
    uint64_t value = 100 + rank, got_a = 0, got_b = 0;
    for (Rank* r : {&a, &b}) {
      REQUIRE(r->post(Rank::transfer(r->links[1 - rank], 0, TUTTI_TRANSFER_RECV, r == &a ? &got_a : &got_b, 8, 1)));
      r->post_soon(Rank::transfer(r->links[1 - rank], 0, TUTTI_TRANSFER_SEND, &value, 8, 0, TUTTI_TRANSFER_INLINE));
      value += 1000;
    }
    b.until([&] {
      a.progress();
      return a.done.size() == 1 && b.done.size() == 1;
    });
    REQUIRE(got_a == 101 - rank && got_b == 1101 - rank);
    board.word[0]++;
    a.until([&] {
      b.progress();
      return board.word[0] == 2;
    });
  });
}

// Runs two ranks whose connection fails; `expected(rank)` is the status there, and a part of the text.
void expect_refused(const std::function<Rank::Options(uint32_t)>& options,
                    const std::function<std::pair<tutti_status, std::string>(uint32_t)>& expected) {
  ranks::run(As::kThreads, 2, [&](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, options(rank));
    tutti_status status = TUTTI_AGAIN;
    r.until([&] { return (status = r.try_connect(1 - rank)) != TUTTI_AGAIN; });
    const auto [expected_status, text] = expected(rank);
    if (status != expected_status || ranks::last_error().find(text) == std::string::npos)
      throw std::runtime_error("said " + std::to_string(status) + ": " + ranks::last_error());
    REQUIRE(r.try_connect(1 - rank) == status);  // it is final
    board.word[0]++;
    r.until([&] { return board.word[0] == 2; });
  });
}

TEST(Connect, SettingsThatDifferAreAMismatchAtBothEnds) {
  expect_refused([](uint32_t rank) { return Rank::Options{.lanes = rank ? 4u : 5u}; },
                 [](uint32_t rank) {
                   return std::pair(TUTTI_MISMATCH, "the number of lanes is " + std::to_string(5 - rank) + " on rank " +
                                                        std::to_string(rank) + " and " + std::to_string(4 + rank));
                 });
}

// Rank 1 is of elsewhere, as its card says. Both ends get an error.
TEST(Connect, RanksOfElsewhereAreOutOfReach) {
  const auto with = [](void (*change)(tutti::sdk::Invitation&), const std::string& text) {
    const auto rewrite = [=](std::string& message) {
      Card card;
      if (message.size() != kCardBytes) return;
      std::memcpy(static_cast<void*>(&card), message.data() + sizeof(Head), sizeof card);
      change(card.invitation);
      std::memcpy(message.data() + sizeof(Head), &card, sizeof card);
    };
    expect_refused(
        [&](uint32_t rank) {
          Rank::Options options;
          if (rank == 1) options.rewrite = rewrite;
          return options;
        },
        [&](uint32_t rank) {
          return std::pair(TUTTI_SYSTEM, rank == 0 ? text : std::string("rank 0: it "));
        });
  };
  with([](auto& place) { place.boot_id[3] ^= 1; }, "another host");
  with([](auto& place) { place.network_namespace++; }, "another network namespace");
}

// One rank may open no more files; both ends say so.
TEST(Connect, ThePeerHearsWhyThereIsNoLink) {
  for (const uint32_t limited : {0u, 1u})
    ranks::run(As::kProcesses, 2, [&](Board& board, uint32_t rank) {
      Rank r(board, rank, 2, {});
      const rlimit few{3, 3};
      if (rank == limited) REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
      tutti_status status = TUTTI_AGAIN;
      r.until([&] { return (status = r.try_connect(1 - rank)) != TUTTI_AGAIN; });
      REQUIRE(status == TUTTI_SYSTEM);
      REQUIRE(ranks::last_error().find("Too many open files") != std::string::npos);
      const std::string told = "rank " + std::to_string(limited) + ": it cannot connect";
      REQUIRE(rank == limited || ranks::last_error().find(told) != std::string::npos);
      board.word[0]++;
      r.until([&] { return board.word[0] == 2; });
    });
}

TEST(Connect, PairMessagesAreChecked) {
  ranks::run(As::kThreads, 1, [](Board& board, uint32_t) {
    Rank r(board, 0, 3, {});
    const auto give = [&](uint32_t from, const void* data, uint64_t bytes) {
      return r.t->receive_pair(r.endpoint, from, data, bytes);
    };
    REQUIRE(r.try_connect(1) == TUTTI_AGAIN);
    const ranks::Mailbox::Letter& sent = r.mail(1).letters[0];  // rank 0's, which rank 1's would be like
    REQUIRE(sent.bytes == kCardBytes);
    REQUIRE(give(1, nullptr, 0) == TUTTI_INVALID_ARGUMENT);
    REQUIRE(give(1, sent.data, kCardBytes - 1) == TUTTI_INVALID_ARGUMENT);
    REQUIRE(ranks::last_error().find("rank 1: these") != std::string::npos);
    REQUIRE(ranks::last_error().find("same version") != std::string::npos);
    REQUIRE(give(3, sent.data, kCardBytes) == TUTTI_INVALID_ARGUMENT);
    REQUIRE(give(0, sent.data, kCardBytes) == TUTTI_INVALID_ARGUMENT);
    const auto with = [&](void (*change)(Head&)) {
      char bytes[kCardBytes];
      std::memcpy(bytes, sent.data, sizeof bytes);
      Head head;
      std::memcpy(&head, bytes, sizeof head);
      change(head);
      std::memcpy(bytes, &head, sizeof head);
      return give(1, bytes, sizeof bytes);
    };
    REQUIRE(with([](Head& head) { head.magic++; }) == TUTTI_INVALID_ARGUMENT);
    REQUIRE(with([](Head& head) { head.kind++; }) == TUTTI_INVALID_ARGUMENT);
    REQUIRE(with([](Head& head) { head.version++; }) == TUTTI_MISMATCH);
    REQUIRE(give(1, sent.data, kCardBytes) == TUTTI_OK);
    REQUIRE(give(1, sent.data, kCardBytes) == TUTTI_INVALID_ARGUMENT);  // a second one
    REQUIRE(r.try_connect(3) == TUTTI_INVALID_ARGUMENT && r.try_connect(2) == TUTTI_AGAIN);
  });
}

// Strangers send garbage, wrong tokens and nothing, before and while the ranks connect.
TEST(Connect, StrangersDoNoHarm) {
  ranks::run(As::kThreads, 2, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, {});
    REQUIRE(r.try_connect(1 - rank) == TUTTI_AGAIN);
    r.meet();
    Card card;
    std::memcpy(static_cast<void*>(&card), r.mail(1).letters[0].data + sizeof(Head), sizeof card);  // rank 0's, for 1
    card.invitation.token[0] ^= 1;
    const tutti::sdk::Doorway door;
    std::mt19937 random(rank);
    std::vector<tutti::sdk::Socket> strangers;
    for (int i = 0; i < 60; i++) {
      auto socket = i % 2 ? door.visit(card.invitation, card.invited_as + random() % 3, {0, 1})
                          : door.visit(card.invitation, card.invited_as);
      if (!socket) continue;
      char junk[300];
      for (char& c : junk) c = static_cast<char>(random());
      [[maybe_unused]] const ssize_t n = ::write(socket->get(), junk, random() % sizeof junk);
      strangers.push_back(std::move(*socket));
      if (rank == 0 && i % 3 == 0) r.progress();
    }
    r.meet();
    r.connect_all();
    REQUIRE(r.t->send_control(r.links[1 - rank], "fine", 4) == TUTTI_OK);
    r.until([&] { return r.control.size() == 1; });
    for (int i = 0; i < 3000; i++) r.progress();
    REQUIRE(r.failed.empty() && r.control[0].second == "fine");
    r.meet();
  });
}

}  // namespace
