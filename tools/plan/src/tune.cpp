// SPDX-License-Identifier: Apache-2.0
#include "tune.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>

#include "plots/panel.hpp"
#include "quantity.hpp"
#include "request.hpp"

namespace tutti::plan {
namespace {

// Steps of all ranks, by those of a middle one and the last: the root of a tree is not like the others. 0: the
// algorithm does not serve, `why` says so.
uint64_t estimated_steps(const tutti_algorithm& algorithm, const Problem& problem, std::string* why) {
  uint64_t most = 0;
  for (const uint32_t rank : {problem.nranks / 2, problem.nranks - 1}) {
    Schedule schedule;
    if (build_schedule(algorithm, make_query(problem, rank), &schedule, why) != TUTTI_OK) {
      const std::string reason = take_plugin_error();
      if (!reason.empty()) *why = reason;
      return 0;
    }
    uint64_t steps = 1;
    for (const auto& lane : schedule.lanes) steps += lane.size();
    most = std::max(most, steps);
  }
  return most * problem.nranks;
}

class Tuner {
 public:
  Tuner(const Tuning& tuning, const NetworkFile& network) : tuning_(tuning), network_(network) {}

  void try_all(uint32_t collective, uint32_t ranks) {
    for (const tutti_algorithm* algorithm : tuning_.algorithms) {
      if (!(algorithm->collectives >> collective & 1)) continue;
      Problem problem;
      problem.collective = collective;
      problem.nranks = ranks;
      problem.lanes = tuning_.lanes;
      problem.hosts = NetworkFile::hosts_of(network_.fabric_of(ranks));
      problem.topology = tuning_.topology;
      std::string why;
      const uint64_t steps = estimated_steps(*algorithm, problem, &why);
      if (steps > tuning_.most_steps)
        why = fmt::format("about {} steps, more than --most-steps {}", steps, tuning_.most_steps);
      for (const uint64_t bytes : tuning_.sizes) {
        Trial trial{collective, ranks, collective == TUTTI_BARRIER ? 0 : bytes, algorithm->name, 0, 1, why};
        if (why.empty()) run(*algorithm, problem, &trial);
        trials.push_back(std::move(trial));
        if (collective == TUTTI_BARRIER) break;
      }
    }
  }

  std::vector<Trial> trials;

 private:
  void run(const tutti_algorithm& algorithm, const Problem& problem, Trial* trial) const {
    SimulationShape shape = tuning_.shape;
    shape.block_bytes = trial->bytes;
    try {
      const Simulated simulated = simulate(algorithm, problem, network_, shape);
      trial->seconds = simulated.result.seconds;
      trial->slices = simulated.slices;
    } catch (const WrongRequest& refused) {
      trial->refused = refused.what();
    }
  }

