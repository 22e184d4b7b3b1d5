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
#include <optional>

#include "drawing.hpp"
#include "findings.hpp"
#include "standard_output/standard_output.hpp"

namespace {
using namespace tutti;

constexpr int wrong_schedule = 1, wrong_request = 2;

struct Request {
  std::string collective, algorithm, output;
  uint32_t nranks = 4, root = 0, lanes = 8;
  std::optional<uint32_t> rank;
  bool in_place = false;
};

int refuse(const std::string& text) {
  std::cerr << "tutti-plan: " << text << '\n';
  return wrong_request;
}

std::string known_collectives() {
  std::string names;
  for (uint32_t c = TUTTI_BROADCAST; c <= last_collective; ++c)
    names += (names.empty() ? "" : ", ") + std::string(collective_name(c));
  return names;
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

std::string listing(const Problem& problem, const std::vector<Schedule>& schedules, const Request& request) {
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
    if (!schedule.scratch.empty()) text += fmt::format(", {} scratch chunks", schedule.scratch.size());
    text += "\n";
    for (size_t lane = 0; lane < schedule.lanes.size(); ++lane)
      for (size_t i = 0; i < schedule.lanes[lane].size(); ++i)
        text += fmt::format("  lane {} step {:>3}  {}\n", lane, i, describe(schedule.lanes[lane][i]));
  }
  return text;
}

int show(const std::string& command, const Request& request) {
  Problem problem;
  problem.collective = collective_from_name(request.collective);
  problem.nranks = request.nranks;
  problem.root = request.root;
  problem.lanes = request.lanes;
  problem.in_place.assign(request.nranks, request.in_place);
  if (!problem.collective)
    return refuse(fmt::format("unknown collective \"{}\"; known are {}", request.collective, known_collectives()));
  if (request.root >= request.nranks)
    return refuse(fmt::format("root {} is none of {} ranks", request.root, request.nranks));
  if (request.rank && *request.rank >= request.nranks)
    return refuse(fmt::format("rank {} is none of {} ranks", *request.rank, request.nranks));
  std::string error;
  const tutti_algorithm* algorithm = find_algorithm(request.algorithm, &error);
  if (!algorithm)
    return refuse(
        fmt::format("{}. For {} there are: {}", error, request.collective, algorithms_of(problem.collective)));
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
  if (command == "draw") return write(request.output, plan::draw(problem, schedules, title), "drawn");
  return write(request.output, title + " is proved correct.\n" + plan::findings(problem, schedules, proof), "written");
}

int run(int argc, char** argv) {
  CLI::App app{"Looks at what an algorithm would do: prints, proves or draws its schedule."};
  app.set_version_flag("--version", tutti_version());
  app.require_subcommand(1);
  Request request;
  for (const auto& [name, summary] :
       {std::pair{"print", "every rank's steps"},
        std::pair{"verify", "proves the schedule correct, in place and out of place, and says what was proved"},
        std::pair{"draw", "an SVG of the schedule"}}) {
    CLI::App* command = app.add_subcommand(name, summary);
    command->add_option("COLLECTIVE", request.collective, "all_reduce, broadcast, ...")->required();
    command->add_option("ALGORITHM", request.algorithm, "ring, tree, ...")->required();
    command->add_option("-n,--ranks", request.nranks, "how many ranks")->required()->check(CLI::Range(1u, 65536u));
    command->add_option("--root", request.root, "the root, for collectives that have one");
    command->add_option("--lanes", request.lanes, "how many lanes may be used")->check(CLI::Range(1u, 1024u));
    command->add_flag("--in-place", request.in_place, "IN and OUT are one");
    if (std::string(name) == "print") command->add_option("--rank", request.rank, "this rank only");
    command->add_option("-o,--output", request.output, "write to this file instead of standard output");
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) std::cerr << "tutti-plan: ";
    return app.exit(error) == 0 ? 0 : wrong_request;
  }
  try {
    return show(app.get_subcommands().front()->get_name(), request);
  } catch (const std::exception& error) {
    std::cerr << "tutti-plan: " << error.what() << '\n';
    return wrong_schedule;
  }
}

}  // namespace

int main(int argc, char** argv) { return tools::exit_status("tutti-plan", run(argc, argv)); }
