// SPDX-License-Identifier: Apache-2.0
//
// A simulation as text and as JSON.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "quantity.hpp"
#include "simulate.hpp"

namespace tutti::plan {
namespace {

using simulation::PathStep;
using simulation::Result;

struct Spread {
  double least, mean, most;
  uint32_t slowest;
};
Spread spread_of(const std::vector<double>& seconds) {
  const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  const double mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / double(seconds.size());
  return {*least, mean, *most, uint32_t(std::max_element(seconds.begin(), seconds.end()) - seconds.begin())};
}

// Parts of the critical path, by what took the time.
struct Part {
  std::string name;
  uint64_t steps = 0;
  double seconds = 0;
};
std::vector<Part> parts_of(const Simulated& simulated, const simulation::Network& network) {
  std::vector<Part> parts{{"latency"}, {"messages, reductions and copies on processors"}, {"waiting for processors"}};
  const auto fixed = parts.size();
  for (const simulation::LinkClass& of : network.classes()) {
    parts.push_back({"bytes over " + of.name});
    parts.push_back({"waiting for " + of.name});
  }
  for (const PathStep& step : simulated.result.path) {
    const auto take = [](Part& part, double seconds) {
      part.steps += seconds > 0;
      part.seconds += seconds;
    };
    const bool linked = step.link_class != Result::no_class;
    take(parts[0], step.latency);
    take(parts[1], step.work);
    take(parts[linked ? fixed + 2 * step.link_class + 1 : 2], step.waiting);
    if (linked) take(parts[fixed + 2 * step.link_class], step.transfer);
  }
  // Sums of rounded numbers leave crumbs.
  std::erase_if(parts, [&](const Part& part) { return part.seconds <= 1e-9 * simulated.result.seconds; });
  std::ranges::stable_sort(parts, [](const Part& a, const Part& b) { return a.seconds > b.seconds; });
  return parts;
}

// The steps of the path that took longest, in the order of time.
std::vector<PathStep> longest_steps(const std::vector<PathStep>& path) {
  constexpr size_t shown = 8;
  std::vector<size_t> order(path.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto spent = [&](size_t i) { return path[i].end - path[i].begin; };
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return spent(a) > spent(b); });
  order.resize(std::min(shown, order.size()));
  std::ranges::sort(order);
  std::vector<PathStep> longest;
  for (const size_t i : order) longest.push_back(path[i]);
  return longest;
}

std::string step_text(const PathStep& step) {
  std::string text = step_name(step.kind);
  if (step.peer != step.rank)
    text += fmt::format(" {} {}",
                        step.kind == TUTTI_STEP_SEND     ? "to"
                        : step.kind == TUTTI_STEP_SIGNAL ? "with"
                                                         : "from",
                        step.peer);
  if (step.bytes) text += ", " + bytes_text(double(step.bytes));
  return text;
}

std::string link_text(const PathStep& step, const simulation::Network& network) {
  return step.link_class == Result::no_class ? "-" : network.classes()[step.link_class].name;
}

// The most that this program had in memory.
uint64_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return uint64_t(usage.ru_maxrss) * 1024;
}

std::string path_text(const Simulated& simulated, const simulation::Network& network) {
  const std::vector<PathStep>& path = simulated.result.path;
  std::set<uint32_t> ranks;
  for (const PathStep& step : path) ranks.insert(step.rank);
  std::string text = fmt::format("\ncritical path: {} steps on {} ranks\n", path.size(), ranks.size());
  for (const Part& part : parts_of(simulated, network))
    text += fmt::format("  {:>5.1f} %  {:>10}  {}\n", 100 * part.seconds / simulated.result.seconds,
                        seconds_text(part.seconds), part.name);
  text += "its longest steps:\n";
  text += fmt::format("  {:>10} {:>10} {:>7} {:>4} {:>6} {:>6}  {:<18} {}\n", "begin", "time", "rank", "lane", "step",
                      "slice", "link", "what");
  for (const PathStep& step : longest_steps(path))
    text += fmt::format("  {:>10} {:>10} {:>7} {:>4} {:>6} {:>6}  {:<18} {}\n", seconds_text(step.begin),
                        seconds_text(step.end - step.begin), step.rank, step.lane, step.step, step.slice,
                        link_text(step, network), step_text(step));
  return text;
}

}  // namespace

