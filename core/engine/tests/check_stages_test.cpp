// SPDX-License-Identifier: Apache-2.0
//
// CallCheck's stages and messages, all ranks in one thread: every order of turns and arrivals comes to one result.
#include <gtest/gtest.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <random>

#include "engine/check/call_check.hpp"
#include "record/flight_recorder.hpp"

namespace tutti::core {
namespace {

struct Sent {
  uint32_t from, to;
  std::vector<std::byte> bytes;
};

// A port whose control messages wait in `under_way` until they are delivered. A link's handle is its Sent.
std::deque<Sent> under_way;
tutti_transport waiting_transport() {
  tutti_transport table{};
  table.name = "test";
  table.send_control = [](tutti_link* link, const void* data, uint64_t bytes) {
    Sent sent = *reinterpret_cast<const Sent*>(link);
    sent.bytes.assign(static_cast<const std::byte*>(data), static_cast<const std::byte*>(data) + bytes);
    under_way.push_back(std::move(sent));
    return tutti_status{TUTTI_OK};
  };
  return table;
}

class Ranks {
 public:
  explicit Ranks(uint32_t n, bool checked = true) {
    under_way.clear();
    port_.api = &table_;
    for (uint32_t r = 0; r < n; ++r) {
      Rank& rank = ranks_.emplace_back();
      for (uint32_t to = 0; to < n; ++to) rank.handles.push_back({r, to, {}});
      for (uint32_t to = 0; to < n; ++to) {
        Link& link = rank.links.emplace_back();
        link.port = &port_;
        link.handle = reinterpret_cast<tutti_link*>(&rank.handles[to]);
        link.peer = to;
      }
      rank.recorder = std::make_unique<FlightRecorder>(FlightRecorder::Meeting{"test", "", 1, r, n});
      rank.recorder->ended();  // so that it leaves no file
      rank.check = std::make_unique<CallCheck>(r, n, checked, rank.links, *rank.recorder, "test");
    }
  }

  CallCheck& operator[](uint32_t rank) { return *ranks_[rank].check; }

  // Every rank's outcome of one call: "" or why it differs. Turns and arrivals come in the order of a seed; the
  // messages of a pair keep theirs.
  std::vector<std::string> outcomes(const std::vector<Call>& calls, const std::vector<BlockTable>& tables,
                                    uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::string> found(calls.size(), "pending");
    for (int turn = 0; turn < 100'000 && std::ranges::count(found, "pending"); ++turn) {
      if (random() % 2) deliver(random());
      const size_t r = random() % calls.size();
      if (found[r] == "pending") try {
          if (ranks_[r].check->check(calls[r], tables[r])) found[r] = "";
        } catch (const CallsDiffer& difference) {
          for (Rank& rank : ranks_) EXPECT_TRUE(knows(*rank.check)) << rank.check->where();
          found[r] = std::to_string(difference.culprit) + " " + difference.text;
        }
    }
    return found;
  }

  std::string receive(uint32_t at, uint32_t from, const std::vector<std::byte>& bytes) {
    std::optional<CallDifference> difference;
    return ranks_[at].check->on_control(from, bytes.data(), bytes.size(), 0, &difference);
  }

 private:
  // Has it been through the rounds in which ranks learn of a difference?
  bool knows(const CallCheck& check) const {
    uint32_t round = 0, rounds = 0;
    const int read =
        std::sscanf(check.where().c_str(), "the check of the calls (TUTTI_CHECK), round %u of %u", &round, &rounds);
    return read != 2 || (rounds == 2 * std::bit_width(ranks_.size() - 1) && round > rounds / 2);
  }

  void deliver(uint64_t which) {
    if (under_way.empty()) return;
    const Sent& chosen = under_way[which % under_way.size()];
    const auto first = std::ranges::find_if(
        under_way, [&](const Sent& sent) { return sent.from == chosen.from && sent.to == chosen.to; });
    const Sent sent = *first;
    under_way.erase(first);
    EXPECT_EQ(receive(sent.to, sent.from, sent.bytes), "");
  }

