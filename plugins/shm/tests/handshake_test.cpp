// SPDX-License-Identifier: Apache-2.0
//
// Who is let in: crossing and one-sided connects, wrong secrets and terms, addresses of elsewhere, strangers and
// garbage.
#include <random>

#include "../src/wire.hpp"
#include "ranks.hpp"

namespace {
using ranks::As;
using ranks::Board;
using ranks::Rank;

// All pairs at once, so that many connections cross; then every pair has exactly one working link.
TEST(Handshake, ManyRanksConnectAtTheSameTime) {
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

// Either side alone may call connect; the other needs progress only, and gets the link by a later connect.
TEST(Handshake, OneSideIsEnough) {
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
TEST(Handshake, TwoEndpointsPerProcess) {
  ranks::run(As::kProcesses, 2, [](Board& board, uint32_t rank) {
    static Board* second = nullptr;
    Rank a(board, rank, 2, {});
    a.connect_all();
    // The second's addresses travel over the first.
    auto other = std::make_unique<Board>();
    second = other.get();
    Rank b(*second, rank, 2, {.lanes = 1, .communicator = 8});
    REQUIRE(a.t->send_control(a.links[1 - rank], second->address[rank], second->address_bytes[rank]) == TUTTI_OK);
    a.until([&] { return a.control.size() == 1; });
    second->address_bytes[1 - rank] = a.control[0].second.size();
    std::memcpy(second->address[1 - rank], a.control[0].second.data(), a.control[0].second.size());
    b.until([&] { return b.try_connect(1 - rank) == TUTTI_OK; });
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

// Both sides refuse, and the error names the difference.
void expect_refused(const std::function<Rank::Options(uint32_t)>& options, const std::vector<std::string>& expected) {
  ranks::run(As::kThreads, 2, [&](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, options(rank));
    r.meet();
    tutti_status status = TUTTI_AGAIN;
    r.until([&] { return (status = r.try_connect(1 - rank)) != TUTTI_AGAIN; });
    REQUIRE(status == TUTTI_MISMATCH);
    for (const std::string& text : expected) REQUIRE(ranks::last_error().find(text) != std::string::npos);
    board.word[0]++;
    r.until([&] { return board.word[0] == 2; });
  });
}

TEST(Handshake, WrongSecretsAndTermsAreRefused) {
  expect_refused([](uint32_t rank) { return Rank::Options{.secret = rank ? "secret" : "Secret"}; }, {"secret"});
  expect_refused([](uint32_t rank) { return Rank::Options{.secret = rank ? "secret" : ""}; }, {"secret"});
  expect_refused([](uint32_t rank) { return Rank::Options{.lanes = rank ? 4u : 5u}; }, {"lanes", "4", "5"});
  expect_refused([](uint32_t rank) { return Rank::Options{.communicator = rank + 40}; }, {"communicator", "40", "41"});
}

TEST(Handshake, AddressesAreChecked) {
  ranks::run(As::kThreads, 2, [](Board& board, uint32_t rank) {
    Rank r(board, rank, 2, {});
    r.meet();
    const uint32_t peer = 1 - rank;
    tutti_link* link = nullptr;
    const auto with = [&](const std::function<void(tutti::shm::Address&)>& change) {
      tutti::shm::Address address;
      std::memcpy(&address, board.address[peer], sizeof address);
      change(address);
      return r.t->connect(r.endpoint, peer, &address, sizeof address, &link);
    };
    REQUIRE(r.t->connect(r.endpoint, peer, board.address[peer], 63, &link) == TUTTI_INVALID_ARGUMENT);
    REQUIRE(r.t->connect(r.endpoint, peer, nullptr, 0, &link) == TUTTI_INVALID_ARGUMENT);
    REQUIRE(r.t->connect(r.endpoint, 2, board.address[peer], 64, &link) == TUTTI_INVALID_ARGUMENT);
    REQUIRE(with([](auto& a) { a.magic++; }) == TUTTI_INVALID_ARGUMENT);
    REQUIRE(with([](auto& a) { a.rank = 5; }) == TUTTI_INVALID_ARGUMENT);
    REQUIRE(with([](auto& a) { a.boot_id[3] ^= 1; }) == TUTTI_NOT_SUPPORTED);
    REQUIRE(ranks::last_error().find("another host") != std::string::npos);
    REQUIRE(with([](auto& a) { a.network_namespace++; }) == TUTTI_NOT_SUPPORTED);
    REQUIRE(with([](auto& a) { a.uid++; }) == TUTTI_NOT_SUPPORTED);
    REQUIRE(with([](auto& a) { a.name[0] ^= 1; }) == TUTTI_PEER_FAILED);
    uint64_t small = 10;
    char address[10];
    REQUIRE(r.t->get_address(r.endpoint, address, &small) == TUTTI_NO_RESOURCES && small == 64);
    r.meet();
  });
}

// Strangers send garbage, half handshakes and wrong proofs, before and while the ranks connect.
TEST(Handshake, StrangersDoNoHarm) {
  ranks::run(As::kThreads, 2, [](Board& board, uint32_t rank) {
    using namespace tutti::shm;
    Rank r(board, rank, 2, {});
    r.meet();
    Address address;
    std::memcpy(&address, board.address[1 - rank], sizeof address);
    std::mt19937 random(rank);
    std::vector<Socket> strangers;
    for (int i = 0; i < 40; i++) {
      auto socket = connect_to(address);
      if (!socket) continue;
      Hello hello;
      hello.terms = {kWireVersion, rank, 1 - rank, 2, 4, 4, 65536, 7, {}};
      if (i % 4 == 0) {
        char junk[300];
        for (char& c : junk) c = static_cast<char>(random());
        [[maybe_unused]] const ssize_t n = ::write(socket->get(), junk, random() % sizeof junk);
      } else if (i % 4 == 1) {
        socket->send(hello);  // and then silence
      } else if (i % 4 == 2) {
        socket->send(hello);
        socket->send(Proof());
        socket->send(tutti::shm::Setup(), {0, 1});
      } else {
        hello.terms.rank = static_cast<uint32_t>(random());
        socket->send(hello, {0, 1, 2});
      }
      strangers.push_back(std::move(*socket));
      if (i % 3 == 0) r.progress();
    }
    r.connect_all();
    REQUIRE(r.t->send_control(r.links[1 - rank], "fine", 4) == TUTTI_OK);
    r.until([&] { return r.control.size() == 1; });
    for (int i = 0; i < 3000; i++) r.progress();
    REQUIRE(r.failed.empty() && r.control[0].second == "fine");
    r.meet();
  });
}

}  // namespace
