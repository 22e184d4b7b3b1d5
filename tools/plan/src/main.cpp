// SPDX-License-Identifier: Apache-2.0
//
// tutti-plan: looks at what an algorithm would do. Exit status: 0 done, 1 the schedule is wrong, 2 the request is.
#include <fmt/format.h>
#include <tutti/registry.h>
#include <tutti/schedule.h>
#include <tutti/tutti.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>

#include "algorithm_tables.hpp"
#include "drawing.hpp"
#include "findings.hpp"
#include "request.hpp"
#include "simulation_commands.hpp"
#include "standard_output/standard_output.hpp"
#include "survey.hpp"

namespace {
using namespace tutti;

constexpr int wrong_schedule = 1, wrong_request = 2;

int refuse(const std::string& text) {
  std::cerr << "tutti-plan: " << text << '\n';
  return wrong_request;
}

std::string algorithms_of(uint32_t collective) {
  std::string names;
  for (const tutti_algorithm* algorithm : list_algorithms())
    if (algorithm->collectives >> collective & 1) names += (names.empty() ? "" : ", ") + std::string(algorithm->name);
  return names.empty() ? "none; is TUTTI_PLUGIN_PATH right?" : names;
}

int write(const std::string& path, const std::string& text, const char* done) {
  if (path.empty()) {
    std::cout << text;
    return 0;
  }
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return refuse(fmt::format("cannot write \"{}\": {}", path, std::strerror(errno)));
  std::cout << fmt::format("{} into {}\n", done, path);
  return 0;
}

std::string listing(const Problem& problem, const std::vector<Schedule>& schedules, const plan::Request& request) {
  std::string text = plan::title(problem, request.algorithm) + "\n";
  const Schedule& any = schedules[0];
  if (any.pieces() > 1) {
    text += "blocks are cut at";
    for (const tutti_cut& cut : any.cuts) text += fmt::format(" {}/{}", cut.p, cut.q);
    text += "\n";
  }
  if (any.sliced()) text += "may run in slices\n";
  for (uint32_t rank = 0; rank < schedules.size(); ++rank) {
    if (request.rank && *request.rank != rank) continue;
    const Schedule& schedule = schedules[rank];
    text += fmt::format("rank {}", rank);
    if (!problem.hosts.empty()) text += fmt::format(", host {}", problem.hosts[rank]);
    if (!schedule.scratch.empty()) text += fmt::format(", {} scratch chunks", schedule.scratch.size());
    text += "\n";
    for (size_t lane = 0; lane < schedule.lanes.size(); ++lane)
      for (size_t i = 0; i < schedule.lanes[lane].size(); ++i)
        text += fmt::format("  lane {} step {:>3}  {}\n", lane, i, describe(schedule.lanes[lane][i]));
  }
  return text;
}

// The algorithm of this name, with or without parameters. Throws WrongRequest.
const tutti_algorithm* algorithm_of(const plan::Request& request, uint32_t collective) {
  std::string error;
  if (const tutti_algorithm* found = find_algorithm(plan::split_algorithm(request.algorithm).first, &error))
    return found;
  throw plan::WrongRequest(
      collective ? fmt::format("{}. For {} there are: {}", error, request.collective, algorithms_of(collective))
                 : error);
}

int show_table(const std::string& command, const plan::Request& request) {
  if (command != "verify")
    return refuse(fmt::format("\"all\" and a range of ranks are for verify; {} shows one schedule", command));
  plan::Survey survey;
  const uint32_t only = request.collective == "all" ? 0 : plan::collective_of(request);
  for (uint32_t c = TUTTI_BROADCAST; c <= last_collective; ++c)
    if (!only || only == c) survey.collectives.push_back(c);
  if (request.algorithm == "all")
    survey.algorithms = list_algorithms();
  else
    survey.algorithms = {algorithm_of(request, only)};
  if (survey.algorithms.empty()) return refuse("there are no algorithms; is TUTTI_PLUGIN_PATH right?");
  survey.parameters = plan::split_algorithm(request.algorithm).second;
  survey.lanes = request.lanes;
  survey.hosts = plan::hosts_of(request);
  survey.topology = plan::topology_of(request, survey.hosts);
  const auto [first, last] = plan::ranks_of(request);
  const auto placed = static_cast<uint32_t>(survey.hosts.size());
  survey.first = placed ? placed : first;
  survey.last = placed ? placed : last;
  std::string wrong;
  const std::string table = plan::survey(survey, &wrong);
  const int status = write(request.output, table, "written");
  if (wrong.empty()) return status;
  std::cerr << "tutti-plan: " << wrong << '\n';
  return wrong_schedule;
}

int show(const std::string& command, const plan::Request& request) {
  const Problem problem = plan::problem_of(request);
  const tutti_algorithm* algorithm = algorithm_of(request, problem.collective);
  std::string error;
  if (problem.nranks > 512)  // about a second; steps grow with the square
    std::cerr << fmt::format("tutti-plan: {} ranks: this may take minutes and gigabytes of memory\n", problem.nranks);
  std::vector<Schedule> schedules;
  const tutti_status status = build_schedules(*algorithm, problem, &schedules, &error);
  if (status == TUTTI_NOT_SUPPORTED || status == TUTTI_INVALID_ARGUMENT) {
    const std::string reason = take_plugin_error();
    return refuse(fmt::format("{}{}{}. For {} there are: {}", error, reason.empty() ? "" : ": ", reason,
                              request.collective, algorithms_of(problem.collective)));
  }
  if (status != TUTTI_OK) {
    std::cerr << "tutti-plan: " << error << '\n';
    return wrong_schedule;
  }
  if (command == "print") return write(request.output, listing(problem, schedules, request), "printed");

  Proof proof = verify(problem, schedules);
  if (proof.ok() && command == "verify") {
    const Proof all = verify_algorithm(*algorithm, problem);
    if (!all.ok()) proof = all;
  }
  if (!proof.ok()) {
    std::cerr << fmt::format("tutti-plan: {} is wrong ({}): {}\n", plan::title(problem, request.algorithm),
                             fault_name(proof.fault), proof.error);
    return wrong_schedule;
  }
  const std::string title = plan::title(problem, request.algorithm);
  if (command == "draw") {
    const plan::DrawingOptions options = plan::drawing_of(request);
    try {
      return write(request.output, plan::draw(problem, schedules, title, options), "drawn");
    } catch (const std::invalid_argument& unfit) {
      return refuse(fmt::format("--follow {}: {}", request.follow, unfit.what()));
    }
  }
  return write(request.output, title + " is proved correct.\n" + plan::findings(problem, schedules, proof), "written");
}

int show_algorithms(bool markdown) {
  const auto all = list_algorithms();
  if (all.empty()) return refuse("there are no algorithms; is TUTTI_PLUGIN_PATH right?");
  std::cout << (markdown ? plan::algorithm_tables(all) : plan::algorithm_list(all));
  return 0;
}

int show(const plan::Answer& answer, const plan::Request& request) {
  const int status = write(request.output, answer.text, "written");
  if (status || answer.picture_path.empty()) return status;
  errno = 0;
  std::ofstream file(answer.picture_path, std::ios::binary);
  file << answer.picture;
  file.close();
  if (file) return 0;
  return refuse(fmt::format("cannot write \"{}\": {}", answer.picture_path, std::strerror(errno)));
}

// The options of print, verify and draw.
void add_schedule_commands(CLI::App& app, plan::Request& request) {
  for (const auto& [name, summary] :
       {std::pair{"print", "every rank's steps"},
        std::pair{"verify", "proves the schedule correct, in place and out of place, and says what was proved"},
        std::pair{"draw", "an SVG of the schedule"}}) {
    CLI::App* command = app.add_subcommand(name, summary);
    command->add_option("COLLECTIVE", request.collective, "all_reduce, broadcast, ...; verify: or all")->required();
    command->add_option("ALGORITHM", request.algorithm, "ring, tree, bruck:4 ...; verify: or all")->required();
    command->add_option("-n,--ranks", request.ranks, "how many ranks (4); verify: or a range, 1..64");
    command->add_option(
        "--hosts", request.hosts,
        "pretended hosts: how many ranks each has, such as 4,4, or each of its NUMA nodes, such as 2+2,2+2");
    command->add_option("--topology", request.topology, "a topology file, whose hosts are pretended: docs/topology.md");
    command->add_option("--placement", request.placement, "how ranks are dealt to hosts: consecutive or cyclic");
    command->add_option("--root", request.root, "the root, for collectives that have one");
    command->add_option("--lanes", request.lanes, "how many lanes may be used")->check(CLI::Range(1u, 1024u));
    command->add_flag("--in-place", request.in_place, "IN and OUT are one");
    if (std::string(name) == "draw") {
      command->add_option("--view", request.view, "steps, rounds, matrix, or auto: the first that fits a page (auto)");
      command->add_option("--follow", request.follow, "CHUNK or CHUNK@RANK of IN: highlights the way of its data");
    }
    if (std::string(name) == "print") command->add_option("--rank", request.rank, "this rank only");
    command->add_option("-o,--output", request.output, "write to this file instead of standard output");
  }
}

int run(int argc, char** argv) {
  CLI::App app{"Looks at what an algorithm would do: prints, proves, draws or simulates its schedule."};
  app.set_version_flag("--version", tutti_version());
  app.require_subcommand(1);
  plan::Request request;
  plan::SimulationOptions simulation;
  plan::TuneRequest tune;
  add_schedule_commands(app, request);
  bool markdown = false;
  CLI::App* algorithms = app.add_subcommand("algorithms", "the algorithms that there are");
  algorithms->add_flag("--markdown", markdown, "as tables of what they cost: those of docs/algorithms.md");
  plan::add_simulate_options(
      app.add_subcommand("simulate", "runs the schedules of all ranks in the model of a network"), &request,
      &simulation);
  plan::add_tune_options(app.add_subcommand("tune", "simulates all algorithms in a network and says which ones win"),
                         &request, &simulation, &tune);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) std::cerr << "tutti-plan: ";
    return app.exit(error) == 0 ? 0 : wrong_request;
  }
  try {
    const std::string command = app.get_subcommands().front()->get_name();
    if (command == "algorithms") return show_algorithms(markdown);
    if (command == "tune") return show(plan::answer_tune(request, simulation, tune), request);
    if (command == "simulate") {
      if (plan::wants_table(request))
        return refuse("simulate takes one algorithm and one number of ranks; tune compares");
      const tutti_algorithm* algorithm = algorithm_of(request, plan::collective_of(request));
      return show(plan::answer_simulate(request, simulation, *algorithm), request);
    }
    return plan::wants_table(request) ? show_table(command, request) : show(command, request);
  } catch (const plan::WrongRequest& error) {
    return refuse(error.what());
  } catch (const std::exception& error) {
    std::cerr << "tutti-plan: " << error.what() << '\n';
    return wrong_schedule;
  }
}

}  // namespace

int main(int argc, char** argv) {
  tools::hold_standard_descriptors();
  return tools::exit_status("tutti-plan", run(argc, argv));
}
