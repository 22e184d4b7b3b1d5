// SPDX-License-Identifier: Apache-2.0
//
// How links come about: orders of calling, bad pair messages, strangers.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "contract_case.hpp"
#include "shared_domain.hpp"
#include "listeners.hpp"

namespace tutti::conformance::contract {
namespace {

// One message each way.
void exchange(Stage& stage, uint32_t a, uint32_t b, const char* clause) {
  Message there(stage, {a, b, 0, 0}, 24), back(stage, {b, a, 1, 0}, 24);
  stage.until(
      [&] {
        for (Message* m : {&there, &back}) {
          if (!m->send_posted()) m->post_send();
          if (!m->receive_posted()) m->post_receive();
        }
        return there.received() && back.received() && there.sent() && back.sent();
      },
      clause, fmt::format("ranks {} and {} are connected, but a message each way does not arrive", a, b));
}

void every_pair(Bench& bench) {
  Stage stage(bench, {.nranks = 4});
  for (uint32_t a = 0; a < 4; ++a)
    for (uint32_t b = a + 1; b < 4; ++b) exchange(stage, a, b, "T-5");
  stage.connect_all();  // gives the same links: Rank::connect compares
}

// Rank `first` asks alone until it has its link; the other only progresses, and asks afterwards.
void one_end_calls(Bench& bench) {
  for (const uint32_t first : {0u, 1u}) {
    Stage stage(bench, {.connect = false});
    const auto ask = [&](uint32_t rank) {
      stage.until(
          [&] {
            const tutti_status status = stage[rank].connect(1 - rank);
            require(status >= 0, "T-5", "connect returned {}: {}", status_text(status), last_error());
            return status == TUTTI_OK;
          },
          "T-6",
          fmt::format(
              "rank {} calls connect and both ends progress, but no link comes about while rank {} does not call "
              "connect itself",
              rank, 1 - rank));
    };
    ask(first);
    ask(1 - first);
    exchange(stage, 0, 1, "T-6");
  }
}

// Messages that the first end sends before the other has asked for its link wait and arrive.
void early_messages(Bench& bench) {
  Stage stage(bench, {.connect = false});
  stage.until(
      [&] { return stage[0].connect(1) == TUTTI_OK; }, "T-6",
      "rank 0 calls connect and both ends progress, but no link comes about while rank 1 does not call connect");
  Message early(stage, {0, 1, 0, 0}, 100);
  if (!early.post_send()) return;  // it may want the RECV first
  stage.settle();
  stage.until([&] { return stage[1].connect(0) == TUTTI_OK; }, "T-6",
              "the other end never gets its link though the first has one");
  stage.until([&] { return early.receive_posted() || early.post_receive(); }, "T-20", "the first RECV is refused");
  stage.until([&] { return early.received(); }, "T-6",
              "what was sent before the receiver had asked for its link is lost");
}

// Both ask at each step, in several orders of the calls and of progress between them.
void both_ends_call(Bench& bench) {
  for (uint32_t order = 0; order < 16; ++order) {
    Stage stage(bench, {.connect = false});
    uint32_t round = 0;
    stage.until(
        [&] {
          for (uint32_t step = 0; step < 2; ++step) {
            const uint32_t rank = step ^ (order & 1);
            const tutti_status status = stage[rank].connect(1 - rank);
            require(status >= 0, "T-5", "connect returned {}: {} (both ends call, order {})", status_text(status),
                    last_error(), order);
            if (round < 3 && (order >> (1 + round) & 1)) stage[rank].progress();
          }
          ++round;
          return stage[0].links[1] && stage[1].links[0];
        },
        "T-6", fmt::format("both ends call connect at once and never get a link (order {})", order));
    exchange(stage, 0, 1, "T-6");
  }
}

void needs_pairs(Bench& bench) {
  if (!TUTTI_HAS(tutti_transport, bench.transport(), receive_pair))
    throw NotOffered{"it connects without pair messages: it has no receive_pair"};
}

// A refused pair message is sent again.
void full_mail(Bench& bench) {
  needs_pairs(bench);
  for (const uint32_t refusals : {1u, 7u}) {
    Stage stage(bench, {.nranks = 3, .connect = false});
    stage.mail.refusals = refusals;
    stage.until(
        [&] {
          bool all = true;
          for (uint32_t a = 0; a < 3; ++a)
            for (uint32_t b = 0; b < 3; ++b) all &= a == b || stage[a].connect(b) == TUTTI_OK;
          return all;
        },
        "T-4",
        fmt::format("the first {} pair messages found no room (TUTTI_AGAIN), and links never come about: try again "
                    "after progress",
                    refusals));
    exchange(stage, 0, 2, "T-4");
  }
}

// The pair messages by which two ranks connect.
std::vector<std::pair<uint32_t, Letter>> true_letters(Bench& bench) {
  needs_pairs(bench);
  Stage stage(bench);
  require(!stage.mail.sent.empty(), "T-4", "there is a receive_pair, and two ranks connect without a pair message");
  return {stage.mail.sent.begin(), stage.mail.sent.end()};
}

// Each in a stage of its own, since an error may end everything between the two.
void bad_pair_messages(Bench& bench) {
  for (const auto& [to, letter] : true_letters(bench)) {
    const std::string& right = letter.bytes;
    const auto refused = [&](const std::string& wrong, const std::string& what) {
      Stage stage(bench, {.nranks = 3, .connect = false});
      for (auto& rank : stage.ranks) rank->failures_expected = true;
      const uint32_t from = 1 - to;
      tutti_status status = stage[to].receive_pair(from, wrong);
      for (int i = 0; i < 50 && status >= 0 && !stage[to].links[from]; ++i) {
        status = stage[to].connect(from);
        stage[to].progress();
      }
      require(!stage[to].links[from], "T-7", "receive_pair of {} gave a link", what);
      require(status < 0, "T-7",
              "receive_pair of {} is taken for a message: check the bytes when they come, and refuse them", what);
    };
    for (const size_t length : {size_t{0}, size_t{1}, right.size() / 2, right.size() - 1})
      if (length < right.size())
        refused(right.substr(0, length), fmt::format("the first {} of {} bytes of a message", length, right.size()));
    if (right.size() < TUTTI_PAIR_BYTES) refused(right + '\0', "a message with one byte too many");
    refused(std::string(TUTTI_PAIR_BYTES, '\xff'), "4096 bytes of 0xff");
    refused(std::string(right.size(), '\0'), "as many zeros as a message has bytes");
  }
}

// Messages of which one bit is wrong: whatever comes of it, nothing breaks, and other peers can be reached.
void flipped_pair_messages(Bench& bench) {
  const auto letters = true_letters(bench);
  for (uint32_t turn = 0; turn < 24; ++turn) {
    auto [to, letter] = letters[turn % letters.size()];
    if (letter.bytes.empty()) continue;
    Stage stage(bench, {.nranks = 3, .connect = false});
    for (auto& rank : stage.ranks) rank->failures_expected = true;
    const uint64_t bit = (bench.seed * 7919 + turn * 2654435761u) % (letter.bytes.size() * 8);
    letter.bytes[bit / 8] = static_cast<char>(letter.bytes[bit / 8] ^ 1 << bit % 8);
    stage[to].receive_pair(1 - to, letter.bytes);
    for (int i = 0; i < 3; ++i) stage.progress();
    stage.until([&] { return (stage[2].connect(to) == TUTTI_OK) & (stage[to].connect(2) == TUTTI_OK); }, "T-7",
                fmt::format("after a pair message of rank {} of which bit {} was wrong, other peers are not reached",
                            1 - to, bit));
  }
}

// Those who reach a listener and were told nothing: they hold nobody up, and nothing of theirs is taken for a rank's.
void strangers(Bench& bench) {
  if (bench.caps().reach == TUTTI_REACH_PROCESS)
    throw NotOffered{"its reach is one process, whose threads have nothing to listen for"};
  Stage stage(bench, {.connect = false});
  std::vector<Stranger> visitors;
  const auto visit = [&] {
    std::vector<Listener> all = listeners();
    for (Listener& one : unix_listeners()) all.push_back(std::move(one));
    for (const Listener& one : all)
      for (uint32_t kind = 0; kind < Stranger::kinds && visitors.size() < 60; ++kind)
        visitors.emplace_back(one, kind, bench.seed);
  };
  visit();
  stage[0].connect(1);
  for (int i = 0; i < 3; ++i) stage.progress();
  visit();
  stage.until([&] { return (stage[0].connect(1) == TUTTI_OK) & (stage[1].connect(0) == TUTTI_OK); }, "T-8",
              fmt::format("{} strangers have connected to where endpoints listen, silent or with bytes that mean "
                          "nothing, and two ranks do not get a link any more",
                          visitors.size()));
  exchange(stage, 0, 1, "T-8");
}

// Without a secret anybody who reaches a listener could take part.
void listens_where_met(Bench& bench) {
  constexpr const char* met = "127.0.0.1";
  if (bench.caps().reach == TUTTI_REACH_PROCESS)
    throw NotOffered{"its reach is one process, whose threads have nothing to listen for"};
  const std::vector<Listener> before = listeners();
  Stage stage(bench, {.nranks = 0});
  for (const uint32_t rank : {0u, 1u}) {
    RankOptions options;
    options.rank = rank;
    options.communicator = bench.seed | 1;
    options.mail = &stage.mail;
    options.address = met;
    stage.ranks.push_back(std::make_unique<Rank>(bench, options));
  }
  stage.connect_all();
  for (const Listener& one : listeners())
    require(
        one.address == met ||
            std::any_of(before.begin(), before.end(), [&](const Listener& old) { return old.inode == one.inode; }),
        "T-8",
        "in a job without a secret, whose ranks have met by {} (tutti_endpoint_config.address), an endpoint listens "
        "at {}: whoever reaches that could take part",
        met, one.text);
  exchange(stage, 0, 1, "T-8");
}

// The lowest number that a new descriptor may get.
uint64_t next_descriptor() {
  const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (next < 0) throw CannotRun{"/dev/null cannot be opened"};
  close(next);
  return static_cast<uint64_t>(next);
}

// One of two ranks may open so many descriptors to connect: none, one, and so on until they get a link.
void short_of_descriptors(Bench& bench) {
  for (const uint32_t limited : {0u, 1u})
    for (uint64_t more = 0, linked = 0; linked == 0; ++more) {
      Stage stage(bench, {.nranks = 3, .connect = false});
      for (auto& rank : stage.ranks) rank->failures_expected = true;
      stage[limited].descriptor_limit = next_descriptor() + more;
      tutti_status status[] = {TUTTI_AGAIN, TUTTI_AGAIN};
      std::string why[2];
      const auto outcome = [&] {
        return fmt::format("while rank {} may open {} descriptors to connect, connect returns {} at rank 0{}{} and {} "
                           "at rank 1{}{}",
                           limited, more, status_text(status[0]), why[0].empty() ? "" : ": ", why[0],
                           status_text(status[1]), why[1].empty() ? "" : ": ", why[1]);
      };
      stage.until(
          [&] {
            for (const uint32_t rank : {0u, 1u}) {
              if (status[rank] != TUTTI_AGAIN) continue;
              status[rank] = stage[rank].connect(1 - rank);
              if (status[rank] < 0) why[rank] = last_error();
            }
            return status[0] != TUTTI_AGAIN && status[1] != TUTTI_AGAIN;
          },
          "T-44", [&] { return outcome() + ": an end that cannot connect must tell the other one"; });
      require(status[0] == status[1] && status[0] != TUTTI_PEER_FAILED, "T-44",
              "{}; expected one status for both, that of the end which cannot connect", outcome());
      stage[limited].descriptor_limit = 0;
      for (const uint32_t rank : {0u, 1u})
        for (const Event& e : stage[rank].events)
          require(e.kind != TUTTI_COMPLETION_PEER_FAILED, "T-44", "{}, and rank {} is told: {}", outcome(), rank,
                  e.data);
      linked = status[0] == TUTTI_OK;
      if (linked) exchange(stage, 0, 1, "T-44");
      stage.until([&] { return (stage[2].connect(limited) == TUTTI_OK) & (stage[limited].connect(2) == TUTTI_OK); },
                  "T-44", [&] { return outcome() + "; later, with descriptors, it and rank 2 do not connect"; });
      exchange(stage, limited, 2, "T-44");
      require(more < 200, "T-44", "{}", outcome());
    }
}

void many_communicators(Bench& bench) {
  constexpr uint32_t many = 6;
  std::vector<std::unique_ptr<Stage>> stages;
  for (uint32_t i = 0; i < many; ++i) stages.push_back(std::make_unique<Stage>(bench));
  std::vector<std::unique_ptr<Message>> messages;
  for (uint32_t i = 0; i < many; ++i)
    for (uint32_t k = 0; k < 2; ++k) {
      messages.push_back(std::make_unique<Message>(*stages[i], Label{k, 1 - k, i % 3, i * 100}, 64 + i));
      stages[i]->until([&] { return messages.back()->post_send(); }, "T-21", "a SEND is refused");
      messages.back()->post_receive();
    }
  // The last is aborted, the first loses a peer on purpose: the others go on.
  auto& aborted = *stages[many - 1];
  auto& given_up = *stages[0];
  messages.erase(messages.end() - 2, messages.end());
  messages.erase(messages.begin(), messages.begin() + 2);
  for (Stage* s : {&aborted, &given_up})
    for (auto& rank : s->ranks) rank->failures_expected = true;
  aborted[0].abort();
  if (bench.has_fail_peer()) given_up[0].fail_peer(1);
  for (uint32_t i = 1; i + 1 < many; ++i) {
    stages[i]->until([&] { return (*stages[i])[0].pending() + (*stages[i])[1].pending() == 0; }, "T-3",
                     "a communicator makes no progress after another one was aborted or lost a peer");
    for (auto& rank : stages[i]->ranks)
      require(rank->events.empty(), "T-3", "an endpoint was told what happened in another communicator: {}",
              rank->events.empty() ? "" : rank->events[0].data);
    exchange(*stages[i], 0, 1, "T-3");
  }
}

// Ids that have one half in common are two ids: the messages of neither communicator come to the other.
void alike_communicators(Bench& bench) {
  const uint64_t id = bench.seed * 0x9e3779b97f4a7c15u | 1;
  for (const uint64_t differs : {uint64_t{1} << 40, uint64_t{1} << 8}) {
    Stage one(bench, {.communicator = id}), other(bench, {.communicator = id ^ differs});
    const uint64_t sent[] = {1001, 2002};
    uint64_t got[] = {0, 0};
    Stage* const stages[] = {&one, &other};
    const auto post = [&](uint32_t k, bool sending) {
      Rank& rank = (*stages[k])[sending ? 0 : 1];
      Posted* posted = nullptr;
      stages[k]->until(
          [&] {
            posted = rank.post(sending ? rank.send(1, 0, &sent[k], 8) : rank.receive(0, 0, &got[k], 8));
            return posted != nullptr;
          },
          "T-21", "a transfer is refused");
      return posted;
    };
    const Posted* const awaited = post(1, false);
    post(0, true);
    one.settle();
    other.settle();
    require(!awaited->done, "T-3",
            "a message of the communicator {:#018x} came to the communicator {:#018x}: all 64 bits of communicator_id "
            "count",
            id, id ^ differs);
    post(0, false);
    post(1, true);
    for (const uint32_t k : {0u, 1u}) {
      stages[k]->drain("T-3");
      require(got[k] == sent[k], "T-3",
              "of two communicators whose ids differ in one bit a rank got the word {}, expected {}", got[k], sent[k]);
    }
  }
}

// Two endpoints of one domain at each of two ranks.
void one_domain(Bench& bench) {
  SharedDomain of(bench, 2, false);
  auto& stages = of.stages;
  for (auto& stage : stages) stage->connect_all();
  Message first(*stages[0], {0, 1, 0, 0}, 40), second(*stages[1], {0, 1, 0, 1}, 40);
  for (Message* m : {&second, &first}) {
    m->post_receive();
    stages[0]->until([&] { return m->post_send(); }, "T-21", "a SEND is refused");
  }
  for (int i = 0; i < 2; ++i)
    stages[i]->until([&] { return i ? second.received() && second.sent() : first.received() && first.sent(); }, "T-3",
                     "two communicators on one domain: a message of one does not arrive");
  stages[0].reset();
  exchange(*stages[1], 0, 1, "T-3");
}

// The endpoints of a family may share connections: each still has its own messages, and its end is its own.
void one_family(Bench& bench) {
  SharedDomain of(bench, 5, true);
  auto& stages = of.stages;
  // All at once: what comes for one is found while another is advanced.
  stages[0]->until(
      [&] {
        size_t missing = 0;
        for (auto& stage : stages) {
          missing += !stage->connect().empty();
          stage->progress();
        }
        return missing == 0;
      },
      "T-5", "endpoints of a family do not connect");
  for (auto& stage : stages) exchange(*stage, 0, 1, "T-43");
  const auto others_go_on = [&](const char* after) {
    for (auto& stage : stages) {
      if (!stage) continue;
      stage->settle();
      for (const auto& rank : stage->ranks) {
        const tutti_status linked = rank->connect(1 - rank->options.rank);
        require(linked == TUTTI_OK, "T-43",
                "{}, connect of an endpoint of the same family, which has the link, returned {}: {}", after,
                status_text(linked), last_error());
      }
      for (const auto& rank : stage->ranks)
        require(rank->events.empty(), "T-43", "{}, an endpoint of the same family was told: {}", after,
                rank->events.empty() ? "" : rank->events[0].data);
      exchange(*stage, 0, 1, "T-43");
      exchange(*stage, 1, 0, "T-43");
    }
  };
  for (const size_t ended : {1u, 3u})
    for (auto& rank : stages[ended]->ranks) rank->failures_expected = true;
  (*stages[1])[0].abort();
  stages[1]->settle();
  const std::unique_ptr<Stage> aborted = std::move(stages[1]);
  others_go_on("after an abort");
  if (bench.has_fail_peer()) (*stages[3])[1].fail_peer(0);
  stages[3]->settle();
  const std::unique_ptr<Stage> failed = std::move(stages[3]);
  others_go_on("after a peer was given up");
  stages[0].reset();
  others_go_on("after an endpoint was closed");
}

}  // namespace

std::vector<ContractCase> connection_cases() {
  return {
      {"connect-every-pair",
       "four ranks connect, each pair exchanges a message",
       {"T-3", "T-4", "T-5", "E-10", "T-13", "T-15", "T-17"},
       6,
       every_pair},
      {"connect-one-end-calls",
       "one end asks for its link first, the other later",
       {"T-5", "T-6", "T-15"},
       6,
       one_end_calls},
      {"connect-early-messages",
       "messages sent before the other end has its link",
       {"T-6", "T-20", "T-15"},
       5,
       early_messages},
      {"connect-both-ends-call",
       "both ends ask at once, in sixteen orders",
       {"T-5", "T-6", "T-15"},
       30,
       both_ends_call},
      {"connect-full-mail", "pair messages find no room at first", {"T-4", "T-5", "T-15"}, 8, full_mail},
      {"connect-bad-pair-messages",
       "truncated, long and senseless pair messages",
       {"T-4", "T-5", "T-7"},
       20,
       bad_pair_messages},
      {"connect-flipped-pair-messages", "pair messages with a wrong bit", {"T-7"}, 40, flipped_pair_messages},
      {"connect-strangers", "strangers connect to listeners", {"T-5", "T-8", "T-15"}, 20, strangers},
      {"connect-without-secret",
       "without a secret it listens only where the ranks have met",
       {"T-5", "T-8", "T-13", "T-15", "T-17", "T-21", "T-37"},
       20,
       listens_where_met},
      {"communicators-at-once",
       "six communicators, of which one is aborted and one loses a peer",
       {"T-3", "T-5", "T-15", "T-21"},
       30,
       many_communicators},
      {"alike-communicators", "communicators whose ids differ in one bit", {"T-3", "T-21"}, 8, alike_communicators},
      {"communicators-of-one-domain",
       "two communicators share a domain",
       {"T-3", "T-5", "T-15", "T-21"},
       8,
       one_domain},
      {"communicators-of-a-family",
       "five endpoints of each rank that may share connections",
       {"T-43", "T-3", "T-5", "T-21"},
       8,
       one_family},
      {"connect-short-of-descriptors",
       "one end may open no, one, two, ... descriptors to connect",
       {"T-44", "T-5", "T-15", "T-21", "T-32"},
       46,
       short_of_descriptors},
  };
}

}  // namespace tutti::conformance::contract
