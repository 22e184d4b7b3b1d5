// SPDX-License-Identifier: Apache-2.0
//
// tutti-trace: exit status 0; 1 when there is no usable trace or a file cannot be written; 2 for a wrong command line.
#include <tutti/tutti.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>
#include <stdexcept>

#include "findings.hpp"
#include "perfetto.hpp"
#include "sequence.hpp"
#include "sequence_svg.hpp"
#include "standard_output/standard_output.hpp"
#include "summary.hpp"
#include "timeline.hpp"
#include "timeline_svg.hpp"

namespace {

constexpr int wrong_command_line = 2;

struct Options {
  std::string folder, perfetto, svg, sequence, only;
  double from_ms = 0, to_ms = 0;
  size_t barrier = 0;
};

template <typename Write>
void write_file(const std::string& path, Write&& write) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  if (file) write(file);
  file.close();
  if (!file)
    throw std::runtime_error(path + ": cannot be written" + (errno ? std::string(": ") + std::strerror(errno) : ""));
}

trace::Span window_of(const Options& options, const trace::Timeline& timeline) {
  const auto ns = [](double ms) { return static_cast<int64_t>(std::llround(ms * 1e6)); };
  return {ns(options.from_ms), options.to_ms > 0 ? ns(options.to_ms) : timeline.end};
}

int show(const Options& options) {
  const trace::Timeline timeline = trace::read_folder(options.folder, options.only);
  std::cout << trace::summary(timeline);
  if (!options.perfetto.empty())
    write_file(options.perfetto, [&](std::ostream& out) { trace::write_perfetto(out, timeline); });
  if (!options.svg.empty()) {
    const trace::Group& busiest = timeline.groups.front();
    const std::string svg = trace::timeline_svg(busiest, trace::find(busiest), window_of(options, timeline));
    write_file(options.svg, [&](std::ostream& out) { out << svg; });
  }
  if (!options.sequence.empty()) {
    const std::string svg = trace::sequence_svg(trace::sequence_of(timeline, options.barrier));
    write_file(options.sequence, [&](std::ostream& out) { out << svg; });
  }
  return 0;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Merges the traces that the ranks of a job have written with TUTTI_TRACE=FOLDER, and says which rank "
      "the others waited for, which link is slow, and which calls took the time."};
  app.set_version_flag("--version", std::string("tutti-trace ") + tutti_version());
  app.add_option("FOLDER", options.folder, "where the ranks have written their traces")->required();
  app.add_option("--perfetto", options.perfetto,
                 "write everything to this file, for ui.perfetto.dev or chrome://tracing");
  app.add_option("--svg", options.svg, "draw the timeline of the busiest communicator into this file");
  CLI::Option* const sequence =
      app.add_option("--sequence", options.sequence,
                     "draw who calls and sends what, in the order in which it depends on each other, into this file");
  app.add_option("--barrier", options.barrier,
                 "the sequence is what lies between barrier number N, from 1 on, and the next one; default: everything")
      ->type_name("N")
      ->check(CLI::Range(size_t{1}, SIZE_MAX))
      ->needs(sequence);
  app.add_option("--communicator", options.only, "only communicators of this name");
  const auto not_negative = CLI::NonNegativeNumber;
  app.add_option("--from", options.from_ms, "the drawing begins so many ms after the first call")->check(not_negative);
  app.add_option("--to", options.to_ms, "and ends there")->check(not_negative);
  try {
    app.parse(argc, argv);
    if (options.to_ms > 0 && options.to_ms <= options.from_ms)
      throw CLI::ValidationError("--to", "expected more than --from");
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) std::cerr << "tutti-trace: ";
    return app.exit(error) == 0 ? 0 : wrong_command_line;
  }
  try {
    return show(options);
  } catch (const std::exception& problem) {
    std::cout.flush();
    std::cerr << "tutti-trace: " << problem.what() << '\n';
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  tools::hold_standard_descriptors();
  return tools::exit_status("tutti-trace", run(argc, argv));
}
