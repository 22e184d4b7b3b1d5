// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <tutti/tutti.h>

#include <CLI/CLI.hpp>
#include <iostream>

namespace doctor {
namespace {

constexpr int usage_error = 2;

constexpr const char* description =
    "Looks at a host, or at all hosts of a launch, before a job: what will be used and what is wrong.\n\n"
    "  tutti-doctor                         this host\n"
    "  tuttirun -n 4 tutti-doctor           all ranks of a launch; rank 0 prints\n"
    "  tutti-doctor passport                measures this host: tutti-passport-HOST.json and .md\n"
    "  tutti-doctor compare A.json B.json   ratios; what differs by more than 20 %\n";
constexpr const char* footer =
    "\nEach finding has what was seen, what it costs and the command that mends it; errors come first.\n"
    "An error keeps a job from running, a warning makes it slow or fragile, a note is worth knowing.\n"
    "Hosts also send each other small and large messages, for at most 10 s.\n\n"
    "Exit status: 0 without errors; 1 with errors, or where compare finds a difference or the work fails;\n"
    "2 for wrong arguments. tools/doctor/README.md lists what is looked at.";

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, int* status) {
  Options options;
  CLI::App app{description, "tutti-doctor"};
  app.footer(footer);
  app.set_version_flag("--version", tutti_version());
  app.add_flag("--json", options.json, "print JSON");
  app.require_subcommand(0, 1);
  auto* passport = app.add_subcommand(
      "passport", "Measures memory, cores, copies between processes and loopback TCP, in at most two minutes.");
  passport->add_flag("--quick", options.quick, "some seconds, less exact");
  passport->add_option("-o,--output", options.output, "NAME: writes NAME.json and NAME.md (tutti-passport-HOST)");
  auto* compare = app.add_subcommand("compare", "Compares two passports: B against A.");
  compare->add_option("A", options.first, "passport")->required()->check(CLI::ExistingFile);
  compare->add_option("B", options.second, "passport")->required()->check(CLI::ExistingFile);
  *status = 0;
  try {
    app.parse(argc, argv);
    if (options.json && (*passport || *compare))
      throw std::invalid_argument("--json: passport writes JSON in any case, and compare writes none");
    if (*passport) options.task = Options::Task::passport;
    if (*compare) options.task = Options::Task::compare;
    return options;
  } catch (const CLI::Success& e) {
    app.exit(e, std::cout, std::cerr);
  } catch (const std::exception& e) {
    std::cerr << "tutti-doctor: " << e.what() << "\nRun with --help for more information.\n";
    *status = usage_error;
  }
  return std::nullopt;
}

}  // namespace doctor
