// SPDX-License-Identifier: Apache-2.0
#include "survey.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "findings.hpp"

namespace tutti::plan {
namespace {

// Of one collective by one algorithm: sums over all that was proved, and the figures of the most ranks.
struct Row {
  const tutti_algorithm* algorithm;
  uint32_t collective;
  uint64_t proofs = 0, steps = 0, messages = 0, refused = 0;
  uint32_t most_ranks = 0;
  Proof at_most;
};

struct Task {
  size_t row;
  uint32_t n;
};

std::set<uint32_t> roots(uint32_t collective, uint32_t n) {
  constexpr uint32_t every_root = 17;
  if (!has_root(collective)) return {0};
  if (n > every_root) return {0, 1, n - 1};
  std::set<uint32_t> all;
  for (uint32_t root = 0; root < n; ++root) all.insert(root);
  return all;
}

class Surveyor {
 public:
  explicit Surveyor(const Survey& survey) : survey_(survey) {
    for (const uint32_t collective : survey.collectives)
      for (const tutti_algorithm* algorithm : survey.algorithms)
        if (algorithm->collectives >> collective & 1) rows_.push_back({algorithm, collective, 0, 0, 0, 0, 0, {}});
    // The longest first, so that all processors end at about the same time.
    for (uint32_t n = survey.last; n >= survey.first; --n)
      for (size_t row = 0; row < rows_.size(); ++row) tasks_.push_back({row, n});
  }

  void run() {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
      threads.emplace_back([this] {
        for (size_t task = next_++; task < tasks_.size(); task = next_++) prove(tasks_[task]);
      });
    for (std::thread& thread : threads) thread.join();
  }

  const std::vector<Row>& rows() const { return rows_; }
  const std::string& wrong() const { return wrong_; }

 private:
  void prove(const Task& task) {
    Row& row = rows_[task.row];
    for (const uint32_t root : roots(row.collective, task.n)) {
      Problem problem{.collective = row.collective,
                      .nranks = task.n,
                      .root = root,
                      .lanes = survey_.lanes,
                      .hosts = survey_.hosts,
                      .parameters = survey_.parameters,
                      .topology = survey_.topology};
      const tutti_query query = make_query(problem, 0);
      const bool served = row.algorithm->supports(row.algorithm->self, &query) >= 0;
      const Proof proof = served ? verify_algorithm(*row.algorithm, problem) : Proof();
      const std::lock_guard lock(mutex_);
      if (!served) {
        ++row.refused;
      } else if (!proof.ok()) {
        if (wrong_.empty())
          wrong_ = fmt::format("{} is wrong ({}): {}", title(problem, row.algorithm->name), fault_name(proof.fault),
                               proof.error);
      } else {
        ++row.proofs;
        row.steps += proof.steps;
        row.messages += proof.messages;
        if (task.n < row.most_ranks || (task.n == row.most_ranks && root != 0)) continue;
        row.most_ranks = task.n;
        row.at_most = proof;
      }
    }
  }

  const Survey& survey_;
  std::vector<Row> rows_;
  std::vector<Task> tasks_;
  std::atomic<size_t> next_{0};
  std::mutex mutex_;
  std::string wrong_;
};

std::string line_of(const Row& row, const std::string& parameters) {
  const std::string name = row.algorithm->name + (parameters.empty() ? "" : ":" + parameters);
  std::string line = fmt::format("{:<16} {:<18} {:>7} {:>7} ", collective_name(row.collective), name, row.proofs,
                                 row.refused ? std::to_string(row.refused) : "");
  if (row.proofs == 0) return line + "\n";
  const Proof& proof = row.at_most;
  const double n = row.most_ranks;
  line += fmt::format("{:>5} {:>7} {:>9.1f} {:>9.1f} {:>9.4g} ", row.most_ranks, proof.rounds, double(proof.steps) / n,
                      double(proof.messages) / n, proof.bytes_sent);
  return line + (proof.bytes_lower_bound == 0 ? fmt::format("{:>9} {:>7}\n", "-", "-")
                                              : fmt::format("{:>9.4g} {:>7.2f}\n", proof.bytes_lower_bound,
                                                            proof.bytes_sent / proof.bytes_lower_bound));
}

}  // namespace

std::string survey(const Survey& survey, std::string* wrong) {
  const auto start = std::chrono::steady_clock::now();
  Surveyor surveyor(survey);
  surveyor.run();
  *wrong = surveyor.wrong();
  std::string text =
      "proofs, refused: over all numbers of ranks and all roots. The other columns are those of the most ranks:\n"
      "steps and messages per rank, blocks that the busiest rank sends, and the lower bound of these.\n";
  text +=
      fmt::format("{:<16} {:<18} {:>7} {:>7} {:>5} {:>7} {:>9} {:>9} {:>9} {:>9} {:>7}\n", "collective", "algorithm",
                  "proofs", "refused", "ranks", "rounds", "steps", "messages", "sends", "bound", "ratio");
  Row total{};
  for (const Row& row : surveyor.rows()) {
    text += line_of(row, survey.parameters);
    total.proofs += row.proofs;
    total.refused += row.refused;
    total.steps += row.steps;
    total.messages += row.messages;
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  return text + fmt::format("total: {} rows, {} problems proved, {} refused, {} steps, {} messages, {:.1f} s\n",
                            surveyor.rows().size(), total.proofs, total.refused, total.steps, total.messages,
                            spent.count());
}

}  // namespace tutti::plan
