// SPDX-License-Identifier: Apache-2.0
//
// survival: kills or stops a rank of many small jobs at seeded moments and holds the survivors to what is promised: no
// hang, no wrong answer, the lost rank named by all, and a new communicator of the survivors that works.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <tuple>

#include "trial.hpp"

namespace {

using survival::Fault;
using survival::Outcome;
using survival::Trial;

constexpr char kUsage[] =
    "usage: survival [--kills N] [--stops N] [--pairs N] [--seed FIRST] [--verbose]\n"
    "  --kills N     trials with SIGKILL (10); each five over one transport meet all moments\n"
    "  --stops N     trials with SIGSTOP (1)\n"
    "  --pairs N     trials with SIGKILL of two ranks within 30 ms (1)\n"
    "  --seed FIRST  the first trial's seed (0); the others follow\n"
    "  --verbose     tells each trial and what the survivors were told\n";

struct Row {
  int trials = 0, noticed = 0, twice = 0, wrong = 0;
  double slowest_ms = 0, back_ms = 0;
};

class Campaign {
 public:
  Campaign(std::string program, bool verbose) : program_(std::move(program)), verbose_(verbose) {}

  void run(Fault fault, uint64_t first, uint64_t n) {
    for (uint64_t seed = first; seed < first + n; ++seed) {
      const Trial trial = survival::make_trial(seed, fault);
      const Outcome outcome = survival::run(trial, program_);
      Row& row = rows_[{trial.fault, trial.moment, trial.carrier}];
      ++row.trials;
      row.noticed += outcome.noticed;
      row.twice += outcome.twice;
      row.wrong += !outcome.defects.empty();
      row.slowest_ms = std::max(row.slowest_ms, outcome.slowest_ms);
      row.back_ms = std::max(row.back_ms, outcome.back_ms);
      if (verbose_ || !outcome.defects.empty())
        std::printf("%s: %s\n", describe(trial).c_str(), outcome.defects.empty() ? "good" : "WRONG");
      for (const std::string& defect : outcome.defects) std::printf("    %s\n", defect.c_str());
      if (verbose_)
        for (const std::string& error : outcome.errors) std::printf("    told: %s\n", error.c_str());
      std::fflush(stdout);
    }
  }

  // 0 when nothing was wrong.
  int report() const {
    int trials = 0, wrong = 0;
    std::printf("%-9s %-14s %-8s %7s %8s %12s %10s %6s %6s\n", "fault", "moment", "over", "trials", "noticed",
                "slowest ms", "shrunk ms", "twice", "wrong");
    for (const auto& [key, row] : rows_) {
      const auto& [fault, moment, carrier] = key;
      std::printf("%-9s %-14s %-8s %7d %8d %12.1f %10.1f %6d %6d\n", name_of(fault), name_of(moment), name_of(carrier),
                  row.trials, row.noticed, row.slowest_ms, row.back_ms, row.twice, row.wrong);
      trials += row.trials;
      wrong += row.wrong;
    }
    std::printf("%d trials, %d wrong\n", trials, wrong);
    return wrong == 0 && trials > 0 ? 0 : 1;
  }

 private:
  std::string program_;
  bool verbose_;
  std::map<std::tuple<Fault, survival::Moment, survival::Carrier>, Row> rows_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "rank") == 0) return survival::run_rank(argc - 1, argv + 1);
  uint64_t kills = 10, stops = 1, pairs = 1, seed = 0;
  bool verbose = false;
  const std::map<std::string, uint64_t*> numbers{
      {"--kills", &kills}, {"--stops", &stops}, {"--pairs", &pairs}, {"--seed", &seed}};
  for (int i = 1; i < argc; ++i) {
    const auto number = numbers.find(argv[i]);
    char* end = nullptr;
    if (std::strcmp(argv[i], "--verbose") == 0) {
      verbose = true;
    } else if (number != numbers.end() && i + 1 < argc &&
               (*number->second = std::strtoull(argv[++i], &end, 10), !*end)) {
      continue;
    } else {
      std::fputs(kUsage, stderr);
      return 2;
    }
  }
  char program[4096] = "";
  if (::readlink("/proc/self/exe", program, sizeof program - 1) < 0) return 2;
  Campaign campaign(program, verbose);
  campaign.run(Fault::kill, seed, kills);
  campaign.run(Fault::stop, seed, stops);
  campaign.run(Fault::kill_two, seed, pairs);
  return campaign.report();
}
