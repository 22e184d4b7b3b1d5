// SPDX-License-Identifier: Apache-2.0
//
// The commands of tutti-conform. Each adds its subcommand with its own options and gives the action that runs it. The
// shared options (Selection) may stand before or after the subcommand's name.
#pragma once

#include <functional>
#include <string>

#include "selection.hpp"

namespace CLI {
class App;
}

namespace tutti::conformance {

// Runs the command; the exit status: 0 only when all is as it must be, 1 when not, 77 when this machine could not tell,
// 2 for wrong usage (thrown as std::invalid_argument).
using Action = std::function<int()>;

// The input of a command. `selection` is filled once the command line has been read, and checked against the loaded
// plugins.
struct Session {
  Selection selection;
  std::string command_line;  // quoted for a shell
};

Action add_run_command(CLI::App& app, Session& session);               // src/run_command.cpp: the default
Action add_mutants_command(CLI::App& app, Session& session);           // mutants/
Action add_schedule_mutants_command(CLI::App& app, Session& session);  // mutants/schedules/
Action add_soak_command(CLI::App& app, Session& session);              // soak/
Action add_fuzz_command(CLI::App& app, Session& session);              // fuzz/
Action add_contract_command(CLI::App& app, Session& session);          // contract/
Action add_verify_report_command(CLI::App& app, Session& session);     // report/

// Reads the command line, and runs the command that it names.
int run_command_line(int argc, char** argv);  // src/command_line.cpp

}  // namespace tutti::conformance
