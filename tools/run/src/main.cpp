// SPDX-License-Identifier: Apache-2.0
//
// tuttirun: starts a job's ranks on this machine and looks after them.
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string_view>

#include "standard_output/standard_output.hpp"
#include "supervisor.hpp"

namespace {

using namespace tuttirun;

// Blocks what the supervisor forwards or waits for, and gives a descriptor to read it from.
int take_signals() {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCHLD})
    sigaddset(&taken, signal);
  ::sigprocmask(SIG_BLOCK, &taken, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  return ::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
}

// Two pipes for each rank. Only as far as needed: the ranks inherit it.
void raise_descriptor_limit(uint32_t ranks) {
  const rlim_t needed = 2 * rlim_t{ranks} + 64;
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(needed, limit.rlim_max);
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

int run(const Job& job) {
  const int signals = take_signals();
  Keeper keeper;
  std::unique_ptr<NetworkHosts> network;
  if (job.hosts > 0) network = std::make_unique<NetworkHosts>(job.hosts, keeper);
  const MeetingPlace place = make_meeting_place(job.hosts > 0);
  raise_descriptor_limit(job.ranks);
  return Supervisor(job, place, network.get(), keeper, signals).run();
}

std::string check_variable(const std::string& text) {
  const size_t equals = text.find('=');
  return equals == std::string::npos || equals == 0 ? "\"" + text + "\" is not NAME=VALUE" : "";
}

std::optional<double> seconds_in(const std::string& text) {
  double seconds = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool number = code == std::errc() && end == text.data() + text.size() && std::isfinite(seconds);
  return number ? std::optional(seconds) : std::nullopt;
}

std::string check_timeout(const std::string& text) {
  return seconds_in(text).value_or(0) > 0 ? "" : "\"" + text + "\" is not a number of seconds above 0";
}

std::string check_grace(const std::string& text) {
  return seconds_in(text).value_or(-1) >= 0 ? "" : "\"" + text + "\" is not a number of seconds, 0 or above";
}

// CLI11's own usage line knows no PROGRAM.
class Help : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: tuttirun -n N [OPTIONS] PROGRAM [ARGUMENTS...]\n";
  }
};

// The error in words: before a missing option an unknown one is told, which may be the same one misspelt.
std::string complaint(const CLI::App& app, char** argv, const CLI::ParseError& error) {
  const std::vector<std::string> rest = app.remaining();
  if (argv[1] && std::string_view(argv[1]) == "-np")  // mpirun's
    return "-np: the number of ranks is -n N";
  if (!rest.empty() && rest[0].front() == '-' && rest[0] != "--") return CLI::ExtrasError("tuttirun", {rest[0]}).what();
  return error.what();
}

}  // namespace

int main(int argc, char** argv) {
  tools::hold_standard_descriptors();
  Job job;
  std::vector<std::string> variables;
  std::string input = "none";
  bool no_label = false;
  CLI::App app{
      "Starts the ranks of a Tutti job on this machine: N processes that find each other by RANK, WORLD_SIZE, "
      "MASTER_ADDR, MASTER_PORT and a secret. When one fails, all are ended, unless they are to --survive.",
      "tuttirun"};
  app.set_version_flag("--version", TUTTI_VERSION);
  app.formatter(std::make_shared<Help>());
  app.prefix_command();
  app.add_option("-n,--ranks", job.ranks, "How many ranks")->required()->check(CLI::Range(1u, kMaxRanks));
  app.add_option("--hosts-as-netns", job.hosts, "Spread the ranks over so many network namespaces (needs root)")
      ->check(CLI::Range(1u, 1000u));
  app.add_option("--timeout", job.timeout, "End the job after so many seconds, with status 124")->check(check_timeout);
  app.add_option("--grace", job.grace,
                 "Seconds between SIGTERM and SIGKILL, and as many for output that nobody reads, once the job is ended")
      ->check(check_grace)
      ->capture_default_str();
  app.add_option("--env", variables, "NAME=VALUE for all ranks; may be repeated")
      ->check(check_variable)
      ->allow_extra_args(false);
  app.add_option("--stdin", input, "Standard input of rank 0: tuttirun's (rank0) or /dev/null (none)")
      ->check(CLI::IsMember({"rank0", "none"}))
      ->capture_default_str();
  app.add_flag("--survive", job.survive,
               "When a rank fails, leave the others running: they go on by tutti_comm_shrink and tutti_comm_grow");
  app.add_flag("--no-label", no_label, "Do not begin each line with the rank");
  try {
    app.parse(argc, argv);
    job.command = app.remaining();
    if (!job.command.empty() && job.command[0] == "--")
      job.command.erase(job.command.begin());
    else if (!job.command.empty() && job.command[0].front() == '-')
      throw CLI::ExtrasError("tuttirun", {job.command[0]});
    if (job.command.empty()) throw CLI::RequiredError("PROGRAM");
    if (job.hosts > job.ranks)
      throw CLI::ValidationError("--hosts-as-netns", std::to_string(job.hosts) + " hosts for " +
                                                         std::to_string(job.ranks) + " ranks: each host needs one");
    if (input == "rank0" && ::isatty(0) != 0)
      throw CLI::ValidationError(
          "--stdin",
          "a terminal cannot be given to a rank, which has a process group of its own; use a pipe or a file");
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return tools::exit_status("tuttirun", app.exit(error));
    std::fprintf(stderr, "tuttirun: %s\nRun with --help for more information.\n", complaint(app, argv, error).c_str());
    return kExitUsage;
  }
  job.label = !no_label;
  job.input = input == "rank0";
  for (const auto& variable : variables) {
    const size_t equals = variable.find('=');
    job.variables.emplace_back(variable.substr(0, equals), variable.substr(equals + 1));
  }
  try {
    return run(job);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tuttirun: %s\n", error.what());
    return 1;
  }
}
