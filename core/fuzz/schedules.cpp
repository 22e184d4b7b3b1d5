// SPDX-License-Identifier: Apache-2.0
//
// Schedules as a plugin emits them, anything at all: refused when they are built, or else every user of schedules copes
// with them. The verifier ends with a verdict, the simulator with a number; what is bound stays inside of its buffers;
// and what the verifier has proved gives the right results in an executor that shares nothing with it.
#include <tutti/schedule.h>

#include <cmath>
#include <memory>

#include "../schedule/tests/interpreter.hpp"
#include "base/failure.hpp"
#include "engine/plan/plan.hpp"
#include "fuzz_input.hpp"

using namespace tutti;

namespace {

constexpr uint32_t kMostRanks = 4, kMostSteps = 48;

// A byte as a number: small ones as they are, 255 as the largest.
uint32_t number(FuzzInput& input) {
  const uint8_t byte = input.byte();
  return byte == 255 ? UINT32_MAX : byte;
}

tutti_span span(FuzzInput& input) {
  const uint32_t buffer = number(input), first = number(input), chunks = number(input);
  return {buffer, first, chunks, 0};
}

// The calls of the sink that one rank's schedule() makes.
struct Script {
  std::vector<tutti_cut> cuts;
  std::vector<tutti_extent> scratch;
  uint32_t copies = 0;
  uint64_t flags = 0;
  struct Said {
    uint32_t lane;
    Step step;
  };
  std::vector<Said> steps;

  explicit Script(FuzzInput& input) {
    for (uint8_t n = input.byte() % 9; n > 0; --n) {
      const uint32_t p = number(input), q = number(input);
      cuts.push_back({p, q});
    }
    for (uint8_t n = input.byte() % 9; n > 0; --n) {
      const uint32_t block_class = number(input), piece = number(input);
      scratch.push_back({block_class, piece});
    }
    copies = number(input);
    flags = number(input);
    for (uint8_t n = input.byte() % (kMostSteps + 1); n > 0; --n) {
      Said& said = steps.emplace_back();
      said.lane = number(input);
      tutti_step& op = said.step.op;
      op.kind = number(input);
      op.flags = number(input);
      op.peer = number(input);
      op.dependency_lane = number(input);
      op.dependency_step = number(input);
      op.dst = span(input);
      op.src = span(input);
      for (uint8_t sources = input.byte() % 5; sources > 0; --sources) said.step.sources.push_back(span(input));
      op.sources = static_cast<uint32_t>(said.step.sources.size());
    }
  }