  struct Rank {
    std::vector<Sent> handles;
    std::vector<Link> links;
    std::unique_ptr<FlightRecorder> recorder;
    std::unique_ptr<CallCheck> check;
  };
  const tutti_transport table_ = waiting_transport();
  Port port_;
  std::deque<Rank> ranks_;
};

BlockList blocks_of(std::vector<uint64_t> counts) {
  BlockList list;
  list.begins.resize(counts.size());
  list.counts = std::move(counts);
  return list;
}

// Rank `wrong` expects one element more of the rank before it than that one sends; n: all expect what is sent.
struct AllToAll {
  std::vector<Call> calls;
  std::vector<BlockTable> tables;
  AllToAll(uint32_t n, uint64_t sequence, uint32_t wrong) {
    for (uint32_t r = 0; r < n; ++r) {
      Call& call = calls.emplace_back();
      call.sequence = sequence;
      call.collective = TUTTI_ALL_TO_ALL_V;
      call.dtype = TUTTI_FLOAT32;
      std::vector<uint64_t> in, out;
      for (uint32_t peer = 0; peer < n; ++peer) {
        in.push_back(10 * r + peer);
        out.push_back(10 * peer + r + (r == wrong && peer == (r + n - 1) % n));
      }
      tables.push_back({blocks_of(in), blocks_of(out)});
    }
  }
};

TEST(CheckStages, EqualCallsPassAndACountThatDiffersIsNamedByAll) {
  for (uint32_t n = 2; n <= 6; ++n)
    for (uint64_t seed = 0; seed < 20; ++seed) {
      Ranks ranks(n);
      const uint32_t wrong = seed % n, sender = (wrong + n - 1) % n;
      for (uint64_t k = 0; k < 3; ++k) {
        const AllToAll right(n, k, n);
        EXPECT_EQ(ranks.outcomes(right.calls, right.tables, seed + k), std::vector<std::string>(n));
      }
      const AllToAll call(n, 3, wrong);
      const auto found = ranks.outcomes(call.calls, call.tables, seed);
      EXPECT_EQ(found, std::vector<std::string>(n, found[0]));
      EXPECT_EQ(found[0].find(std::to_string(wrong) + " expects " + std::to_string(10 * sender + wrong + 1) +
                              " elements from rank " + std::to_string(sender)),
                0u)
          << found[0];
    }
}

TEST(CheckStages, WhereItStandsIsTold) {
  Ranks ranks(2);
  const AllToAll call(2, 0, 2);
  const auto turn = [&](uint32_t r) { return ranks[r].check(call.calls[r], call.tables[r]); };
  const auto arrive = [&] {
    const Sent sent = under_way.front();
    under_way.pop_front();
    EXPECT_EQ(ranks.receive(sent.to, sent.from, sent.bytes), "");
  };
  EXPECT_EQ(ranks[0].where(), "");
  EXPECT_FALSE(turn(0));
  EXPECT_EQ(ranks[0].where(),
            "the check of the calls (TUTTI_CHECK), round 1 of 1: rank 1 has not told which call it makes");
  EXPECT_FALSE(turn(1));
  arrive();
  arrive();
  EXPECT_FALSE(turn(0));
  EXPECT_EQ(ranks[0].where(), "the exchange of counts before the call (TUTTI_CHECK)");
  EXPECT_FALSE(turn(1));
  arrive();
  arrive();
  EXPECT_FALSE(turn(0));
  EXPECT_FALSE(turn(1));
  arrive();
  arrive();
  EXPECT_TRUE(turn(0) && turn(1));
  EXPECT_EQ(ranks[0].where(), "");
}

// The fields of a message by their places.
template <typename T>
std::vector<std::byte> with(std::vector<std::byte> bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return bytes;
}

TEST(CheckStages, MessagesThatBreakTheProtocolAreRefused) {
  constexpr size_t type = 0, round = 4, number = 8, rank = 16, odd_rank = 20;
  Ranks ranks(3);
  const AllToAll call(3, 0, 3);
  EXPECT_FALSE(ranks[0].check(call.calls[0], call.tables[0]));
  const std::vector<std::byte> good = under_way.front().bytes;  // from rank 0 to rank 1
  uint32_t type_of_call = 0;
  std::memcpy(&type_of_call, good.data(), sizeof type_of_call);
  const auto count = with(good, type, type_of_call + 1), news = with(good, type, type_of_call + 2);
  EXPECT_TRUE(CallCheck::receives(type_of_call) && CallCheck::receives(type_of_call + 2));
  EXPECT_FALSE(CallCheck::receives(type_of_call - 1) || CallCheck::receives(type_of_call + 3));

  const auto refused = [&](uint32_t from, const std::vector<std::byte>& bytes, const char* says) {
    EXPECT_NE(ranks.receive(1, from, bytes).find(says), std::string::npos) << ranks.receive(1, from, bytes);
  };
  refused(0, std::vector(good.begin(), good.end() - 1), "a control message about calls of ");
  refused(2, good, "an invalid check of calls");
  refused(0, with(good, round, uint32_t{4}), "an invalid check of calls (round 4, ranks 0 and");
  refused(0, with(good, rank, uint32_t{3}), "an invalid check of calls");
  refused(0, with(good, odd_rank, uint32_t{3}), "an invalid check of calls");
  refused(0, with(good, number, uint64_t{2}), "check #2 of the calls, while this rank is at #0");
  refused(2, count, "an invalid check of calls");
  refused(0, news, "an invalid report of a call");
  EXPECT_EQ(ranks.receive(1, 0, good), "");
  refused(0, good, "round 0 of a check twice");
  EXPECT_EQ(ranks.receive(1, 0, count), "");
  refused(0, count, "two counts for check #0");

  Ranks unchecked(3, false);
  EXPECT_NE(unchecked.receive(1, 0, good), "");
  EXPECT_NE(unchecked.receive(1, 0, count), "");
  EXPECT_EQ(unchecked.receive(1, 0, news), "");
  EXPECT_TRUE(unchecked[1].has_notices());
  Call other = call.calls[1];
  other.count = 1;
  const auto difference = unchecked[1].compare_notices(other);
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->culprit, 0u);
  EXPECT_FALSE(unchecked[1].has_notices());
}

}  // namespace
}  // namespace tutti::core
