// SPDX-License-Identifier: Apache-2.0
//
// card_exchange.hpp: each end gets the other's card once; what keeps them from it is told at both ends, and bytes that
// no endpoint sends are refused.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <tutti/sdk/card_exchange.hpp>
#include <vector>

#include "two_ranks.hpp"

namespace {

using namespace tutti::sdk;

struct Card {
  std::array<uint64_t, 2> settings{};
  uint64_t number = 0;
  std::string flaw() const { return number > 99 ? "its number is above 99" : ""; }
};
using Exchange = CardExchange<Card>;

constexpr PairFormat format{.transport = "test", .magic = 0x5453'5454, .version = 1};
constexpr uint32_t own_kind = 2;

// One of two ranks.
struct CardEnd : EndpointBase {
  explicit CardEnd(uint32_t rank, Card of_this = {{4, 64}, 7})
      : EndpointBase("test", config_of(rank), 8),
        mine(of_this),
        pair{sizeof pair, 0, this,
             [](void* self, uint32_t, const void* data, uint64_t bytes) -> tutti_status {
               static_cast<CardEnd*>(self)->sent.emplace_back(static_cast<const char*>(data), bytes);
               return TUTTI_OK;
             }},
        exchange(*this, config_of(rank, &pair), format, {"the lanes", "the bytes"},
                 {[this](uint32_t) { return mine; },
                  [this](uint32_t, const Card& card) {
                    if (lacks_memory) throw std::bad_alloc();
                    theirs = card.number;
                  },
                  [this](uint32_t) { ++dropped; }}) {}
  uint32_t peer() const { return 1 - rank(); }
  std::optional<PairFormat::Message> hear(const std::string& bytes) { return exchange.receive(peer(), bytes); }
  std::string error() const { return exchange.error(peer()) ? exchange.error(peer())->what() : ""; }
  std::string refusal_of(const std::string& bytes) try {
    hear(bytes);
    return "";
  } catch (const Error& e) {
    return e.what();
  }

  Card mine;
  tutti_pair_messages pair;
  std::vector<std::string> sent;
  uint64_t theirs = 0;
  int dropped = 0;
  bool lacks_memory = false;
  Exchange exchange;
};

void expect_in(const std::string& text, const std::string& whole) {
  EXPECT_NE(whole.find(text), std::string::npos) << whole;
}

TEST(CardExchange, EachEndGetsTheOthersOnce) {
  CardEnd a(0), b(1, {{4, 64}, 8});
  a.exchange.begin(1);
  a.exchange.begin(1);
  ASSERT_EQ(a.sent.size(), 1u);
  EXPECT_FALSE(b.hear(a.sent[0]));
  ASSERT_EQ(b.sent.size(), 1u) << "who is asked answers";
  EXPECT_FALSE(a.hear(b.sent[0]));
  EXPECT_EQ(a.theirs, 8u);
  EXPECT_EQ(b.theirs, 7u);
  EXPECT_EQ(a.sent.size() + b.sent.size(), 2u);
  EXPECT_EQ(a.error() + b.error(), "");
}

TEST(CardExchange, WhatDiffersIsNamedAtBothEnds) {
  CardEnd a(0), b(1, {{4, 65}, 8});
  a.exchange.begin(1);
  b.hear(a.sent[0]);
  for (const std::string& message : b.sent) a.hear(message);
  for (const CardEnd* end : {&a, &b}) {
    expect_in("the bytes", end->error());
    expect_in("64", end->error());
    expect_in("65", end->error());
    EXPECT_EQ(end->error().find("the lanes"), std::string::npos) << end->error();
    EXPECT_EQ(end->exchange.error(end->peer())->status(), TUTTI_MISMATCH);
    EXPECT_EQ(end->dropped, 1);
  }
}

TEST(CardExchange, ALackOfMemoryIsToldAtBothEnds) {
  CardEnd a(0), b(1);
  b.lacks_memory = true;
  a.exchange.begin(1);
  b.hear(a.sent[0]);
  for (const std::string& message : b.sent) a.hear(message);
  for (const CardEnd* end : {&a, &b}) {
    expect_in("out of memory", end->error());
    EXPECT_EQ(end->exchange.error(end->peer())->status(), TUTTI_NO_RESOURCES);
  }
}

TEST(CardExchange, ARefusalIsCutWhereAMessageEnds) {
  CardEnd a(0), b(1);
  a.exchange.begin(1);
  a.exchange.fail(1, TUTTI_SYSTEM, std::string(9999, 'x'));
  ASSERT_EQ(a.sent.size(), 2u);
  EXPECT_EQ(a.sent[1].size(), TUTTI_PAIR_BYTES);
  b.hear(a.sent[1]);
  ASSERT_TRUE(b.exchange.error(0));
  EXPECT_EQ(b.exchange.error(0)->status(), TUTTI_SYSTEM);
  expect_in("it cannot connect: " + std::string(4000, 'x'), b.error());
  a.exchange.fail(1, TUTTI_SYSTEM, "again");
  EXPECT_EQ(a.sent.size(), 2u) << "an error is final";
}

TEST(CardExchange, MessagesOfTheTransportComeBack) {
  CardEnd a(0), b(1);
  const std::string own = format.encode(own_kind, uint32_t{5});
  const auto message = b.hear(own);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->kind, own_kind);
  EXPECT_EQ(format.body_of<uint32_t>(*message), 5u);
  EXPECT_TRUE(b.hear(format.encode(9, uint32_t{5}))) << "a kind that it does not know is for the transport to judge";
  // A refusal that comes after a link was made is of the link.
  b.exchange.linked(0);
  EXPECT_TRUE(b.hear(format.encode(Exchange::kCard, TUTTI_ABORTED, "it has aborted")));
  EXPECT_EQ(b.error(), "");
}

TEST(CardExchange, BytesThatNoEndpointSendsAreRefused) {
  const std::string right = format.encode(Exchange::kCard, Card{{4, 64}, 8});
  for (size_t n = 0; n < right.size(); ++n) EXPECT_NE(CardEnd(0).refusal_of(right.substr(0, n)), "") << n;
  EXPECT_NE(CardEnd(0).refusal_of(right + "x"), "");
  expect_in("its number is above 99", CardEnd(0).refusal_of(format.encode(Exchange::kCard, Card{{4, 64}, 100})));
  expect_in("from rank 1", CardEnd(0).refusal_of("nonsense"));
  // A refusal needs a reason to count as one.
  EXPECT_NE(CardEnd(0).refusal_of(format.encode(Exchange::kCard, TUTTI_OK, "no reason")), "");
  CardEnd twice(0);
  EXPECT_EQ(twice.refusal_of(right), "");
  expect_in("a second card", twice.refusal_of(right));
  EXPECT_EQ(twice.theirs, 8u);
  std::string newer = right;
  newer[4] = 2;
  expect_in("it speaks version 2 of the test transport, this rank version 1", CardEnd(0).refusal_of(newer));
}

TEST(CardExchange, WhoGivesUpSaysSoIfItHasSpoken) {
  CardEnd silent(0), speaks(0);
  silent.exchange.give_up(1);
  EXPECT_TRUE(silent.sent.empty());
  speaks.exchange.begin(1);
  speaks.exchange.give_up(1);
  ASSERT_EQ(speaks.sent.size(), 2u);
  CardEnd b(1);
  b.hear(speaks.sent[1]);
  expect_in("rank 0 has given this rank up", b.error());
  EXPECT_THROW(b.exchange.connect(0), Error);
}

}  // namespace
