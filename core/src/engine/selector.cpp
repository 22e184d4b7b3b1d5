// SPDX-License-Identifier: Apache-2.0
#include "engine/selector.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "bootstrap/failure.hpp"
#include "engine/plan.hpp"

namespace tutti::core {
namespace {

// What handing a byte to a transport, or taking one, costs a processor: about one copy.
constexpr double copy_seconds_per_byte = 8e-11;
// Above so many ranks, all ranks' schedules are not made just to cost them; the root's own one stands for all.
constexpr uint32_t simulated_ranks = 64;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string known_collectives() {
  std::string known;
  for (uint32_t c = TUTTI_BROADCAST; c <= TUTTI_BARRIER; ++c)
    known += (known.empty() ? "" : ", ") + std::string(collective_name(c));
  return known;
}

// What one rank's schedule costs by itself: latency and bytes of its messages, all in a row.
double own_cost(const Schedule& schedule, const tutti_query& query, uint64_t block_bytes, const CostModel& model) {
  double seconds = 0;
  for (const auto& lane : schedule.lanes)
    for (const Step& step : lane) {
      const double bytes =
          static_cast<double>(block_bytes) / schedule.pieces() * std::max(step.op.src.chunks, step.op.dst.chunks);
      seconds += model.per_step;
      if (step.op.kind == TUTTI_STEP_SEND || step.op.kind == TUTTI_STEP_SIGNAL) {
        const LinkCost link = model.link(query.rank, step.op.peer);
        seconds += link.latency + bytes * link.per_byte;
      }
    }
  return seconds;
}

}  // namespace

AlgorithmFilter::AlgorithmFilter(const std::string& text) {
  if (text.empty()) return;
  for (const std::string& part : split(text, ';')) {
    const size_t colon = part.find(':');
    const std::string name = part.substr(0, colon);
    const uint32_t collective = collective_from_name(name);
    if (colon == std::string::npos || !collective || colon + 1 == part.size())
      throw Failure(
          TUTTI_INVALID_ARGUMENT,
          fmt::format(
              "TUTTI_ALGO=\"{}\": expected COLLECTIVE:ALGORITHM,... (or COLLECTIVE:^ALGORITHM,...) separated by "
              "semicolons, got \"{}\"; collectives: {}",
              text, part, known_collectives()));
    if (rules_.contains(collective))
      throw Failure(
          TUTTI_INVALID_ARGUMENT,
          fmt::format("TUTTI_ALGO=\"{}\" names {} twice: list its algorithms once, separated by commas", text, name));
    Rule& rule = rules_[collective];
    std::string list = part.substr(colon + 1);
    rule.denies = list.front() == '^';
    if (rule.denies) list.erase(0, 1);
    rule.text = text;
    for (std::string algorithm : split(list, ',')) {
      if (rule.denies && algorithm.starts_with('^')) algorithm.erase(0, 1);
      std::string error;
      if (!find_algorithm(algorithm, &error))
        throw Failure(TUTTI_NOT_FOUND, fmt::format("TUTTI_ALGO=\"{}\": {}", text, error));
      rule.names.insert(algorithm);
    }
  }
}

std::string AlgorithmFilter::refuses(uint32_t collective, const std::string& algorithm) const {
  const auto rule = rules_.find(collective);
  if (rule == rules_.end() || rule->second.names.contains(algorithm) != rule->second.denies) return {};
  return fmt::format("TUTTI_ALGO=\"{}\" rules it out", rule->second.text);
}

Problem Selector::problem(uint32_t collective, uint32_t root) const {
  Problem problem;
  problem.collective = collective;
  problem.nranks = topology_.nranks();
  problem.root = root;
  problem.lanes = lanes_;
  problem.hosts = topology_.host_of_rank();
  return problem;
}

uint64_t Selector::slices_of(const Schedule& schedule, uint64_t count, uint32_t element_bytes) const {
  if (!schedule.sliced()) return 1;
  const std::vector<uint64_t> bounds = piece_bounds(schedule, count);
  uint64_t longest = 0;
  for (size_t i = 0; i + 1 < bounds.size(); ++i) longest = std::max(longest, bounds[i + 1] - bounds[i]);
  // At least four slices when they are worth their steps, so that the steps of a chunk overlap; never above a fragment.
  constexpr uint64_t worth = 16 << 10;
  const uint64_t most = topology_.smallest_fragment();
  const uint64_t bytes = longest * element_bytes;
  const uint64_t slice = std::clamp(bytes / 4, std::min(worth, most), most);
  return std::max<uint64_t>(1, (bytes + slice - 1) / slice);
}

// The most scratch that any rank needs for any count of this count's size class, in place or not: a choice holds for
// the whole class. Above `simulated_ranks` ranks it looks at the root and at the ranks a power of two behind it, which
// have the most to keep in trees.
uint64_t Selector::most_scratch(const tutti_algorithm& algorithm, const Problem& problem, uint64_t count,
                                uint32_t element_bytes) const {
  const int width = std::bit_width(count * element_bytes);
  const uint64_t largest = width ? (~uint64_t{0} >> (64 - width)) / element_bytes : 0;
  uint64_t most = 0;
  for (const bool in_place : {false, true}) {
    Problem asked = problem;
    asked.in_place.assign(problem.nranks, in_place);
    for (uint64_t distance = 0; distance < problem.nranks;) {
      Schedule schedule;
      std::string error;
      const auto rank = static_cast<uint32_t>((problem.root + distance) % problem.nranks);
      if (build_schedule(algorithm, make_query(asked, rank), &schedule, &error) == TUTTI_OK)
        most =
            std::max(most, scratch_need(schedule, largest, element_bytes, slices_of(schedule, largest, element_bytes)));
      distance = problem.nranks <= simulated_ranks ? distance + 1 : std::max<uint64_t>(1, distance * 2);
    }
  }
  return most;
}

Candidate Selector::judge(const tutti_algorithm* algorithm, const Problem& problem, uint64_t count,
                          uint32_t element_bytes) const {
  Candidate candidate;
  candidate.algorithm = algorithm;
  if (!(algorithm->collectives >> problem.collective & 1)) {
    candidate.reason = fmt::format("it does no {}", collective_name(problem.collective));
    return candidate;
  }
  candidate.reason = filter_.refuses(problem.collective, algorithm->name);
  if (!candidate.reason.empty()) return candidate;
  const tutti_query asked = make_query(problem, problem.root);
  if (algorithm->supports(algorithm->self, &asked) < 0) {
    candidate.reason = take_plugin_error();
    if (candidate.reason.empty()) candidate.reason = "it does not support this query and gives no reason";
    return candidate;
  }
  std::vector<Schedule> schedules(1);
  const bool all = problem.nranks <= simulated_ranks;
  const tutti_status built = all ? build_schedules(*algorithm, problem, &schedules, &candidate.reason)
                                 : build_schedule(*algorithm, asked, &schedules[0], &candidate.reason);
  if (built < 0) return candidate;
  for (const Schedule& schedule : schedules)
    candidate.slices = std::max(candidate.slices, slices_of(schedule, count, element_bytes));
  const uint64_t scratch = most_scratch(*algorithm, problem, count, element_bytes);
  if (scratch > scratch_limit_) {
    candidate.reason =
        fmt::format("it may need {} bytes of scratch at this size, the limit is {}", scratch, scratch_limit_);
    return candidate;
  }
  CostModel model;
  model.link = [this](uint32_t from, uint32_t to) { return topology_.cost(from, to); };
  model.send_per_byte = model.receive_per_byte = copy_seconds_per_byte;
  model.processors = topology_.processors_per_rank();
  const uint64_t block = count * element_bytes;
  candidate.seconds = all ? simulate(problem, schedules, block, element_bytes, candidate.slices, model)
                          : own_cost(schedules[0], asked, block, model);
  if (!std::isfinite(candidate.seconds)) candidate.reason = "the schedules of its ranks do not match one another";
  return candidate;
}

std::vector<Candidate> Selector::candidates(uint32_t collective, uint32_t root, uint64_t count,
                                            uint32_t element_bytes) const {
  const Problem asked = problem(collective, root);
  std::vector<Candidate> all;
  for (const tutti_algorithm* algorithm : algorithms_) all.push_back(judge(algorithm, asked, count, element_bytes));
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    if (a.reason.empty() != b.reason.empty()) return a.reason.empty();
    return a.reason.empty() && a.seconds < b.seconds;
  });
  return all;
}

Candidate Selector::choose(uint32_t collective, uint32_t root, uint64_t count, uint32_t element_bytes) {
  const auto size_class = static_cast<uint32_t>(std::bit_width(count * element_bytes));
  auto [entry, fresh] = chosen_.try_emplace({collective, root, size_class}, nullptr);
  if (!fresh && entry->second) {
    Candidate known;
    known.algorithm = entry->second;
    return known;
  }
  std::vector<Candidate> all = candidates(collective, root, count, element_bytes);
  if (all.empty() || !all.front().reason.empty()) {
    chosen_.erase(entry);
    std::string reasons;
    for (const Candidate& c : all) reasons += fmt::format("; {}: {}", c.algorithm->name, c.reason);
    throw Failure(TUTTI_NOT_SUPPORTED,
                  fmt::format("no algorithm can serve it{}",
                              all.empty() ? "; no algorithm plugin is loaded (TUTTI_PLUGIN_PATH?)" : reasons));
  }
  entry->second = all.front().algorithm;
  return all.front();
}

}  // namespace tutti::core
