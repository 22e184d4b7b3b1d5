// SPDX-License-Identifier: Apache-2.0
//
// Many messages: order, interleavings, back-pressure, lanes that wait for nobody.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <latch>
#include <random>
#include <thread>

#include "contract_case.hpp"

namespace tutti::conformance::contract {
namespace {

// Three messages on two lanes: every merge of the sender's posts with the receiver's, with progress of nobody, the
// sender, the receiver or both between them.
void every_interleaving(Bench& bench) {
  Stage stage(bench);
  const uint64_t large = std::min<uint64_t>(bench.caps().fragment_bytes, 20'000);
  const struct {
    uint32_t lane;
    uint64_t bytes;
    uint16_t flags;
  } plan[] = {{0, 16, 0}, {0, large, 0}, {1, 24, 0}};
  uint32_t k = 0;
  for (uint32_t merge = 0; merge < 64; ++merge) {
    if (__builtin_popcount(merge) != 3) continue;  // bit i: the i-th post is a SEND
    for (uint32_t policy = 0; policy < 4; ++policy) {
      std::vector<std::unique_ptr<Message>> messages;
      uint32_t on_lane[2] = {k, k};
      for (const auto& p : plan)
        messages.push_back(std::make_unique<Message>(stage, Label{0, 1, p.lane, on_lane[p.lane]++}, p.bytes, p.flags));
      k += 2;
      uint32_t sends = 0, receives = 0;
      for (uint32_t step = 0; step < 6; ++step) {
        const bool sending = merge >> step & 1;
        Message& message = *messages[sending ? sends++ : receives++];
        stage.until([&] { return sending ? message.post_send() : message.post_receive(); }, sending ? "T-21" : "T-20",
                    [&] {
                      return fmt::format(
                          "a {} is refused again and again (order of posts {:06b}, first post at the right, "
                          "1 = SEND)",
                          sending ? "SEND" : "RECV", merge);
                    });
        if (policy & 1) stage[0].progress();
        if (policy & 2) stage[1].progress();
      }
      stage.until(
          [&] {
            return std::all_of(messages.begin(), messages.end(), [](auto& m) { return m->sent() && m->received(); });
          },
          "T-11",
          [&] {
            return fmt::format(
                "three messages on two lanes do not all arrive (order of posts {:06b}, first post at "
                "the right, 1 = SEND; progress between posts: {})",
                merge,
                policy == 0   ? "none"
                : policy == 1 ? "sender"
                : policy == 2 ? "receiver"
                              : "both");
          });
      k = std::max({k, on_lane[0], on_lane[1]});
    }
  }
}

// The numbering of a lane's messages, so that a swapped one is recognised.
class Traffic {
 public:
  Traffic(Stage& stage, uint64_t seed, uint32_t per_stream, uint64_t most_bytes, bool with_inline)
      : stage_(stage), random_(seed) {
    const uint64_t limit = stage.bench.caps().inline_bytes;
    const auto n = static_cast<uint32_t>(stage.ranks.size());
    for (uint32_t from = 0; from < n; ++from)
      for (uint32_t to = 0; to < n; ++to)
        for (uint32_t lane = 0; from != to && lane < stage[from].options.lanes; ++lane) {
          Stream& stream = streams_.emplace_back();
          for (uint32_t k = 0; k < per_stream; ++k) {
            const uint64_t bytes = size(most_bytes);
            const bool quiet = with_inline && bytes <= limit && random_() % 2;
            stream.messages.push_back(std::make_unique<Message>(stage, Label{from, to, lane, k}, bytes,
                                                                quiet ? uint16_t{TUTTI_TRANSFER_INLINE} : uint16_t{0},
                                                                random_() % 4));
          }
        }
  }
  // A random walk: who posts, who progresses and with how much room.
  void run() {
    stage_.until(
        [&] {
          for (int i = 0; i < 8; ++i) step();
          return std::all_of(streams_.begin(), streams_.end(), [](Stream& s) {
            while (s.done < s.messages.size() && s.messages[s.done]->sent() && s.messages[s.done]->received()) ++s.done;
            return s.done == s.messages.size();
          });
        },
        "T-21", [&] { return where(); });
  }

 private:
  struct Stream {
    std::vector<std::unique_ptr<Message>> messages;
    size_t sends = 0, receives = 0, done = 0;
  };
  uint64_t size(uint64_t most) {
    switch (random_() % 8) {
      case 0:
        return random_() % 4;
      case 1:
        return random_() % (most + 1);
      default:
        return 8 + random_() % 120;
    }
  }
  void step() {
    Stream& s = streams_[random_() % streams_.size()];
    const uint64_t choice = random_() % 8;
    if (choice < 3) {
      for (uint64_t n = random_() % 6; n-- > 0 && s.sends < s.messages.size() && s.messages[s.sends]->post_send();)
        ++s.sends;
    } else if (choice < 6) {
      for (uint64_t n = random_() % 6;
           n-- > 0 && s.receives < s.messages.size() && s.messages[s.receives]->post_receive();)
        ++s.receives;
    } else {
      stage_[static_cast<uint32_t>(random_() % stage_.ranks.size())].progress(1 + random_() % 5);
    }
  }
  std::string where() {
    std::string text = "traffic on all lanes comes to a stand:";
    int shown = 0;
    for (const Stream& s : streams_) {
      if (s.done == s.messages.size() || ++shown > 4) continue;
      const Message& m = *s.messages[s.done];
      text += fmt::format(" message {} of {} bytes, rank {} to {}, lane {}: SEND {}, RECV {};", m.label.k, m.bytes,
                          m.label.from, m.label.to, m.label.lane,
                          m.sent()          ? "complete"
                          : m.send_posted() ? "posted"
                                            : "refused",
                          m.received()         ? "complete"
                          : m.receive_posted() ? "posted"
                                               : "refused");
    }
    return text;
  }
  Stage& stage_;
  std::mt19937_64 random_;
  std::vector<Stream> streams_;
};

void seeded_traffic(Bench& bench) {
  for (uint64_t turn = 0; turn < 4; ++turn) {
    Stage stage(bench, {.nranks = turn < 2 ? 2u : 3u, .lanes = turn == 3 ? 5u : 2u});
    Traffic(stage, bench.seed * 31 + turn, turn < 2 ? 40 : 12, std::min<uint64_t>(bench.caps().fragment_bytes, 70'000),
            turn % 2 == 1)
        .run();
    stage.drain();
  }
}

void long_traffic(Bench& bench) {
  for (uint64_t turn = 0; turn < 6; ++turn) {
    Stage stage(bench, {.nranks = 2 + static_cast<uint32_t>(turn % 3), .lanes = 1 + static_cast<uint32_t>(turn)});
    Traffic(stage, bench.seed * 97 + turn, 60, std::min<uint64_t>(bench.caps().fragment_bytes, 1 << 18), turn % 2 == 0)
        .run();
    stage.drain();
  }
}

// SENDs without RECVs until one is refused (or very many were taken), then the RECVs one by one.
void back_pressure(Bench& bench) {
  for (const uint64_t bytes : {uint64_t{40}, std::min<uint64_t>(bench.caps().fragment_bytes, 30'000)})
    for (const uint16_t flags : {uint16_t{0}, uint16_t{TUTTI_TRANSFER_INLINE}}) {
      if (flags && bytes > bench.caps().inline_bytes) continue;
      Stage stage(bench);
      constexpr uint32_t most = 300;
      std::vector<std::unique_ptr<Message>> messages;
      uint32_t sends = 0;
      for (uint32_t k = 0; k < most; ++k)
        messages.push_back(std::make_unique<Message>(stage, Label{0, 1, 0, k}, bytes, flags));
      while (sends < most && messages[sends]->post_send()) ++sends;
      stage.settle();
      while (sends < most && messages[sends]->post_send()) ++sends;
      const uint32_t first = sends;
      uint32_t receives = 0;
      for (uint32_t k = 0; k < std::min(first + 20, most); ++k) {
        stage.until(
            [&] {
              while (receives <= k + 2 && receives < most && messages[receives]->post_receive()) ++receives;
              if (sends < most && sends <= k && messages[sends]->post_send()) ++sends;
              return messages[k]->received() && messages[k]->sent();
            },
            "T-21",
            [&] {
              return messages[k]->send_posted()
                         ? fmt::format("SEND {} was taken, its RECV is posted, and they never complete", k)
                         : fmt::format(
                               "SEND {} of {} bytes{}, refused after {} had been taken, is refused for ever though its "
                               "RECV is posted",
                               k, bytes, flags ? " (INLINE)" : "", first);
            });
      }
    }
}

// Word i must have received the value that was sent to it. A wrong value decides which clause is broken.
void judge_words(const char* when, const std::vector<uint64_t>& sent, const std::vector<uint64_t>& got) {
  for (size_t i = 0; i < sent.size(); ++i) {
    if (got[i] == sent[i]) continue;
    const auto other = std::find(sent.begin(), sent.end(), got[i]);
    require(other == sent.end(), "T-13", "{} the RECV that matches SEND {} (of {}) got the bytes of SEND {}", when, i,
            sent.size(), other - sent.begin());
    broken("T-15", "{} the RECV that matches SEND {} (of {}) got {:#018x}, which nobody sent; expected {:#018x}", when,
           i, sent.size(), got[i], sent[i]);
  }
}

void receive_depth(Bench& bench) {
  const uint32_t depth = bench.caps().receive_depth;
  Stage stage(bench, {.nranks = 3});
  std::vector<uint64_t> words(size_t{depth} * 3 * 2, 0);
  std::vector<Posted*> receives;
  size_t at = 0;
  for (uint32_t k = 0; k < depth; ++k)
    for (uint32_t lane = 0; lane < 3; ++lane)
      for (const uint32_t peer : {1u, 2u}) {
        Posted* posted = stage[0].post(stage[0].receive(peer, lane, &words[at++], 8));
        require(
            posted, "T-20",
            "the {}. RECV from rank {} on lane {} was refused; query promises that receive_depth = {} of each lane are "
            "always taken",
            k + 1, peer, lane, depth);
        receives.push_back(posted);
      }
  // They are worth something: each gets its message.
  std::vector<uint64_t> sent(words.size());
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = bench.seed * 1000 + i;
  at = 0;
  for (uint32_t k = 0; k < depth; ++k)
    for (uint32_t lane = 0; lane < 3; ++lane)
      for (const uint32_t peer : {1u, 2u}) {
        stage.until([&] { return stage[peer].post(stage[peer].send(0, lane, &sent[at], 8)) != nullptr; }, "T-21",
                    "a SEND is refused for ever though its RECV is posted");
        ++at;
      }
  stage.drain();
  judge_words("with receive_depth receives posted on all lanes", sent, words);
}

// Lane 0 towards rank 1 is stuffed; every other lane and peer goes on.
void lanes_are_independent(Bench& bench) {
  for (const uint64_t bytes : {uint64_t{40}, std::min<uint64_t>(bench.caps().fragment_bytes, 60'000)}) {
    Stage stage(bench, {.nranks = 3});
    std::vector<uint8_t> stuff(bytes, 1), into(bytes);
    uint32_t stuffed = 0;
    while (stuffed < 200 && stage[0].post(stage[0].send(1, 0, stuff.data(), bytes))) {
      ++stuffed;
      if (stuffed % 8 == 0) stage.progress();
    }
    stage.settle();
    for (uint32_t k = 0; k < 3; ++k)
      for (const auto& [from, to, lane] :
           {std::tuple{0u, 1u, 1u}, {0u, 1u, 2u}, {0u, 2u, 0u}, {1u, 0u, 0u}, {2u, 1u, 0u}}) {
        Message message(stage, {from, to, lane, k}, k == 2 ? bytes : 24);
        stage.until(
            [&] {
              if (!message.receive_posted()) message.post_receive();
              if (!message.send_posted()) message.post_send();
              return message.received() && message.sent();
            },
            "T-19",
            [&] {
              return fmt::format(
                  "{} SENDs of {} bytes from rank 0 to rank 1 wait on lane 0 without a RECV, and now a message "
                  "from rank {} to rank {} on lane {} does not pass ({})",
                  stuffed, bytes, from, to, lane,
                  message.send_posted() ? "accepted, never received" : "its SEND is refused for ever");
            });
      }
    for (uint32_t k = 0; k < stuffed; ++k)
      stage.until([&] { return stage[1].post(stage[1].receive(0, 0, into.data(), bytes)) != nullptr; }, "T-20",
                  "the RECVs of the waiting messages are refused");
    stage.drain("T-21");
  }
}

// A lane that is never idle: sends and receives are posted again as soon as there is room.
class Flood {
 public:
  Flood(Stage& stage, uint64_t bytes) : stage_(stage), stuff_(bytes, 1), into_(bytes) {}
  void keep_up() {
    for (; receives_ < carried_ + 8; ++receives_) {
      Posted* posted = stage_[1].post(stage_[1].receive(0, 0, into_.data(), into_.size()));
      if (!posted) break;
      posted->on_done = [this](Posted&) { ++carried_; };
    }
    while (sends_ < carried_ + 24 && stage_[0].post(stage_[0].send(1, 0, stuff_.data(), stuff_.size()))) ++sends_;
  }
  uint64_t carried() const { return carried_; }  // messages
  // What was sent is received, so that the stage is at rest.
  void end() {
    stage_.until(
        [&] {
          for (; receives_ < sends_; ++receives_)
            if (!stage_[1].post(stage_[1].receive(0, 0, into_.data(), into_.size()))) break;
          for (; sends_ < receives_; ++sends_)
            if (!stage_[0].post(stage_[0].send(1, 0, stuff_.data(), stuff_.size()))) break;
          return sends_ == receives_ && stage_[0].pending() + stage_[1].pending() == 0;
        },
        "T-21", "the messages of a lane that was never idle do not all arrive");
  }

 private:
  Stage& stage_;
  std::vector<uint8_t> stuff_, into_;
  uint64_t receives_ = 0, sends_ = 0, carried_ = 0;
};

// Lane 0 is never idle. Every other lane and peer passes while it carries a bounded number of messages.
void busy_lane(Bench& bench) {
  constexpr uint64_t most = 500;
  for (const uint64_t bytes : {uint64_t{40}, std::min<uint64_t>(bench.caps().fragment_bytes, 60'000)}) {
    Stage stage(bench, {.nranks = 3});
    Flood flood(stage, bytes);
    stage.until([&] { return flood.keep_up(), flood.carried() > 50; }, "T-21", "messages on one lane do not arrive");
    for (uint32_t k = 0; k < 3; ++k)
      for (const auto& [from, to, lane] :
           {std::tuple{0u, 1u, 1u}, {0u, 1u, 2u}, {0u, 2u, 0u}, {1u, 0u, 0u}, {2u, 1u, 0u}}) {
        Message message(stage, {from, to, lane, k}, k == 2 ? bytes : 24);
        const uint64_t before = flood.carried();
        const auto text = [&] {
          return fmt::format(
              "lane 0 from rank 0 to rank 1 is never idle, and a message from rank {} to rank {} on lane {} ({}) does "
              "not pass while {} messages of {} bytes are carried there: serve lanes and peers in turn",
              from, to, lane, message.send_posted() ? "accepted, not received" : "its SEND is refused",
              flood.carried() - before, bytes);
        };
        stage.until(
            [&] {
              flood.keep_up();
              if (!message.receive_posted()) message.post_receive();
              if (!message.send_posted()) message.post_send();
              require(flood.carried() < before + most, "T-19", "{}", text());
              return message.received() && message.sent();
            },
            "T-19", text);
      }
    flood.end();
  }
}

// Two communicators whose ranks 0 share a domain, each driven by a thread of its own.
void two_threads(Bench& bench) {
  StageOptions alone{.nranks = 0};
  Stage first(bench, alone), second(bench, alone);
  const auto open = [&](Stage& stage, uint64_t communicator, uint32_t rank, tutti_domain* domain) {
    RankOptions options;
    options.rank = rank;
    options.communicator = communicator;
    options.domain = domain;
    options.mail = &stage.mail;
    stage.ranks.push_back(std::make_unique<Rank>(bench, options));
  };
  open(first, bench.seed * 2 + 11, 0, nullptr);
  open(first, bench.seed * 2 + 11, 1, nullptr);
  open(second, bench.seed * 2 + 12, 0, first[0].domain);
  open(second, bench.seed * 2 + 12, 1, first[1].domain);
  // They begin together, and each goes on until the other has done its share: so they run at the same time also where
  // other programs keep the processors busy.
  constexpr uint32_t share = 4, most_rounds = 100;
  std::exception_ptr trouble[2];
  std::atomic<uint32_t> done[2]{0, 0};
  std::latch begin(2);
  std::vector<std::thread> threads;
  const auto guarded = [&](uint32_t t, const auto& act) {
    try {
      if (!trouble[t]) act(t ? second : first);
    } catch (...) {
      trouble[t] = std::current_exception();
    }
  };
  for (uint32_t t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      guarded(t, [](Stage& stage) { stage.connect_all(); });
      begin.arrive_and_wait();
      guarded(t, [&](Stage& stage) {
        for (uint32_t round = 0; round < share || (done[1 - t] < share && round < most_rounds); ++round, ++done[t]) {
          Traffic(stage, (bench.seed * 53 + round) * 2 + t, 80, 3000, (round + t) % 2 == 1).run();
          stage.drain();
        }
      });
      done[t] = share;
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& one : trouble) {
    if (!one) continue;
    try {
      std::rethrow_exception(one);
    } catch (const Broken& b) {
      throw Broken("T-3", fmt::format("two endpoints of one domain, each used by a thread of its own, disturb each "
                                      "other: which state do they share without a lock? ({}: {})",
                                      b.clause(), b.what()));
    }
  }
  second.ranks.clear();  // their domains belong to the first
}

// progress with room for one record at a time loses nothing and writes nothing beyond.
void little_room(Bench& bench) {
  Stage stage(bench);
  std::vector<std::unique_ptr<Message>> messages;
  for (uint32_t k = 0; k < 24; ++k)
    messages.push_back(std::make_unique<Message>(stage, Label{k & 1, 1 - (k & 1), k % 3, k / 2}, 32 + k));
  for (auto& m : messages) m->post_receive();
  for (auto& m : messages) stage.until([&] { return m->post_send(); }, "T-21", "a SEND is refused");
  const auto tell = [&](uint32_t from, std::string_view text) {
    stage.until([&] { return stage[from].send_control(1 - from, text) == TUTTI_OK; }, "T-28",
                "a control message is refused, again and again");
  };
  for (int i = 0; i < 3; ++i) {
    tell(0, "a control message");
    tell(1, "and another one");
  }
  size_t idle = 0;
  while (idle < 3000) {
    const uint32_t n = stage[0].progress(1) + stage[1].progress(1);
    idle = n ? 0 : idle + 1;
    if (stage[0].pending() + stage[1].pending() == 0 && stage[0].events.size() + stage[1].events.size() == 6) return;
  }
  stage.settle();
  const bool late =
      stage[0].pending() + stage[1].pending() == 0 && stage[0].events.size() + stage[1].events.size() == 6;
  require(!late, "T-27", "with room for one record progress tells nothing any more, with room for 64 it does");
  broken("T-27",
         "with room for one record at a time some records never come: {} transfers pending, {} of 6 control messages "
         "told. "
         "What does not fit must wait for the next call",
         stage[0].pending() + stage[1].pending(), stage[0].events.size() + stage[1].events.size());
}

// More transfers than the queues hold, each posted again until it is taken: what is refused is not taken.
void full_queues(Bench& bench) {
  Stage stage(bench);
  constexpr uint32_t many = 500;
  std::vector<uint64_t> sent(many), got(many, 0);
  for (uint32_t i = 0; i < many; ++i) sent[i] = bench.seed * 3 + i;
  uint32_t sends_taken = 0, receives_taken = 0;
  stage.until(
      [&] {
        for (uint32_t& i = sends_taken; i < many && stage[0].post(stage[0].send(1, i % 3, &sent[i], 8)); ++i) {
        }
        for (uint32_t& i = receives_taken; i < many && stage[1].post(stage[1].receive(0, i % 3, &got[i], 8)); ++i) {
        }
        return sends_taken == many && receives_taken == many && stage[0].pending() + stage[1].pending() == 0;
      },
      "T-21",
      [&] {
        return fmt::format(
            "of {0} SENDs and {0} RECVs on three lanes, posted again and again from the first refused one, {1} SENDs "
            "and "
            "{2} RECVs were taken and {3} of those complete; then nothing more happens",
            many, sends_taken, receives_taken, sends_taken + receives_taken - stage[0].pending() - stage[1].pending());
      });
  judge_words("in more transfers than the queues hold", sent, got);
}

}  // namespace

std::vector<ContractCase> flow_cases() {
  return {
      {"receive-depth",
       "receive_depth receives on all lanes of all links",
       {"T-20", "T-13", "T-21", "T-15"},
       8,
       receive_depth},
      {"little-room",
       "progress with room for one record",
       {"T-27", "T-13", "T-15", "T-17", "T-21", "T-28"},
       5,
       little_room},
      {"full-queues", "more transfers than the queues hold", {"T-9", "T-13", "T-15", "T-21"}, 6, full_queues},
      {"back-pressure",
       "SENDs without RECVs until one is refused",
       {"T-21", "T-13", "T-15", "T-17", "T-20", "T-22"},
       25,
       back_pressure},
      {"lanes-are-independent",
       "a lane without receives holds up no other",
       {"T-19", "T-13", "T-15", "T-20", "T-21"},
       20,
       lanes_are_independent},
      {"busy-lane",
       "a lane that is never idle holds up no other for long",
       {"T-19", "T-13", "T-15", "T-17", "T-20", "T-21"},
       22,
       busy_lane},
      {"two-threads", "two endpoints of one domain, each in a thread of its own", {"T-3", "T-5"}, 39, two_threads},
      {"fifo-every-interleaving",
       "80 orders of posting three messages on two lanes",
       {"T-13", "T-15", "T-17", "T-20", "T-21"},
       40,
       every_interleaving},
      {"fifo-seeded-traffic",
       "random traffic on all lanes of two and three ranks",
       {"T-13", "T-15", "T-17", "T-21", "T-22", "T-25"},
       60,
       seeded_traffic},
      {"fifo-long-traffic",
       "the same with more ranks, lanes and bytes",
       {"T-13", "T-15", "T-17", "T-21", "T-22", "T-25"},
       400,
       long_traffic},
  };
}

}  // namespace tutti::conformance::contract
