// SPDX-License-Identifier: Apache-2.0
//
// The proof suite against algorithms that break their contract: real ones, seen through a table that falsifies them.
#include <gtest/gtest.h>
#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <functional>

#include "proofs/proofs.hpp"

namespace tutti::conformance {
namespace {

constexpr uint32_t most = 9;

struct Falsified {
  const tutti_algorithm* original = nullptr;
  std::function<tutti_status(const tutti_query&)> supports;
  std::function<bool(const tutti_query&, uint32_t lane, tutti_step&)> keep;  // false: the step is dropped
  tutti_algorithm table{};

  explicit Falsified(const char* name) {
    std::string error;
    original = find_algorithm(name, &error);
    if (!original) throw std::runtime_error(error);
    table = *original;
    table.self = this;
    table.supports = [](void* self, const tutti_query* q) {
      auto& f = *static_cast<Falsified*>(self);
      return f.supports ? f.supports(*q) : f.original->supports(f.original->self, q);
    };
    table.schedule = [](void* self, const tutti_query* q, const tutti_schedule_sink* sink) {
      auto& f = *static_cast<Falsified*>(self);
      Relay relay{&f, q, sink};
      tutti_schedule_sink between = *sink;
      between.self = &relay;
      between.set_cuts = [](void* r, const tutti_cut* cuts, uint32_t n) {
        return to(r)->set_cuts(to(r)->self, cuts, n);
      };
      between.set_scratch = [](void* r, const tutti_extent* chunks, uint32_t n, uint32_t copies) {
        return to(r)->set_scratch(to(r)->self, chunks, n, copies);
      };
      between.set_flags = [](void* r, uint64_t flags) { return to(r)->set_flags(to(r)->self, flags); };
      between.add_step = [](void* r, uint32_t lane, const tutti_step* step, const tutti_span* sources) {
        const Relay& relay_ = *static_cast<Relay*>(r);
        tutti_step copy = *step;
        if (relay_.falsified->keep && !relay_.falsified->keep(*relay_.query, lane, copy)) return tutti_status{TUTTI_OK};
        return to(r)->add_step(to(r)->self, lane, &copy, sources);
      };
      return f.original->schedule(f.original->self, q, &between);
    };
  }

 private:
  struct Relay {
    Falsified* falsified;
    const tutti_query* query;
    const tutti_schedule_sink* sink;
  };
  static const tutti_schedule_sink* to(void* relay) { return static_cast<Relay*>(relay)->sink; }
};

void expect_fail(const Falsified& f, const char* says, const char* clause) {
  const Outcome outcome = prove(f.table, TUTTI_ALL_REDUCE, most);
  EXPECT_EQ(outcome.verdict, Verdict::fail);
  EXPECT_NE(outcome.message.find(says), std::string::npos) << outcome.message;
  EXPECT_EQ(outcome.clause, clause) << outcome.message;
}

TEST(Proofs, AnHonestAlgorithmPasses) {
  const Outcome outcome = prove(Falsified("ring").table, TUTTI_ALL_REDUCE, most);
  EXPECT_EQ(outcome.verdict, Verdict::pass) << outcome.message;
  EXPECT_EQ(outcome.message, "");
}

TEST(Proofs, ADroppedStepIsFound) {
  Falsified f("ring");
  int step = 0;
  f.keep = [&](const tutti_query& q, uint32_t, tutti_step& s) {
    if (q.nranks != 7 || q.rank != 3) return true;
    return !(s.kind == TUTTI_STEP_SEND && step++ % 12 == 4);
  };
  expect_fail(f, "all_reduce on 7 ranks", "A-10");
}

// A fault that shows on uneven hosts only is found there, and the message says where ranks were.
TEST(Proofs, AFaultOfUnevenHostsIsFound) {
  Falsified f("ring");
  f.keep = [](const tutti_query& q, uint32_t, tutti_step& s) {
    const auto on_first = std::count(q.host_of_rank, q.host_of_rank + q.nranks, 0u);
    const bool alike = on_first == q.nranks || on_first == (q.nranks + 1) / 2;
    if (q.rank == 1 && !alike) s.flags &= ~uint32_t{TUTTI_STEP_FINAL};
    return true;
  };
  expect_fail(f, " hosts (0 ", "A-15");
}

TEST(Proofs, AMissingFinalIsFound) {
  Falsified f("tree");
  f.keep = [](const tutti_query&, uint32_t, tutti_step& s) {
    s.flags &= ~uint32_t{TUTTI_STEP_FINAL};
    return true;
  };
  expect_fail(f, "scaling", "A-15");
}

TEST(Proofs, AnswersThatDependOnTheRankAreFound) {
  Falsified f("ring");
  f.supports = [](const tutti_query& q) -> tutti_status {
    return q.nranks == 4 && q.rank == 3 ? TUTTI_NOT_SUPPORTED : TUTTI_OK;
  };
  expect_fail(f, "must not depend on rank or in-place", "A-4");
}

TEST(Proofs, ARefusalWithoutReasonIsFound) {
  Falsified f("ring");
  f.supports = [](const tutti_query& q) -> tutti_status { return q.nranks == 5 ? TUTTI_NOT_SUPPORTED : TUTTI_OK; };
  expect_fail(f, "without a reason", "A-2");
}

TEST(Proofs, SchedulesThatChangeAreFound) {
  Falsified f("ring");
  int calls = 0;
  f.keep = [&](const tutti_query& q, uint32_t, tutti_step& s) {
    if (q.nranks == 6 && s.kind == TUTTI_STEP_RECV_REDUCE && ++calls > 30) s.flags ^= TUTTI_STEP_INCOMING_LEFT;
    return true;
  };
  expect_fail(f, "must be a pure function", "A-6");
}

}  // namespace
}  // namespace tutti::conformance
