// SPDX-License-Identifier: Apache-2.0
//
// tutti-conform fuzz: random programs, several at once, until the time is over or one finds something; that one is made
// small and printed.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "command.hpp"
#include "fuzz/campaign.hpp"
#include "fuzz/legality.hpp"
#include "fuzz/themes.hpp"
#include "options.hpp"

namespace tutti::conformance::fuzz {
namespace {

struct FuzzCommandOptions {
  double seconds = 60, times = 1, jobs = 0;
  std::vector<std::string> only;
  std::string program, replay;
  bool print = false, shrink = false, keep_going = false;
};

Program read_program(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw std::invalid_argument(fmt::format("--replay: {} cannot be read", file));
  std::ostringstream text;
  text << in.rdbuf();
  try {
    Program program = from_text(text.str());
    if (const std::string why = illegal(program); !why.empty()) throw std::runtime_error(why);
    return program;
  } catch (const std::runtime_error& e) {
    throw std::invalid_argument(fmt::format("--replay: {}: {}", file, e.what()));
  }
}

Choice choice_of(const FuzzCommandOptions& options, const Selection& selection) {
  Choice choice;
  choice.themes = options.only;
  choice.mixes = mixes_from(selection.transports);
  for (const uint32_t n : selection.ranks) {
    if (n > most_ranks)
      throw std::invalid_argument(fmt::format("fuzz: --ranks is {}, expected 1 to {}", n, most_ranks));
    choice.ranks.push_back(n);
  }
  // Themes with long pauses need time of their own.
  constexpr double room = 3;
  choice.longest_sleep = options.seconds / room;
  return choice;
}

// The options that make the same programs again.
std::string selecting(const FuzzCommandOptions& options, const Selection& selection) {
  std::string text;
  const auto add = [&](const char* name, const auto& list) {
    if (!list.empty()) text += fmt::format(" {} {}", name, fmt::join(list, ","));
  };
  add("--only", options.only);
  add("--transport", selection.transports);
  add("--ranks", selection.ranks);
  for (const std::string& plugin : selection.plugins) text += " --plugin " + plugin;
  return text + fmt::format(" --seconds {}", options.seconds);
}

int run(const FuzzCommandOptions& options, const Session& session) {
  const Selection& selection = session.selection;
  require_known("--only", options.only, theme_names());
  if (!options.program.empty() && !options.replay.empty())
    throw std::invalid_argument("fuzz: --program and --replay are two programs: give one");
  const bool one = !options.program.empty() || !options.replay.empty();
  if (options.print && !one) throw std::invalid_argument("--print: give the program, by --program or --replay");
  Orders orders;
  orders.choice = choice_of(options, selection);
  orders.trial.plugins = selection.plugins;
  orders.trial.patience = selection.patience;
  orders.seed = selection.seed;
  orders.seconds = options.seconds;
  orders.jobs = static_cast<uint32_t>(options.jobs);
  orders.keep_going = options.keep_going;
  orders.shrink = options.shrink;
  orders.selecting = selecting(options, selection);
  if (!one) return campaign(orders);
  const Program program =
      options.replay.empty()
          ? generate(whole_number("--program", options.program, 0, std::numeric_limits<uint64_t>::max()), orders.choice)
          : read_program(options.replay);
  if (options.print) {
    fmt::print("{}", to_text(program));
    return 0;
  }
  return replay(program, static_cast<uint32_t>(options.times), orders);
}

}  // namespace
}  // namespace tutti::conformance::fuzz

namespace tutti::conformance {

Action add_fuzz_command(CLI::App& app, Session& session) {
  auto* sub = app.add_subcommand(
      "fuzz", "Random programs, judged against an independent reference; one that fails is made small");
  const auto options = std::make_shared<fuzz::FuzzCommandOptions>();
  std::string themes;
  for (const fuzz::Theme& theme : fuzz::themes())
    themes += fmt::format("{}{} ({})", themes.empty() ? "" : ", ", theme.name, theme.text);
  add_number(*sub, "--seconds", options->seconds, 1, 1e6, "how long");
  sub->add_option("--only", options->only, "themes to draw programs from: " + themes)
      ->delimiter(',')
      ->allow_extra_args(false);
  add_number(*sub, "--jobs", options->jobs, 0, 64, "programs at once, 0: by the number of cores");
  sub->add_option("--program", options->program, "run the one program of this seed")->type_name("NUMBER");
  sub->add_option("--replay", options->replay, "run the one program in this file");
  add_number(*sub, "--times", options->times, 1, 1e6, "how often the one program is run");
  sub->add_flag("--print", options->print, "print the one program in the place of running it");
  sub->add_flag("--shrink", options->shrink, "make the one program small when it fails");
  sub->add_flag("--keep-going", options->keep_going, "go on after a finding, which is then printed as it is");
  return [&session, options] { return fuzz::run(*options, session); };
}

}  // namespace tutti::conformance