  const Tuning& tuning_;
  const NetworkFile& network_;
};

using Key = std::tuple<uint32_t, uint32_t, uint64_t>;  // collective, ranks, bytes

// The trials of each point, the fastest first.
std::map<Key, std::vector<const Trial*>> by_point(const std::vector<Trial>& trials) {
  std::map<Key, std::vector<const Trial*>> points;
  for (const Trial& trial : trials)
    if (trial.refused.empty()) points[{trial.collective, trial.ranks, trial.bytes}].push_back(&trial);
  for (auto& [key, of] : points)
    std::ranges::stable_sort(of, [](const Trial* a, const Trial* b) { return a->seconds < b->seconds; });
  return points;
}

}  // namespace

std::vector<Trial> tune(const Tuning& tuning, const NetworkFile& network) {
  Tuner tuner(tuning, network);
  for (const uint32_t collective : tuning.collectives)
    for (const uint32_t ranks : tuning.ranks) tuner.try_all(collective, ranks);
  return std::move(tuner.trials);
}

std::string tuning_table(const std::vector<Trial>& trials, const NetworkFile& network) {
  std::string text =
      fmt::format("{}, {}: the fastest algorithms by simulation; size: bytes of a block\n", network.path, network.kind);
  text += fmt::format("{:<18} {:>6} {:>6}  {:<18} {:>10}  {:<18} {:>10} {:>7}\n", "collective", "ranks", "size",
                      "winner", "time", "second", "time", "ratio");
  for (const auto& [key, of] : by_point(trials)) {
    const auto& [collective, ranks, bytes] = key;
    text += fmt::format("{:<18} {:>6} {:>6}  {:<18} {:>10}", collective_name(collective), ranks, short_size(bytes),
                        of[0]->algorithm, seconds_text(of[0]->seconds));
    if (of.size() > 1)
      text += fmt::format("  {:<18} {:>10} {:>7.2f}", of[1]->algorithm, seconds_text(of[1]->seconds),
                          of[0]->seconds > 0 ? of[1]->seconds / of[0]->seconds : 1);
    text += "\n";
  }
  std::map<std::string, uint64_t> left_out;
  for (const Trial& trial : trials)
    if (!trial.refused.empty())
      ++left_out[fmt::format("{} {}, {} ranks: {}", collective_name(trial.collective), trial.algorithm, trial.ranks,
                             trial.refused)];
  if (!left_out.empty()) text += "left out:\n";
  for (const auto& [what, sizes] : left_out) text += "  " + what + "\n";
  return text;
}

std::string tuning_json(const std::vector<Trial>& trials, const NetworkFile& network) {
  using json = nlohmann::ordered_json;
  json all = json::array(), winners = json::array();
  for (const Trial& trial : trials) {
    json made = {{"collective", collective_name(trial.collective)},
                 {"ranks", trial.ranks},
                 {"block_bytes", trial.bytes},
                 {"algorithm", trial.algorithm}};
    if (trial.refused.empty())
      made.update({{"seconds", trial.seconds}, {"slices", trial.slices}});
    else
      made.update({{"left_out", trial.refused}});
    all.push_back(made);
  }
  for (const auto& [key, of] : by_point(trials))
    winners.push_back({{"collective", collective_name(std::get<0>(key))},
                       {"ranks", std::get<1>(key)},
                       {"block_bytes", std::get<2>(key)},
                       {"algorithm", of[0]->algorithm},
                       {"seconds", of[0]->seconds}});
  return json({{"network", {{"file", network.path}, {"kind", network.kind}}}, {"winners", winners}, {"trials", all}})
             .dump(2) +
         "\n";
}

std::string tuning_plot(const std::vector<Trial>& trials, const NetworkFile& network) {
  constexpr double gap = 90, left = 76, top = 110;
  std::vector<std::string> names;
  std::map<uint32_t, std::map<uint32_t, std::map<std::string, plots::Line>>> panels;  // collective, ranks, algorithm
  for (const Trial& trial : trials) {
    if (!trial.refused.empty() || !trial.bytes || trial.seconds <= 0) continue;
    if (std::ranges::find(names, trial.algorithm) == names.end()) names.push_back(trial.algorithm);
    panels[trial.collective][trial.ranks][trial.algorithm].push_back({double(trial.bytes), trial.seconds * 1e6});
  }
  std::string body;
  double y = top, width = 0;
  plots::draw_legend(names, left, 66, &body);
  for (auto& [collective, of_ranks] : panels) {
    double x = left;
    for (auto& [ranks, of_algorithm] : of_ranks) {
      std::vector<plots::Line> lines;
      for (const std::string& name : names) lines.push_back(of_algorithm[name]);
      plots::Panel(x, y, &body)
          .draw(fmt::format("{}: time, {} ranks", collective_name(collective), ranks), lines, "us");
      x += plots::panel_width + gap;
    }
    width = std::max(width, x - gap + 24);
    y += plots::panel_height + 90;
  }
  return plots::picture(fmt::format("Simulated in {}", network.path), std::max(width, 840.0), y - 20, body);
}

}  // namespace tutti::plan
