// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <tutti/schedule.h>
#include <tutti/tutti.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <iostream>
#include <stdexcept>
#include <tutti/sdk/text.hpp>
#include <vector>

namespace info {
namespace {

constexpr int usage_error = 2;

// nccl-tests' names beside Tutti's.
uint32_t dtype_of(const std::string& name) {
  if (name == "half") return TUTTI_FLOAT16;
  if (name == "float") return TUTTI_FLOAT32;
  if (name == "f8e4m3") return TUTTI_FLOAT8_E4M3;
  if (name == "f8e5m2") return TUTTI_FLOAT8_E5M2;
  if (name == "double") return TUTTI_FLOAT64;
  return tutti::dtype_from_name(name);
}

template <typename NameOf>
std::string names(const std::vector<uint32_t>& codes, NameOf&& name_of) {
  std::string text;
  for (const uint32_t code : codes) text += std::string(text.empty() ? "" : ", ") + name_of(code);
  return text;
}

uint64_t parse_size(const std::string& text) {
  constexpr std::string_view suffixes = "KMGT";
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  const size_t suffix = stop == end ? suffixes.npos : suffixes.find(tutti::to_upper(*stop));
  const int shift = suffix == suffixes.npos ? 0 : 10 * (static_cast<int>(suffix) + 1);
  const bool well_formed = code == std::errc() && (stop == end || (end - stop == 1 && suffix != suffixes.npos));
  if (!well_formed || value > UINT64_MAX >> shift)
    throw std::invalid_argument("size \"" + text + "\": expected bytes, a whole number with K, M, G or T if need be");
  return value << shift;
}

Explain interpret(const std::vector<std::string>& words, const std::string& type) {
  Explain explain;
  explain.collective = tutti::collective_from_name(words[0]);
  std::vector<uint32_t> collectives;
  for (uint32_t c = TUTTI_BROADCAST; c <= tutti::last_collective; ++c) collectives.push_back(c);
  if (explain.collective == 0)
    throw std::invalid_argument("collective \"" + words[0] + "\": known are " +
                                names(collectives, tutti::collective_name));
  explain.bytes = parse_size(words[1]);
  explain.dtype = dtype_of(type);
  if (explain.dtype == 0)
    throw std::invalid_argument("--type " + type + ": known are " + names(tutti::all_dtypes(), tutti::dtype_name));
  return explain;
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, int* status) {
  Options options;
  std::vector<std::string> explain;
  std::string type = "float32";
  CLI::App app{"Shows plugins, the host and settings; with --topology and --explain what ranks see and would do."};
  app.set_version_flag("--version", tutti_version());
  auto* topology = app.add_flag("--topology", options.topology, "the ranks' hosts and the transport of each pair");
  auto* explain_option =
      app.add_option("--explain", explain, "COLLECTIVE SIZE: the candidate algorithms and their predicted cost")
          ->expected(2);
  auto* ranks = app.add_option("-n", options.nranks,
                               "ask with so many ranks as threads of this process; otherwise the launcher's")
                    ->check(CLI::Range(1, 4096));
  auto* file =
      app.add_option("--file", options.file,
                     "with --topology and --explain: the ranks of this topology file, which need not be there");
  app.add_option("--save", options.save, "writes the topology into this file, which --file reads")->needs(topology);
  app.add_option("--svg", options.svg, "draws the topology into this file")->needs(topology);
  file->excludes(ranks);
  app.add_option("--type", type, "data type for --explain (float32)")->needs(explain_option);
  auto* net = app.add_flag("--net", options.net,
                           "ports, addresses and interfaces that network transports see, which of them they would "
                           "use, and why");
  auto* known = app.add_flag("--settings", options.settings,
                             "every setting of the library: its value or its default, and what it does");
  auto* hang =
      app.add_flag("--hang", options.hang,
                   "who keeps whom waiting, from the flight records of a job's ranks; also of stopped and dead "
                   "ones, also while the communicator is being made");
  app.add_option("targets", options.hang_targets,
                 "with --hang: numbers of processes, or folders with records (this user's usual ones)")
      ->needs(hang)
      ->option_text("[PID|FOLDER]...");
  app.add_flag("--all", options.all, "with --hang: also communicators of which no process lives any more")->needs(hang);
  net->excludes(hang)->excludes(explain_option);
  known->excludes(net)->excludes(hang)->excludes(explain_option)->excludes(topology);
  app.add_flag("--json", options.json, "print JSON");
  *status = 0;
  try {
    app.parse(argc, argv);
    if (options.net && options.topology) throw std::invalid_argument("--net: cannot be combined with --topology");
    if (options.hang && (options.topology || !explain.empty()))
      throw std::invalid_argument("--hang: cannot be combined with --topology and --explain");
    if (!explain.empty()) options.explain = interpret(explain, type);
    if (ranks->count() > 0 && !options.asks_ranks())
      throw std::invalid_argument("-n: only of use with --topology or --explain");
    if (file->count() > 0 && !options.asks_ranks())
      throw std::invalid_argument("--file: only of use with --topology or --explain");
    return options;
  } catch (const CLI::Success& e) {
    app.exit(e, std::cout, std::cerr);
  } catch (const std::exception& e) {
    std::cerr << "tutti-info: " << e.what() << "\nRun with --help for more information.\n";
    *status = usage_error;
  }
  return std::nullopt;
}

}  // namespace info
