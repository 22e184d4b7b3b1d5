// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/planner.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include "base/failure.hpp"
#include "base/hash.hpp"
#include "schedule/stream_order.hpp"

namespace tutti::core {
namespace {

// Levels that an algorithm does not give are computed from all ranks' schedules, up to so many ranks: the time grows
// with the square of the ranks.
constexpr uint32_t most_ranks_without_levels = 256;

void require(tutti_status status, const tutti_algorithm& algorithm, const std::string& error) {
  if (status >= 0) return;
  const std::string why = take_plugin_error();
  throw Failure(status, fmt::format("algorithm {}: {}{}{}", algorithm.name, error, why.empty() ? "" : ": ", why));
}

// One rank's schedule with levels, which come from all ranks' schedules in both forms: all ranks make these alike.
Schedule with_levels(const tutti_algorithm& algorithm, Problem problem, bool in_place, uint32_t rank) {
  if (problem.nranks > most_ranks_without_levels)
    throw Failure(TUTTI_NOT_SUPPORTED,
                  fmt::format("algorithm {} gives its steps no levels, and without them device memory is served up to "
                              "{} ranks, not {}: choose another (TUTTI_ALGO), or have it give levels",
                              algorithm.name, most_ranks_without_levels, problem.nranks));
  std::vector<Schedule> forms[2];
  std::string error;
  for (const bool form : {false, true}) {
    problem.in_place.assign(problem.nranks, form && has_form_in_place(problem.collective));
    require(build_schedules(algorithm, problem, &forms[form], &error), algorithm, error);
  }
  problem.in_place.clear();
  if (error = give_levels(problem, forms); !error.empty()) require(TUTTI_INTERNAL, algorithm, error);
  return std::move(forms[in_place][rank]);
}

}  // namespace

Plan Planner::plan(const Shape& shape, bool on_device, uint64_t uncut, Schedule& schedule) {
  const UserOperator* user = operators->find(shape.op);
  const Candidate choice = selector->choose(shape, on_device, user && !user->commutative);
  if (choice.native) {
    Plan plan = native_plan(*choice.native, shape, nranks, rank);
    plan.common_hash = hash_text(fmt::format("collective {}", plan.algorithm)) ^ shape.algorithms;
    return plan;
  }
  const tutti_algorithm& algorithm = *choice.algorithm;
  Problem problem = selector->problem(algorithm, shape);
  const auto key = std::make_tuple(&algorithm, problem.collective, problem.root, problem.block_bytes, shape.algorithms);
  if (verifies && !proved.contains(key)) {
    if (const Proof proof = verify_algorithm(algorithm, problem); !proof.ok())
      throw Failure(TUTTI_INTERNAL,
                    fmt::format("TUTTI_VERIFY: algorithm {} is wrong: {}", algorithm.name, proof.error));
    proved.insert(key);
  }
  problem.in_place.assign(nranks, shape.in_place != 0);
  std::string error;
  require(build_schedule(algorithm, make_query(problem, rank), &schedule, &error), algorithm, error);
  const uint64_t hash = schedule_hash(schedule);  // of what the algorithm gave
  if (on_device && !schedule.has_levels()) schedule = with_levels(algorithm, problem, shape.in_place != 0, rank);
  const uint64_t slices = choice.cut ? selector->slices_of(schedule, shape, uncut) : 1;
  Plan plan = bind_plan(schedule, shape, slices, nranks, rank, *links, user);
  plan.algorithm = algorithm.name;
  plan.schedule_hash = hash;
  plan.common_hash =
      hash_text(fmt::format("{} in {} slices{}", algorithm.name, slices, on_device ? " on device memory" : "")) ^
      shape.algorithms;
  plan.unequal.way_hash = plan.common_hash;
  return plan;
}

}  // namespace tutti::core
