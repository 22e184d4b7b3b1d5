// SPDX-License-Identifier: Apache-2.0
#include "findings.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::plan {
namespace {

std::string count(uint64_t n, const char* thing) { return fmt::format("{} {}{}", n, thing, n == 1 ? "" : "s"); }

std::string result_text(const Problem& problem) {
  if (problem.collective == TUTTI_BARRIER) return "No rank leaves before every rank has entered.";
  if (is_scan(problem.collective))
    return fmt::format(
        "Every output chunk holds the contributions of ranks 0 to {} exactly once and in the order of "
        "ranks, loaded once and completed once; nothing else is written.",
        problem.collective == TUTTI_SCAN ? "the rank itself" : "the one before the rank");
  if (is_reducing(problem.collective))
    return "Every output chunk holds each rank's contribution exactly once, loaded once and completed once; nothing "
           "else is written.";
  return "Every output chunk holds the input that it should; nothing else is written.";
}

std::string tree_text(const Proof& proof) {
  const std::string text =
      proof.same_tree ? "All ranks compute each result by the same tree, so results are bitwise equal everywhere."
                      : "Ranks compute results by different trees: rounding may differ between ranks.";
  return text + (proof.rank_order ? "\nOperands stand in rank order: legal for non-commutative operators."
                                  : "\nOperands do not stand in rank order: for commutative operators only.");
}

std::string bytes_text(const Proof& proof) {
  const std::string sent = fmt::format("The busiest rank sends {:.4g} blocks", proof.bytes_sent);
  if (proof.bytes_lower_bound == 0) return sent + ".";
  if (proof.bytes_sent <= proof.bytes_lower_bound * (1 + 1e-9)) return sent + ", which is the known lower bound.";
  return fmt::format("{}; the known lower bound is {:.4g} ({:.2f} times).", sent, proof.bytes_lower_bound,
                     proof.bytes_sent / proof.bytes_lower_bound);
}

std::string hosts_text(const Problem& problem, const std::vector<Schedule>& schedules) {
  const HostTraffic traffic = host_traffic(problem, schedules);
  return fmt::format("{} between hosts; the busiest host sends {:.4g} blocks to others.",
                     count(traffic.messages, "message"), traffic.most_blocks);
}

std::string slices_text(const std::vector<Schedule>& schedules) {
  const Schedule& any = schedules[0];
  if (!any.sliced()) return "It cannot be run in slices.";
  uint32_t copies = 0;
  for (const Schedule& schedule : schedules)
    if (!schedule.scratch.empty()) copies = std::max(copies, schedule.scratch_copies);
  if (copies)
    return fmt::format("It may run in any number of slices, which share {} of scratch: none is reused too soon.",
                       copies == 1 ? "one copy" : fmt::format("{} copies", copies));
  return "It may run in any number of slices, which share nothing.";
}

}  // namespace

HostTraffic host_traffic(const Problem& problem, const std::vector<Schedule>& schedules) {
  std::vector<double> piece;
  double before = 0;
  for (const tutti_cut& cut : schedules[0].cuts) {
    piece.push_back(double(cut.p) / cut.q - before);
    before = double(cut.p) / cut.q;
  }
  piece.push_back(1 - before);
  std::vector<double> sent(1 + *std::ranges::max_element(problem.hosts), 0);
  HostTraffic traffic;
  for (uint32_t rank = 0; rank < schedules.size(); ++rank)
    for (const auto& lane : schedules[rank].lanes)
      for (const Step& step : lane) {
        const tutti_step& op = step.op;
        const bool signals = op.kind == TUTTI_STEP_SIGNAL && !(op.flags & TUTTI_STEP_WAIT);
        if ((op.kind != TUTTI_STEP_SEND && !signals) || problem.hosts[rank] == problem.hosts[op.peer]) continue;
        ++traffic.messages;
        for (uint32_t chunk = op.src.first; chunk < op.src.first + op.src.chunks; ++chunk)
          sent[problem.hosts[rank]] +=
              piece[op.src.buffer == TUTTI_BUFFER_SCRATCH ? schedules[rank].scratch[chunk].piece
                                                          : chunk % piece.size()];
      }
  traffic.most_blocks = *std::ranges::max_element(sent);
  return traffic;
}

std::string title(const Problem& problem, const std::string& algorithm) {
  std::string text =
      fmt::format("{} {} on {}", algorithm, collective_name(problem.collective), count(problem.nranks, "rank"));
  if (!problem.hosts.empty())
    text += fmt::format(" of {}", count(1 + *std::ranges::max_element(problem.hosts), "host"));
  if (has_root(problem.collective)) text += fmt::format(", root {}", problem.root);
  if (!problem.in_place.empty() && problem.in_place[0]) text += ", in place";
  return text;
}

std::string findings(const Problem& problem, const std::vector<Schedule>& schedules, const Proof& proof) {
  std::string text =
      fmt::format("{}, {}, {} in {}, {} ({} per block).\n", count(proof.steps, "step"),
                  count(proof.messages, "message"), count(proof.rounds, "round"), count(proof.lanes, "lane"),
                  count(proof.scratch_chunks, "scratch chunk"), count(schedules[0].pieces(), "piece"));
  text += "Every message has two ends of equal size, for every count and data type.\n";
  text += "No deadlock, even with no buffering and two steps of a lane in flight.\n";
  text += "No races: all conflicting accesses are ordered.\n";
  text += result_text(problem) + "\n";
  text += slices_text(schedules) + "\n";
  text += problem.collective == TUTTI_ALL_TO_ALL_V
              ? "It has no form in place.\n"
              : "In place and out of place exchange the same messages: ranks may differ in it.\n";
  if (!all_know_blocks(problem.collective)) text += "Each rank knows the size of every block that it touches.\n";
  if (is_reducing(problem.collective) && !is_scan(problem.collective)) text += tree_text(proof) + "\n";
  if (proof.canonical) text += "Each tree is the canonical one: it serves TUTTI_ORDER=canonical.\n";
  if (proof.flat) text += "Each result is reduced in one step (flat): it serves exact sums, TUTTI_ORDER=exact.\n";
  text += bytes_text(proof) + "\n";
  if (!problem.hosts.empty()) text += hosts_text(problem, schedules) + "\n";
  text += fmt::format("At most {} in flight from one rank to another.\n", count(proof.most_in_flight, "message"));
  return text;
}

}  // namespace tutti::plan
