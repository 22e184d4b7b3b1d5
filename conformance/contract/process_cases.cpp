// SPDX-License-Identifier: Apache-2.0
//
// Ranks in processes of their own: reach, and peers that die.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <thread>

#include "contract_case.hpp"
#include "family.hpp"

namespace tutti::conformance::contract {
namespace {

// `rank` (alone in its stage) sends one message, or receives and judges it.
void send_one(Stage& stage, uint32_t to, const Label& label, uint64_t bytes, const char* clause) {
  std::vector<uint8_t> data(bytes);
  fill(data.data(), bytes, stage.bench.seed, label);
  Posted* posted = nullptr;
  stage.until(
      [&] {
        if (!posted) posted = stage[0].post(stage[0].send(to, label.lane, data.data(), bytes));
        return posted && posted->done;
      },
      clause, fmt::format("a SEND of {} bytes to rank {}'s process does not complete", bytes, to));
}

void receive_one(Stage& stage, uint32_t from, const Label& label, uint64_t bytes, const char* clause) {
  GuardedMemory data(bytes);
  Posted* posted = nullptr;
  stage.until(
      [&] {
        if (!posted) posted = stage[0].post(stage[0].receive(from, label.lane, data.data(), bytes));
        return posted && posted->done;
      },
      clause, fmt::format("a RECV of {} bytes from rank {}'s process does not complete", bytes, from));
  require(posted->status == TUTTI_OK, clause, "a RECV from rank {}'s process ended with {}", from,
          status_text(posted->status));
  std::vector<uint8_t> expected(bytes);
  fill(expected.data(), bytes, stage.bench.seed, label);
  const std::string difference = first_difference(expected.data(), data.data(), bytes);
  require(difference.empty(), "T-15", "a message of {} bytes from rank {}'s process: {}", bytes, from, difference);
}

void reach(Bench& bench) {
  Family::run(bench, 2, [&](Family& family, uint32_t rank) {
    Stage stage(bench, {.nranks = 0});
    if (bench.caps().reach >= TUTTI_REACH_HOST) {
      family.open(stage, rank);
      return family.meet(&stage);
    }
    family.open_unconnected(stage, rank);
    tutti_status status = TUTTI_AGAIN;
    stage[0].failures_expected = true;
    stage.until(
        [&] {
          status = stage[0].connect(1 - rank);
          return status != TUTTI_AGAIN;
        },
        "T-37",
        "reach is TUTTI_REACH_PROCESS, and connect to a rank of another process goes on returning TUTTI_AGAIN instead "
        "of refusing it");
    require(status != TUTTI_OK, "T-37",
            "reach is TUTTI_REACH_PROCESS, and ranks of two processes get a link all the same");
    family.meet(&stage);
  });
}

void exchange_between_processes(Bench& bench) {
  Family::run(bench, 3, [&](Family& family, uint32_t rank) {
    needs_processes(bench);
    Stage stage(bench, {.nranks = 0});
    family.open(stage, rank);
    uint32_t k = 0;
    for (const uint64_t bytes : {uint64_t{8}, uint64_t{0}, uint64_t{100}, uint64_t{5000}, bench.caps().fragment_bytes})
      for (uint32_t from = 0; from < 3; ++from)
        for (uint32_t to = 0; to < 3; ++to, ++k) {
          const Label label{from, to, k % 3, k};
          if (from == to) continue;
          if (rank == from) send_one(stage, to, label, bytes, "T-37");
          if (rank == to) receive_one(stage, from, label, bytes, "T-37");
        }
    family.meet(&stage);
  });
}

// Rank 1 is killed with transfers pending (or without); rank 0 and rank 2 go on.
void killed(Bench& bench, bool with_pending) {
  Family::run(bench, 3, [&](Family& family, uint32_t rank) {
    needs_processes(bench);
    Stage stage(bench, {.nranks = 0});
    family.open(stage, rank);
    stage[0].failures_expected = true;
    std::vector<Posted*> pending;
    std::vector<std::unique_ptr<GuardedMemory>> memory;
    if (with_pending && rank == 0) {
      for (uint32_t lane = 0; lane < 3; ++lane) {
        auto& m = memory.emplace_back(std::make_unique<GuardedMemory>(100));
        if (Posted* p = stage[0].post(stage[0].receive(1, lane, m->data(), 100))) pending.push_back(p);
      }
      for (uint32_t k = 0; k < 12; ++k) {
        auto& m = memory.emplace_back(std::make_unique<GuardedMemory>(bench.caps().fragment_bytes));
        if (Posted* p = stage[0].post(stage[0].send(1, 1, m->data(), m->bytes()))) pending.push_back(p);
      }
    }
    if (rank == 0) stage.settle();
    if (rank == 1) family.expect_death(1);
    if (rank == 1) raise(SIGKILL);
    const auto told = [&] {
      return std::count_if(stage[0].events.begin(), stage[0].events.end(),
                           [](const Event& e) { return e.kind == TUTTI_COMPLETION_PEER_FAILED && e.peer == 1; });
    };
    if (rank == 0)
      stage.until(
          [&] { return std::all_of(pending.begin(), pending.end(), [](Posted* p) { return p->done; }); }, "T-32",
          [&] {
            return fmt::format("the process of rank 1 was killed and {} of {} pending transfers with it never complete",
                               std::count_if(pending.begin(), pending.end(), [](Posted* p) { return !p->done; }),
                               pending.size());
          });
    for (const Posted* p : pending)
      require(p->status == TUTTI_PEER_FAILED || (p->transfer.kind == TUTTI_TRANSFER_SEND && p->status == TUTTI_OK),
              "T-32", "the process of rank 1 was killed and a pending transfer with it completed with {}",
              status_text(p->status));
    stage.until([&] { return told() > 0; }, "T-32",
                fmt::format("the process of rank 1 was killed and rank {} is not told (a PEER_FAILED record)", rank));
    for (const Event& e : stage[0].events)
      require(e.kind != TUTTI_COMPLETION_PEER_FAILED || e.peer == 1, "T-32", "rank 1 was killed, rank {} was told lost",
              e.peer);
    uint64_t word = 0;
    for (const bool sending : {true, false}) {
      tutti_status status = TUTTI_OK;
      Posted* p = stage[0].post(sending ? stage[0].send(1, 0, &word, 8) : stage[0].receive(1, 0, &word, 8), &status);
      if (p)
        stage.until([&] { return p->done; }, "T-32", "a transfer with a lost peer was taken and does not complete");
      require(p ? p->status == TUTTI_PEER_FAILED : status == TUTTI_PEER_FAILED, "T-32",
              "a {} with a lost peer was answered with {}, expected {}", sending ? "SEND" : "RECV",
              status_text(p ? p->status : status), status_text(TUTTI_PEER_FAILED));
    }
    stage.settle();
    require(told() == 1, "T-32", "the loss of rank 1 was told {} times", told());
    for (auto& m : memory) m->forbid("T-32", "the memory of a transfer that had ended with its peer");
    for (uint32_t k = 0; k < 4; ++k) {
      if (rank == 0) send_one(stage, 2, {0, 2, 0, k}, 3000, "T-32"), receive_one(stage, 2, {2, 0, 1, k}, 30, "T-32");
      if (rank == 2) receive_one(stage, 0, {0, 2, 0, k}, 3000, "T-32"), send_one(stage, 0, {2, 0, 1, k}, 30, "T-32");
    }
    family.meet(&stage);
  });
}
void killed_with_pending(Bench& bench) { killed(bench, true); }
void killed_idle(Bench& bench) { killed(bench, false); }

// Each process sleeps on its descriptor while it waits for the other's next message.
void sleeping_processes(Bench& bench) {
  Family::run(bench, 2, [&](Family& family, uint32_t rank) {
    needs_processes(bench);
    const tutti_wait_fd* w = bench.wait_fd();
    Stage stage(bench, {.nranks = 0});
    family.open(stage, rank);
    int32_t fd = -1;
    call("get_fd", false, [&] { return w->get_fd(stage[0].endpoint, &fd); });
    for (uint32_t k = 0; k < 30; ++k) {
      uint64_t word = 1000 + k;
      const bool late = k % 5 == 0;  // the message comes when the receiver sleeps, else at any time
      if (k % 2 == rank) {
        if (late) std::this_thread::sleep_for(std::chrono::milliseconds(3));
        send_one(stage, 1 - rank, {rank, 1 - rank, 0, k}, 8, "W-2");
        continue;
      }
      Posted* p = stage[0].post(stage[0].receive(1 - rank, 0, &word, 8));
      require(p, "T-20", "a RECV is refused");
      stage[0].progress();
      for (int naps = 0; !p->done; ++naps) {
        if (call("arm", false, [&] { return w->arm(stage[0].endpoint); }) == TUTTI_OK) {
          pollfd poll_fd{fd, POLLIN, 0};
          require(
              poll(&poll_fd, 1, static_cast<int>(bench.patience * 1000) + 2000) > 0, late ? "W-2" : "W-3",
              "rank {} slept on its descriptor, rank {}'s process sent a message {}, and the descriptor did not become "
              "readable",
              rank, 1 - rank, late ? "3 ms later" : "at about the same time");
          plain_call("disarm", false, [&] { w->disarm(stage[0].endpoint); });
        }
        stage[0].progress();
        require(naps < 100'000, "W-3", "arm goes on returning TUTTI_AGAIN and progress tells nothing");
      }
    }
    family.meet(&stage);
  });
}

}  // namespace

std::vector<ContractCase> process_cases() {
  return {
      {"reach", "ranks in two processes", {"T-37"}, 13, reach},
      {"processes-exchange", "three processes exchange messages", {"T-37", "T-15"}, 25, exchange_between_processes},
      {"peer-killed-idle",
       "a peer's process is killed while nothing is pending",
       {"T-32", "T-37", "T-15"},
       14,
       killed_idle},
      {"peer-killed",
       "a peer's process is killed while transfers are pending",
       {"T-32", "T-37", "T-15"},
       14,
       killed_with_pending},
      {"sleeping-processes",
       "two processes sleep and wake each other",
       {"W-2", "W-3", "T-37", "T-20"},
       130,  // after sleep-litmus, whose message says more
       sleeping_processes},
  };
}

}  // namespace tutti::conformance::contract
