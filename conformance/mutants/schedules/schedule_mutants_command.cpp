// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <memory>

#include "command.hpp"
#include "mutants/schedules/schedule_mutants.hpp"

namespace tutti::conformance {

Action add_schedule_mutants_command(CLI::App& app, Session& session) {
  auto* sub = app.add_subcommand("schedule-mutants",
                                 "Changes correct schedules in every place: the verifier refuses each mutant, or all "
                                 "its interleavings are searched and right");
  const auto all = std::make_shared<bool>(false);
  sub->add_flag("--all", *all, "print every mutant that is right, not an example of each kind");
  return [&session, all] {
    return report_schedule_mutants(
        try_schedule_mutants(schedule_sets(session.selection), session.selection.level == Level::full), *all);
  };
}

}  // namespace tutti::conformance
