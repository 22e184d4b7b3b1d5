// SPDX-License-Identifier: Apache-2.0
#include <tutti/tutti.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <map>

#include "command.hpp"
#include "filters.hpp"
#include "options.hpp"

namespace tutti::conformance {
namespace {

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
  app.add_option_function<std::string>(
         "--level", [&s](const std::string& text) { s.level = level_from(text); },
         "smoke (20 s), quick (2 min a transport), standard (10 min a transport), full (overnight) [quick]")
      ->type_name("LEVEL");
  const auto list = [&](const char* name, auto& values, const char* text) {
    app.add_option(name, values, text)->delimiter(',')->allow_extra_args(false);
  };
  list("--transport", s.transports, "transports, or mixes of several (shm+tcp), or all");
  list("--device", s.devices, "devices whose memory and streams are used; host: none of them; or all");
  list("--algorithm", s.algorithms, "algorithms");
  list("--collective", s.collectives, "collectives");
  list("--type", s.types, "data types");
  constexpr uint32_t most_ranks = 64;
  app.add_option_function<std::vector<std::string>>(
         "--ranks",
         [&s](const std::vector<std::string>& numbers) {
           for (const std::string& number : numbers)
             s.ranks.push_back(static_cast<uint32_t>(whole_number("--ranks", number, 1, most_ranks)));
         },
         "numbers of ranks, 1 to 64")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NUMBER");
  app.add_option("--case", s.cases, "a case's id; '*' stands for anything")->allow_extra_args(false);
  app.add_option("--plugin", s.plugins, "a plugin's file, loaded besides those that are found")
      ->allow_extra_args(false);
  app.add_option_function<std::string>(
         "--nccl-net",
         [&s](const std::string& named) {
           if (named.empty()) throw std::invalid_argument("--nccl-net: \"\" is neither a file nor a name");
           s.nccl_net = named;
         },
         "a network plugin of NCCL, tested as the transport nccl:NAME: its file, or NAME of libnccl-net-NAME.so")
      ->type_name("FILE");
  app.add_option("--netns", s.netns, "the hosts of a mix are the network namespaces NAME-0, NAME-1 (root)");
  app.add_option_function<std::string>(
         "--seed",
         [&s](const std::string& text) {
           s.seed = whole_number("--seed", text, 0, std::numeric_limits<uint64_t>::max());
         },
         "of all data [1]")
      ->type_name("NUMBER");
  app.add_option_function<std::string>(
         "--share", [&s](const std::string& text) { s.share = share_from(text); },
         "K/N: the K-th of N shares of the cases, for machines that divide a level among them; the seed shuffles")
      ->type_name("K/N");
  add_number(app, "--patience", s.patience, 1, 100,
             "every time limit is so many times as long, for slow or emulated machines")
      ->envname("TUTTI_TEST_TIME_SCALE");
}

// Arguments that the parser did not use: an unknown option or command.
void refuse_extras(const CLI::App& app) {
  const std::vector<std::string> extras = app.remaining(true);
  if (extras.empty()) return;
  const auto is_option = [](const std::string& word) { return word.size() > 1 && word[0] == '-'; };
  const auto option = std::find_if(extras.begin(), extras.end(), is_option);
  std::vector<std::string> options, commands;
  const auto chosen = app.get_subcommands();
  for (const CLI::App* part : {&app, chosen.empty() ? nullptr : static_cast<const CLI::App*>(chosen.front())})
    if (part)
      for (const CLI::Option* one : part->get_options())
        if (!one->get_lnames().empty() && !one->get_group().empty())
          options.push_back("--" + one->get_lnames().front());
  for (const CLI::App* sub : app.get_subcommands({})) commands.push_back(sub->get_name());
  if (option != extras.end()) {
    const std::string word = option->substr(0, option->find('='));
    throw std::invalid_argument("there is no option \"" + word + "\"" + did_you_mean(word, options) +
                                "; --help shows all");
  }
  if (chosen.empty()) unknown_word("command", extras.front(), commands);
  throw std::invalid_argument(chosen.front()->get_name() + ": \"" + extras.front() + "\" is one word too many; see " +
                              chosen.front()->get_name() + " --help");
}

}  // namespace

int run_command_line(int argc, char** argv) {
  Session session;
  for (int i = 0; i < argc; ++i) session.command_line += (i ? " " : "") + quoted(argv[i]);
  CLI::App app{"Tutti's conformance suite"};
  app.set_version_flag("--version", tutti_version());
  add_selection(app, session.selection);
  std::map<std::string, Action> actions{{"", add_run_command(app, session)},
                                        {"mutants", add_mutants_command(app, session)},
                                        {"schedule-mutants", add_schedule_mutants_command(app, session)},
                                        {"soak", add_soak_command(app, session)},
                                        {"fuzz", add_fuzz_command(app, session)},
                                        {"contract", add_contract_command(app, session)},
                                        {"verify-report", add_verify_report_command(app, session)}};
  app.require_subcommand(0, 1);
  app.allow_extras();
  for (CLI::App* sub : app.get_subcommands({})) sub->fallthrough()->allow_extras();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ArgumentMismatch& e) {
    const std::string text = e.what();
    throw std::invalid_argument(text.substr(0, text.find(':')) + ": expected one value, given once");
  } catch (const CLI::ParseError& e) {
    throw std::invalid_argument(std::string(e.what()) + "\nRun with --help for more information.");
  }
  refuse_extras(app);
  const auto chosen = app.get_subcommands();
  const std::string name = !chosen.empty() ? chosen.front()->get_name() : "";
  // Checking a report does not require its plugins.
  if (name != "verify-report" && name != "contract") check_selection(session.selection);
  return actions.at(name)();
}

}  // namespace tutti::conformance
