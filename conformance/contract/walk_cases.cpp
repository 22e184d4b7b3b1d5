// SPDX-License-Identifier: Apache-2.0
//
// Random walks over the whole interface, beside an independent model (walk/).
#include "contract_case.hpp"
#include "usage.hpp"
#include "walk/trial.hpp"

namespace tutti::conformance::contract {
namespace {

void walks(Bench& bench, Walk::Way way, uint32_t many, uint32_t steps, bool settings = false) {
  for (uint32_t i = 0; i < many; ++i) {
    const uint64_t seed = bench.seed * 0x9e3779b97f4a7c15 + i * 1000 + static_cast<uint32_t>(way) + 100 * settings;
    Walk walk = draw_walk(seed, way, steps, settings);
    Finding finding = try_walk(bench, walk, bench.patience);
    if (finding.verdict.empty()) continue;
    if (!finding.is_bad()) throw_finding(finding);
    const size_t drawn = walk.steps.size();
    shrink_walk(bench, walk, finding, 12);
    finding.text += fmt::format("\nThe smallest part of walk {} that shows it has {} of {} steps. {}", i,
                                walk.steps.size(), drawn, text(walk));
    throw_finding(finding);
  }
}

void in_one_thread(Bench& bench) { walks(bench, Walk::Way::one_thread, 12, 160); }
void in_threads(Bench& bench) { walks(bench, Walk::Way::threads, 6, 300); }
void in_processes(Bench& bench) { walks(bench, Walk::Way::processes, 8, 300); }
void with_settings(Bench& bench) {
  walks(bench, Walk::Way::one_thread, 16, 120, true);
  walks(bench, Walk::Way::processes, 6, 160, true);
}
void long_in_one_thread(Bench& bench) { walks(bench, Walk::Way::one_thread, 80, 400); }
void long_in_threads(Bench& bench) { walks(bench, Walk::Way::threads, 40, 800); }
void long_in_processes(Bench& bench) { walks(bench, Walk::Way::processes, 60, 600); }
void long_with_settings(Bench& bench) {
  walks(bench, Walk::Way::one_thread, 80, 300, true);
  walks(bench, Walk::Way::processes, 30, 400, true);
}

std::vector<const char*> with(std::vector<const char*> clauses, const char* one_more) {
  clauses.push_back(one_more);
  return clauses;
}

// The same walks again and again, of which some end badly: nothing of them stays.
void leaves_nothing(Bench& bench) {
  require_no_growth("T-2", "random walks", 3, 15, [&](uint32_t lives) {
    for (uint32_t i = 0; i < lives; ++i)
      for (uint32_t k = 0; k < 4; ++k)
        walk_in_one_thread(bench, draw_walk(bench.seed * 1009 + k, Walk::Way::one_thread, 80));
  });
}

}  // namespace

std::vector<ContractCase> walk_cases() {
  const std::vector<const char*> clauses{"T-5",  "T-13", "T-15", "T-17", "T-20", "T-21", "T-22", "T-24", "T-25",
                                         "T-28", "T-30", "T-31", "T-32", "T-33", "T-34", "T-35", "T-36", "T-37",
                                         "V-1",  "V-4",  "V-5",  "V-8",  "V-9",  "W-1",  "W-2",  "W-4"};
  return {
      {"walk", "random walks over the whole interface, in one thread", clauses, 500, in_one_thread},
      {"walk-leaves-nothing", "the same random walks again and again", with(clauses, "T-2"), 505, leaves_nothing},
      {"walk-threads", "random walks in which each rank is a thread", clauses, 510, in_threads},
      {"walk-processes", "random walks in which each rank is a process, and some are killed", clauses, 520,
       in_processes},
      {"walk-settings", "random walks with the settings that the plugin declares", with(clauses, "E-11"), 530,
       with_settings},
      {"walk-long", "longer random walks in one thread", clauses, 8000, long_in_one_thread},
      {"walk-threads-long", "longer random walks in threads", clauses, 8010, long_in_threads},
      {"walk-processes-long", "longer random walks in processes", clauses, 8020, long_in_processes},
      {"walk-settings-long", "longer random walks with the settings that the plugin declares", with(clauses, "E-11"),
       8030, long_with_settings},
  };
}

}  // namespace tutti::conformance::contract
