// SPDX-License-Identifier: Apache-2.0
//
// wait_fd/1: sleeping instead of polling. (Two processes that wake each other are in process_cases.cpp.)
#include <fcntl.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "contract_case.hpp"
#include "shared_domain.hpp"

namespace tutti::conformance::contract {
namespace {

// wait_fd/1 of one rank.
struct Sleeper {
  const tutti_wait_fd* table;
  Rank& rank;
  int32_t fd = -1;
  Sleeper(Bench& bench, Rank& r) : table(bench.wait_fd()), rank(r) {
    const tutti_status status = call("get_fd", false, [&] { return table->get_fd(rank.endpoint, &fd); });
    require(status == TUTTI_OK, "W-1", "get_fd returned {}: {}", status_text(status), last_error());
    require(fd >= 0 && fcntl(fd, F_GETFD) >= 0, "W-1", "get_fd gave {}, which is no open descriptor", fd);
  }
  bool arm() const {
    const tutti_status status = call("arm", false, [&] { return table->arm(rank.endpoint); });
    require(status == TUTTI_OK || status == TUTTI_AGAIN, "W-4", "arm returned {}: {}", status_text(status),
            last_error());
    return status == TUTTI_OK;
  }
  void disarm() const {
    plain_call("disarm", false, [&] { table->disarm(rank.endpoint); });
  }
  bool readable(int milliseconds = 0) const {
    pollfd poll_fd{fd, POLLIN, 0};
    const int n = poll(&poll_fd, 1, milliseconds);
    require(!(poll_fd.revents & POLLNVAL), "W-1", "poll(2) does not take the descriptor {}: it is closed", fd);
    return n > 0;
  }
  // Arms a rank for which nothing is there to be done.
  void fall_asleep() const {
    bool armed = false;
    for (int i = 0; i < 2000; ++i) {
      armed = arm();
      if (armed) {
        if (!readable()) return;
        disarm();
      }
      for (int p = 0; p < 3; ++p) rank.progress();
    }
    broken(
        "W-4", "nothing happens, and after 2000 turns of arm and progress the rank still may not sleep: {}",
        armed ? "arm returns TUTTI_OK, but the descriptor is readable at once" : "arm goes on returning TUTTI_AGAIN");
  }
};

void descriptor(Bench& bench) {
  Stage stage(bench);
  Sleeper sleeper(bench, stage[0]);
  for (int i = 0; i < 3; ++i) {
    const Sleeper again(bench, stage[0]);
    require(again.fd == sleeper.fd, "W-1", "get_fd gave descriptor {} and then {}", sleeper.fd, again.fd);
    stage.settle();
  }
  sleeper.readable();
}

void quiet(Bench& bench) {
  Stage stage(bench, {.nranks = 3});
  uint64_t word = 0;
  Sleeper sleeper(bench, stage[0]);
  for (int turn = 0; turn < 3; ++turn) {
    if (turn == 1) stage[0].post(stage[0].receive(1, 0, &word, 8));  // waiting for somebody is no news
    stage.settle();
    sleeper.fall_asleep();
    require(!sleeper.readable(20), "W-4", "armed, and nothing happens: the descriptor becomes readable all the same");
    sleeper.disarm();
  }
}

// An event while rank 0 sleeps, and the record that it then finds.
struct Happening {
  const char* what;
  void (*prepare)(Stage& stage, uint64_t* word);
  void (*happen)(Stage& stage, uint64_t* word);
  bool (*found)(Stage& stage, uint64_t* word);
};

const Happening happenings[] = {
    {"a message for a posted RECV", [](Stage& s, uint64_t* w) { s[0].post(s[0].receive(1, 0, w, 8)); },
     [](Stage& s, uint64_t*) {
       static const uint64_t value = 42;
       s.until([&] { return s[1].post(s[1].send(0, 0, &value, 8)) != nullptr; }, "T-21", "a SEND is refused");
     },
     [](Stage& s, uint64_t* w) { return s[0].pending() == 0 && *w == 42; }},
    {"a control message", [](Stage&, uint64_t*) {}, [](Stage& s, uint64_t*) { s[1].send_control(0, "wake up"); },
     [](Stage& s, uint64_t*) { return !s[0].events.empty(); }},
    {"the RECV of a message that is too large to be buffered",
     [](Stage& s, uint64_t*) {
       static std::vector<uint8_t> large;
       large.assign(s.bench.caps().fragment_bytes, 7);
       for (int i = 0; i < 40 && s[0].post(s[0].send(1, 2, large.data(), large.size())); ++i) {
       }
       s[0].progress();
     },
     [](Stage& s, uint64_t*) {
       static std::vector<uint8_t> into;
       into.resize(s.bench.caps().fragment_bytes);
       for (int i = 0; i < 40 && s[1].post(s[1].receive(0, 2, into.data(), into.size())); ++i) {
       }
     },
     [](Stage& s, uint64_t*) { return s[0].pending() == 0; }},
    {"room for a SEND that was refused",
     [](Stage& s, uint64_t* w) {
       for (int i = 0; i < 20'000 && s[0].post(s[0].send(1, 2, w, 8)); ++i)
         if (i % 16 == 0) s[0].progress();
       s.settle();
       for (int i = 0; i < 20'000 && s[0].post(s[0].send(1, 2, w, 8)); ++i) s[0].progress();
     },
     [](Stage& s, uint64_t*) {
       static uint64_t into[32];
       for (uint64_t& word : into) s[1].post(s[1].receive(0, 2, &word, 8));
     },
     [](Stage& s, uint64_t* w) { return s[0].post(s[0].send(1, 2, w, 8)) != nullptr; }},
    {"the loss of a peer", [](Stage& s, uint64_t* w) { s[0].post(s[0].receive(2, 0, w, 8)); },
     [](Stage& s, uint64_t*) { s[2].close(); },
     [](Stage& s, uint64_t*) { return !s[0].events.empty() && s[0].pending() == 0; }},
};

// While others progress (and it does not) the sleeper's descriptor becomes readable, until what happened is found.
void wakes(Bench& bench) {
  for (const Happening& one : happenings) {
    Stage stage(bench, {.nranks = 3});
    for (auto& rank : stage.ranks) rank->failures_expected = true;
    uint64_t word = 0;
    Sleeper sleeper(bench, stage[0]);
    stage.settle();
    one.prepare(stage, &word);
    if (one.found(stage, &word)) continue;
    sleeper.fall_asleep();
    // The others alone: until() would progress the sleeper.
    Rank* const others[] = {&stage[1], &stage[2]};
    one.happen(stage, &word);
    const auto begin = std::chrono::steady_clock::now();
    bool armed = true;
    while (!one.found(stage, &word)) {
      for (Rank* other : others)
        if (other->endpoint) other->progress();
      const bool news = sleeper.readable(1);
      const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      require(news || waited < bench.patience + 2, "W-2",
              "the rank slept, {} came, and its descriptor did not become readable in {:.0f} s", one.what, waited);
      if (!news) continue;
      sleeper.disarm();
      for (int i = 0; i < 70; ++i) stage[0].progress();
      armed = false;
      while (!one.found(stage, &word) && !armed) {
        armed = sleeper.arm();
        if (!armed) {
          for (Rank* other : others)
            if (other->endpoint) other->progress();
          stage[0].progress();
        }
        require(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < 2 * bench.patience,
                "W-3", "{} came, arm goes on returning TUTTI_AGAIN and progress tells nothing", one.what);
      }
    }
  }
}

// The same, but it comes before arm.
void no_lost_wake_up(Bench& bench) {
  for (const Happening& one : happenings) {
    Stage stage(bench, {.nranks = 3});
    for (auto& rank : stage.ranks) rank->failures_expected = true;
    uint64_t word = 0;
    Sleeper sleeper(bench, stage[0]);
    stage.settle();
    one.prepare(stage, &word);
    if (one.found(stage, &word)) continue;
    sleeper.fall_asleep();
    sleeper.disarm();
    one.happen(stage, &word);
    for (int i = 0; i < 20; ++i)
      for (const uint32_t other : {1u, 2u})
        if (stage[other].endpoint) stage[other].progress();
    const auto begin = std::chrono::steady_clock::now();
    while (!one.found(stage, &word)) {
      if (sleeper.arm()) {
        require(sleeper.readable(static_cast<int>(bench.patience * 1000) + 2000), "W-3",
                "{} had come before arm, which returned TUTTI_OK all the same, and the descriptor stays unreadable: "
                "the rank "
                "sleeps through it",
                one.what);
        sleeper.disarm();
      }
      for (int i = 0; i < 70; ++i) stage[0].progress();
      for (const uint32_t other : {1u, 2u})
        if (stage[other].endpoint) stage[other].progress();
      require(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < 2 * bench.patience,
              "W-3", "{} came, arm goes on returning TUTTI_AGAIN and progress tells nothing", one.what);
    }
  }
}

void again_and_again(Bench& bench) {
  Stage stage(bench);
  Sleeper sleeper(bench, stage[0]);
  for (uint32_t k = 0; k < 6; ++k) {
    uint64_t word = 0, value = k + 1;
    Posted* receive = stage[0].post(stage[0].receive(1, 0, &word, 8));
    sleeper.fall_asleep();
    stage[1].post(stage[1].send(0, 0, &value, 8));
    for (int i = 0; i < 20; ++i) stage[1].progress();
    require(sleeper.readable(static_cast<int>(bench.patience * 1000) + 2000), k == 0 ? "W-2" : "W-5",
            "the {}. sleep of a rank: a message came and the descriptor did not become readable", k + 1);
    sleeper.disarm();
    stage.until([&] { return receive->done && stage[1].pending() == 0; }, "T-11", "a message after a sleep is lost");
    for (int i = 0; i < 70; ++i) stage[0].progress();
    bool clear = false;
    for (int i = 0; i < 50 && !clear; ++i) {
      const bool armed = sleeper.arm();
      clear = armed && !sleeper.readable();
      if (armed) sleeper.disarm();
      stage[0].progress();
    }
    require(clear, "W-5",
            "what woke the rank was progressed, and the descriptor is still readable after disarm and arm");
  }
}

// A connection that another rank begins wakes the one that is to accept it.
void connections_wake(Bench& bench) {
  Stage stage(bench, {.connect = false});
  Sleeper sleeper(bench, stage[0]);
  stage.settle();
  sleeper.fall_asleep();
  const auto begin = std::chrono::steady_clock::now();
  while (stage[1].connect(0) != TUTTI_OK) {
    stage[1].progress();
    if (stage.mail.has_any(0) || sleeper.readable()) {
      sleeper.disarm();
      for (int i = 0; i < 10; ++i) stage[0].progress();
      while (!sleeper.arm()) stage[0].progress();
    }
    const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    require(waited < bench.patience + 2, "W-2",
            "a rank that progresses only when its descriptor is readable or a pair message has come: another one's "
            "connect to it gets no link. A connection that waits to be accepted makes the descriptor readable, too");
  }
}

void spin(uint64_t times) {
  for (uint64_t i = 0; i < times; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
}

// Two threads: one arms and sleeps, the other sends at about the same instant, after random pauses. A look at the queue
// that another processor's write can pass is missed by some round.
void litmus(Bench& bench, uint64_t rounds) {
  constexpr uint64_t longest_pause = 3000;
  Stage stage(bench, {.lanes = 1});
  Sleeper sleeper(bench, stage[0]);
  std::atomic<uint64_t> posted{0}, received{0};
  std::atomic<bool> over{false};
  std::exception_ptr trouble;
  std::thread sender([&] {
    try {
      std::mt19937_64 random(bench.seed);
      for (uint64_t k = 1; k <= rounds && !over; ++k) {
        while (posted < k && !over) std::this_thread::yield();
        spin(random() % longest_pause);
        while (!over && !stage[1].post(stage[1].send(0, 0, &k, 8))) stage[1].progress();
        while (received < k && !over) stage[1].progress();
        while (stage[1].pending() && !over) stage[1].progress();
      }
    } catch (...) {
      trouble = std::current_exception();
      over = true;
    }
  });
  try {
    std::mt19937_64 random(bench.seed + 1);
    for (uint64_t k = 1; k <= rounds && !over; ++k) {
      uint64_t word = 0;
      Posted* receive = stage[0].post(stage[0].receive(1, 0, &word, 8));
      require(receive, "T-20", "a RECV is refused though none other is pending");
      posted = k;
      spin(random() % longest_pause);
      while (stage[0].pending() && !over) {
        if (sleeper.arm()) {
          require(sleeper.readable(static_cast<int>(bench.patience * 1000) + 2000) || over, "W-3",
                  "round {} of {}: a message was sent by another thread while the rank armed itself; arm returned "
                  "TUTTI_OK, and the descriptor stays unreadable. arm must set its word, and look once more after a full "
                  "fence; the sender must write, and read the word after a full fence",
                  k, rounds);
          sleeper.disarm();
        }
        stage[0].progress();
      }
      require(over || word == k, "T-15", "round {}: got {}", k, word);
      received = k;
    }
  } catch (...) {
    if (!trouble) trouble = std::current_exception();
    over = true;
  }
  sender.join();
  if (trouble) std::rethrow_exception(trouble);
}

// The endpoints of a family may share a descriptor. One's wake-up must not be lost when another, which
// sleeps and works at the same time, reads the descriptor first.
void family_sleeps(Bench& bench) {
  SharedDomain of(bench, 2, true);
  for (auto& stage : of.stages) stage->connect_all();
  for (const size_t woken : {0u, 1u}) {
    Stage &stage = *of.stages[woken], &other = *of.stages[1 - woken];
    const uint64_t value = 42;
    uint64_t word = 0;
    stage[0].post(stage[0].receive(1, 0, &word, 8));
    for (auto& each : of.stages) each->settle();
    const Sleeper sleeper(bench, stage[0]), bystander(bench, other[0]);
    sleeper.fall_asleep();
    bystander.fall_asleep();
    stage.until([&] { return stage[1].post(stage[1].send(0, 0, &value, 8)) != nullptr; }, "T-21", "a SEND is refused");
    for (int i = 0; i < 200; ++i) stage[1].progress();
    for (int turn = 0; turn < 3; ++turn) {
      bystander.disarm();
      for (int i = 0; i < 2000; ++i) other[0].progress();
      bystander.arm();
    }
    require(sleeper.readable(1000), "T-43",
            "a message came for an endpoint that sleeps, and its descriptor is not readable: another endpoint of the "
            "family, which was awake, took the wake-up");
    sleeper.disarm();
    bystander.disarm();
    stage.until([&] { return stage[0].pending() == 0; }, "T-11", "the message does not arrive");
    require(word == value, "T-15", "the word {} arrived, expected {}", word, value);
  }
}
void short_litmus(Bench& bench) { litmus(bench, 4000); }
void long_litmus(Bench& bench) { litmus(bench, 200'000); }

}  // namespace

std::vector<ContractCase> sleep_cases() {
  return {
      {"sleep-descriptor", "get_fd", {"W-1"}, 3, descriptor},
      {"sleep-connect", "a connection wakes", {"W-1", "W-2", "W-4"}, 10, connections_wake},
      {"sleep-wakes", "messages, credit and losses wake", {"W-1", "W-2", "W-3", "W-4", "T-21"}, 40, wakes},
      {"sleep-no-lost-wake-up",
       "what came before arm is not slept through",
       {"W-1", "W-3", "W-4", "T-21"},
       15,
       no_lost_wake_up},
      {"sleep-again", "many sleeps one after another", {"W-1", "W-2", "W-4", "W-5"}, 20, again_and_again},
      {"sleep-in-a-family", "two endpoints that may share a descriptor", {"T-43", "W-1", "W-4"}, 45, family_sleeps},
      {"sleep-litmus",
       "4,000 messages that are sent while a rank arms itself",
       {"W-1", "W-3", "W-4", "T-15", "T-20"},
       120,
       short_litmus},
      {"sleep-litmus-long",
       "200,000 of them",
       {"W-1", "W-3", "W-4", "T-15", "T-20"},
       5002,
       long_litmus},
      {"sleep-quiet", "a quiet endpoint sleeps", {"W-1", "W-4", "T-20"}, 80, quiet},
  };
}

}  // namespace tutti::conformance::contract