  tutti_status say(const tutti_schedule_sink& sink) const {
    if (!cuts.empty()) (void)sink.set_cuts(sink.self, cuts.data(), static_cast<uint32_t>(cuts.size()));
    if (!scratch.empty())
      (void)sink.set_scratch(sink.self, scratch.data(), static_cast<uint32_t>(scratch.size()), copies);
    if (flags) (void)sink.set_flags(sink.self, flags);
    for (const Said& said : steps)
      (void)sink.add_step(sink.self, said.lane, &said.step.op,
                          said.step.sources.empty() ? nullptr : said.step.sources.data());
    return TUTTI_OK;
  }
};

tutti_status supports(void*, const tutti_query*) { return TUTTI_OK; }
tutti_status schedule(void* self, const tutti_query* query, const tutti_schedule_sink* sink) {
  return (*static_cast<std::vector<Script>*>(self))[query->rank].say(*sink);
}

// The executor stands on this: operands lie in their buffers, links and dependencies exist.
void check_plan(const core::Plan& plan, const std::vector<core::Link>& links) {
  const auto elements = [&](uint32_t buffer) {
    const uint64_t bytes = buffer == TUTTI_BUFFER_IN    ? plan.in_bytes
                           : buffer == TUTTI_BUFFER_OUT ? plan.out_bytes
                                                        : plan.scratch.bytes;
    return bytes / plan.element_bytes;
  };
  const auto lies_inside = [&](const core::Operand& o) {
    if (o.length == 0) return true;
    if (o.buffer == TUTTI_BUFFER_SCRATCH && plan.scratch.copies)
      return o.chunk < plan.scratch.slots.size() && plan.scratch.slots[o.chunk] <= plan.scratch.copy_bytes;
    return o.first <= elements(o.buffer) && o.length <= elements(o.buffer) - o.first;
  };
  for (const core::Operand& source : plan.sources) FUZZ_CHECK(lies_inside(source));
  for (const auto& lane : plan.lanes)
    for (const core::BoundStep& step : lane) {
      FUZZ_CHECK(lies_inside(step.dst) && lies_inside(step.src));
      FUZZ_CHECK(uint64_t{step.first_source} + step.sources <= plan.sources.size());
      for (const core::Link* link : {step.out, step.in})
        FUZZ_CHECK(!link || (link >= links.data() && link < links.data() + links.size()));
      FUZZ_CHECK(
          step.dependency_lane == TUTTI_NO_DEPENDENCY ||
          (step.dependency_lane < plan.lanes.size() && step.dependency_step < plan.lanes[step.dependency_lane].size()));
    }
}

void bind_all(const Problem& problem, const std::vector<Schedule>& schedules, uint64_t count, uint64_t slices) {
  static tutti_transport api = [] {
    tutti_transport table{};
    table.name = "fuzz";
    return table;
  }();
  static core::Port port = [] {
    core::Port made;
    made.api = &api;
    return made;
  }();
  std::vector<core::Link> links(problem.nranks);
  for (core::Link& link : links) link.port = &port;
  for (uint32_t rank = 0; rank < problem.nranks; ++rank) {
    core::Shape shape;
    shape.count = count;
    shape.collective = problem.collective;
    shape.dtype = TUTTI_FLOAT32;
    shape.op = is_reducing(problem.collective) ? TUTTI_SUM : 0;
    shape.root = problem.root;
    shape.in_place = problem.in_place[rank];
    const uint64_t of = schedules[rank].sliced() ? slices : 1;
    check_plan(core::bind_plan(schedules[rank], shape, of, problem.nranks, rank, links), links);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  FuzzInput input(data, bytes);
  Problem problem;
  problem.collective = number(input);
  problem.nranks = 1 + input.byte() % kMostRanks;
  problem.root = number(input);
  problem.lanes = 1 + input.byte() % 4;
  const uint8_t in_place = input.byte();
  for (uint32_t r = 0; r < problem.nranks; ++r) problem.in_place.push_back(in_place >> r & 1);
  const uint64_t count = input.flag() ? input.take<uint64_t>() >> 20 : input.byte();
  const uint64_t slices = 1 + input.byte() % 5;
  std::vector<Script> scripts;
  for (uint32_t r = 0; r < problem.nranks; ++r) scripts.emplace_back(input);

  tutti_algorithm algorithm{};
  algorithm.struct_size = sizeof algorithm;
  algorithm.self = &scripts;
  algorithm.name = "fuzz";
  algorithm.summary = "";
  algorithm.collectives = ~uint64_t{0};
  algorithm.supports = supports;
  algorithm.schedule = schedule;

  std::vector<Schedule> schedules;
  std::string error;
  if (build_schedules(algorithm, problem, &schedules, &error) != TUTTI_OK) {
    FUZZ_CHECK(!error.empty());
    return 0;
  }
  bind_all(problem, schedules, count, slices);
  for (const Schedule& s : schedules)
    for (const auto& lane : s.lanes)
      for (const Step& step : lane) FUZZ_CHECK(!describe(step).empty());
  const Proof proof = verify(problem, schedules);
  FUZZ_CHECK(proof.ok() == proof.error.empty());
  CostModel model;
  model.link = [](uint32_t, uint32_t) { return LinkCost{1e-6, 1e-9}; };
  const double seconds = simulate(problem, schedules, count * 4, 4, slices, model);
  FUZZ_CHECK(seconds >= 0 && (!proof.ok() || std::isfinite(seconds)));
  if (!proof.ok()) return 0;
  const hand::Case proved{problem, schedules};
  FUZZ_CHECK(hand::interpret(proved, 1, hand::Pace::free, 1).empty());
  if (schedules[0].sliced()) FUZZ_CHECK(hand::interpret(proved, 2, hand::Pace::free, 2).empty());
  FUZZ_CHECK(hand::interpret(proved, 1, hand::Pace::strict, 3).empty());
  return 0;
}