std::string report(const Simulated& simulated, const NetworkFile& file) {
  const Result& result = simulated.result;
  const auto network = simulation::make_network(file.fabric_of(simulated.problem.nranks));
  const Spread spread = spread_of(result.rank_seconds);
  std::string text =
      fmt::format("{}; {} per block, {} slice{}; {}, {}\n", simulated.title, bytes_text(double(simulated.block_bytes)),
                  simulated.slices, simulated.slices == 1 ? "" : "s", file.kind, file.path);
  text += fmt::format("time {}; ranks are done after {} (least), {} (mean), {} (most, rank {})\n",
                      seconds_text(result.seconds), seconds_text(spread.least), seconds_text(spread.mean),
                      seconds_text(spread.most), spread.slowest);
  text +=
      fmt::format("{} steps, {} messages, {} sent\n", result.steps, result.messages, bytes_text(double(result.bytes)));
  text += path_text(simulated, *network);
  text +=
      fmt::format("\n{:<18} {:>8} {:>10} {:>8} {:>8}  {}\n", "links", "number", "carried", "mean", "busiest", "which");
  for (const Utilisation& of : utilisations(simulated, *network))
    text +=
        fmt::format("{:<18} {:>8} {:>10} {:>6.1f} % {:>6.1f} %  {}\n", of.name, of.links, bytes_text(double(of.bytes)),
                    100 * of.mean, 100 * of.most, of.bytes ? network->link_name(of.busiest) : "-");
  return text + fmt::format("\nsimulated in {:.1f} s ({:.1f} s for the schedules), {} of memory\n",
                            simulated.compile_seconds + simulated.run_seconds, simulated.compile_seconds,
                            bytes_text(double(peak_memory())));
}

std::string report_json(const Simulated& simulated, const NetworkFile& file) {
  using json = nlohmann::ordered_json;
  const Result& result = simulated.result;
  const auto network = simulation::make_network(file.fabric_of(simulated.problem.nranks));
  const Spread spread = spread_of(result.rank_seconds);
  json parts = json::array(), longest = json::array(), links = json::array();
  for (const Part& part : parts_of(simulated, *network))
    parts.push_back({{"what", part.name}, {"steps", part.steps}, {"seconds", part.seconds}});
  for (const PathStep& step : longest_steps(result.path))
    longest.push_back({{"rank", step.rank},
                       {"lane", step.lane},
                       {"step", step.step},
                       {"slice", step.slice},
                       {"what", step_text(step)},
                       {"link", link_text(step, *network)},
                       {"begin", step.begin},
                       {"end", step.end}});
  for (const Utilisation& of : utilisations(simulated, *network))
    links.push_back({{"class", of.name},
                     {"links", of.links},
                     {"bytes", of.bytes},
                     {"utilisation", {{"mean", of.mean}, {"most", of.most}}},
                     {"busiest", of.bytes ? network->link_name(of.busiest) : ""}});
  const json made = {
      {"collective", collective_name(simulated.problem.collective)},
      {"title", simulated.title},
      {"network", {{"file", file.path}, {"kind", file.kind}}},
      {"ranks", simulated.problem.nranks},
      {"block_bytes", simulated.block_bytes},
      {"slices", simulated.slices},
      {"seconds", result.seconds},
      {"rank_seconds",
       {{"least", spread.least}, {"mean", spread.mean}, {"most", spread.most}, {"slowest", spread.slowest}}},
      {"steps", result.steps},
      {"messages", result.messages},
      {"bytes", result.bytes},
      {"critical_path", {{"steps", result.path.size()}, {"parts", parts}, {"longest", longest}}},
      {"links", links},
      {"simulation",
       {{"schedules_seconds", simulated.compile_seconds},
        {"run_seconds", simulated.run_seconds},
        {"peak_memory_bytes", peak_memory()}}}};
  return made.dump(2) + "\n";
}

}  // namespace tutti::plan
