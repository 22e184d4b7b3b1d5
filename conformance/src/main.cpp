// SPDX-License-Identifier: Apache-2.0
//
// tutti-conform: does a transport, an algorithm, a whole installation keep Tutti's contract?
#include <fmt/format.h>
#include <tutti/tutti.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>

#include "command.hpp"
#include "contract/contract_process.hpp"
#include "filters.hpp"
#include "worker.hpp"

namespace {

using namespace tutti::conformance;

std::string quoted(const std::string& word) {
  if (!word.empty() &&
      word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=,:+@") ==
          std::string::npos)
    return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

void add_selection(CLI::App& app, Selection& s) {
  const std::map<std::string, Level> levels{
      {"smoke", Level::smoke}, {"quick", Level::quick}, {"standard", Level::standard}, {"full", Level::full}};
  app.add_option("--level", s.level, "smoke (20 s), quick (2 min a transport), standard (15 min a transport), full (overnight)")
      ->transform(CLI::CheckedTransformer(levels));
  const auto list = [&](const char* name, auto& values, const char* text) {
    app.add_option(name, values, text)->delimiter(',')->allow_extra_args(false);
  };
  list("--transport", s.transports, "transports, or mixes of several (shm+tcp), or all");
  list("--device", s.devices, "devices whose memory and streams are used; host: none of them; or all");
  list("--algorithm", s.algorithms, "algorithms");
  list("--collective", s.collectives, "collectives");
  list("--type", s.types, "data types");
  list("--ranks", s.ranks, "numbers of ranks");
  app.add_option("--case", s.cases, "a case's id; '*' stands for anything")->allow_extra_args(false);
  app.add_option("--plugin", s.plugins, "a plugin's file, loaded besides those that are found")
      ->allow_extra_args(false);
  app.add_option("--netns", s.netns, "the hosts of a mix are the network namespaces NAME-0, NAME-1 (root)");
  app.add_option("--seed", s.seed, "of all data");
  app.add_option("--patience", s.patience,
                 "every time limit is so many times as long, for slow or emulated machines (1)")
      ->check(CLI::Range(1.0, 100.0));
}

int run(int argc, char** argv) {
  Session session;
  for (int i = 0; i < argc; ++i) session.command_line += (i ? " " : "") + quoted(argv[i]);
  CLI::App app{"Tutti's conformance suite"};
  app.set_version_flag("--version", tutti_version());
  add_selection(app, session.selection);
  bool mutants = false;
  app.add_flag("--mutants", mutants, "the same as the command mutants");
  std::map<std::string, Action> actions{{"", add_run_command(app, session)},
                                        {"mutants", add_mutants_command(app, session)},
                                        {"schedule-mutants", add_schedule_mutants_command(app, session)},
                                        {"soak", add_soak_command(app, session)},
                                        {"verify-report", add_verify_report_command(app, session)}};
  app.require_subcommand(0, 1);
  for (CLI::App* sub : app.get_subcommands({})) sub->fallthrough();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    throw std::invalid_argument(std::string(e.what()) + "\nRun with --help for more information.");
  }
  const auto chosen = app.get_subcommands();
  const std::string name = !chosen.empty() ? chosen.front()->get_name() : mutants ? "mutants" : "";
  // Who checks a report need not have the plugins that it is about.
  if (name != "verify-report") check_selection(session.selection);
  return actions.at(name)();
}

// A verdict counts only once it has arrived: a full disk is an error, not a success.
int exit_status(int status) {
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout) return status;
  fmt::print(stderr, "tutti-conform: standard output cannot be written: what was printed is lost or cut short\n");
  return status ? status : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc > 1 && std::strcmp(argv[1], worker_argument) == 0) return run_worker();
    if (argc > 1 && std::strcmp(argv[1], contract::process_argument) == 0)
      return contract::run_process(argc - 2, argv + 2);
    return exit_status(run(argc, argv));
  } catch (const std::invalid_argument& e) {
    fmt::print(stderr, "tutti-conform: {}\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    fmt::print(stderr, "tutti-conform: {}\n", e.what());
    return 1;
  }
}
