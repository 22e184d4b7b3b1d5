// SPDX-License-Identifier: Apache-2.0
#include "fuzz/campaign.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <fstream>
#include <list>
#include <map>
#include <stdexcept>
#include <thread>

#include "fuzz/shrinker.hpp"
#include "runner.hpp"

namespace tutti::conformance::fuzz {
namespace {

using Clock = std::chrono::steady_clock;

// A program whose ranks sleep for so long costs little of a machine meanwhile.
constexpr uint64_t long_sleep_ms = 1000;
constexpr double cost_of_sleeper = 0.1;
// Making a program small ends after so long.
constexpr std::chrono::seconds most_shrinking{240};
// While it is made small, an operation without progress ends sooner.
constexpr double short_timeout = 4;
// So often a program that fails only now and then is run before it counts as one that does not fail.
constexpr uint32_t most_attempts = 8;
constexpr std::chrono::seconds between_lines{10};

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// A call that ends at its deadline and one that does not end are one kind of failure.
std::string family(const Verdict& verdict) { return verdict.kind == "stall" ? "hang" : verdict.kind; }

void wait_for_news(const std::list<Trial>& trials) {
  std::vector<pollfd> all;
  for (const Trial& trial : trials)
    for (const int descriptor : trial.descriptors()) all.push_back({descriptor, POLLIN, 0});
  ::poll(all.data(), all.size(), 20);
}

// Runs all side by side: the index of the first that fails in this way, or -1.
int find_failing(const std::vector<Program>& programs, const std::string& kind, const TrialOptions& options) {
  std::list<Trial> running;
  std::map<const Trial*, int> index;
  for (size_t i = 0; i < programs.size(); ++i) index[&running.emplace_back(programs[i], options)] = static_cast<int>(i);
  while (!running.empty()) {
    for (auto trial = running.begin(); trial != running.end();) {
      const auto verdict = trial->poll();
      if (verdict && family(*verdict) == kind) return index.at(&*trial);
      trial = verdict ? running.erase(trial) : std::next(trial);
    }
    wait_for_news(running);
  }
  return -1;
}

void print_small(const Program& program) {
  const std::string file = fmt::format("fuzz-{:x}.program", program.seed);
  std::ofstream(file) << to_text(program);
  fmt::print("{}again: tutti-conform fuzz --replay {}\n", to_text(program), file);
  std::fflush(stdout);
}

// Leaves out of a program what its failure does not need, and prints what is left.
void make_small(const Program& program, const Verdict& verdict, const Orders& orders) {
  const std::string kind = family(verdict);
  TrialOptions options = orders.trial;
  options.timeout = short_timeout;
  uint32_t attempts = 1;
  while (attempts <= most_attempts && find_failing({program}, kind, options) < 0) ++attempts;
  if (attempts > most_attempts) {
    fmt::print("it did not fail again in {} runs: it is printed as it is\n", most_attempts);
    return print_small(program);
  }
  // One that failed at the third run fails about as seldom with less in it.
  const uint32_t repeats = attempts == 1 ? 1 : std::min(2 * attempts, most_attempts);
  fmt::print("it failed again at run {}; it is made small, {} s at most\n", attempts, most_shrinking.count());
  std::fflush(stdout);
  const auto until = Clock::now() + most_shrinking;
  uint64_t tried = 0;
  const Examine examine = [&](const std::vector<Program>& candidates) {
    tried += candidates.size();
    for (uint32_t i = 0; i < repeats; ++i)
      if (const int at = find_failing(candidates, kind, options); at >= 0) return at;
    return -1;
  };
  const Program small = shrink(program, examine, [&] { return Clock::now() < until; });
  fmt::print("smaller in {} trials: {} events of {} are left, {} ranks of {}\n", tried, small.events.size(),
             program.events.size(), small.ranks, program.ranks);
  print_small(small);
}

// Counts of drawn programs, for the last lines.
struct Counts {
  uint64_t programs = 0, calls = 0, findings = 0;
  std::map<std::string, uint64_t> themes, transports, faults;

  void add(const Program& program, const Verdict& verdict) {
    ++programs;
    calls += verdict.calls;
    ++themes[program.theme];
    std::map<std::string, bool> seen;
    for (const Event& e : program.events) {
      if (e.kind == Kind::make) seen[e.transports.empty() ? "all" : e.transports] = true;
      if (e.kind >= Kind::sleep && e.kind <= Kind::shrink) ++faults[kind_name(e.kind)];
    }
    for (const auto& [name, yes] : seen) ++transports[name];
  }
  static std::string listed(const std::map<std::string, uint64_t>& counts) {
    std::string text;
    for (const auto& [name, n] : counts) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, n);
    return text.empty() ? "none" : text;
  }
};

class Campaign {
 public:
  explicit Campaign(const Orders& orders) : orders_(orders) {
    jobs_ = orders.jobs ? orders.jobs : 2 * std::max(1u, std::thread::hardware_concurrency());
  }

  int run() {
    fmt::print("fuzz: {:.0f} s, over {}, seed {:#x}\n", orders_.seconds, fmt::join(orders_.choice.mixes, ", "),
               orders_.seed);
    auto next_line = Clock::now() + between_lines;
    while (!over()) {
      start_some();
      wait_for_news(running_);
      if (const auto found = look(); found && !orders_.keep_going) {
        running_.clear();
        make_small(found->program, found->verdict, orders_);
        break;
      }
      if (Clock::now() >= next_line) {
        next_line += between_lines;
        fmt::print("{:8.1f} s  {} programs  {} calls  {} findings\n", seconds_since(begin_), counts_.programs,
                   counts_.calls, counts_.findings);
        std::fflush(stdout);
      }
    }
    fmt::print("themes: {}\ntransports: {}\ndisturbances: {}\n", Counts::listed(counts_.themes),
               Counts::listed(counts_.transports), Counts::listed(counts_.faults));
    fmt::print("{} programs, {} calls, {} findings, seed {:#x}\n", counts_.programs, counts_.calls, counts_.findings,
               orders_.seed);
    return counts_.findings ? 1 : 0;
  }

 private:
  struct Found {
    Program program;
    Verdict verdict;
  };

  bool time_is_up() const { return seconds_since(begin_) > orders_.seconds; }
  bool over() const { return time_is_up() && running_.empty(); }
  static double cost(const Program& program) { return sleeping_ms(program) > long_sleep_ms ? cost_of_sleeper : 1; }

  void start_some() {
    double load = 0;
    for (const Trial& trial : running_) load += cost(trial.program());
    while (!time_is_up() && load < jobs_) {
      const Program program = generate(case_seed(orders_.seed, std::to_string(next_++)), orders_.choice);
      load += cost(program);
      running_.emplace_back(program, orders_.trial);
    }
  }

  // Takes in verdicts; the first finding.
  std::optional<Found> look() {
    std::optional<Found> first;
    for (auto trial = running_.begin(); trial != running_.end();) {
      const auto verdict = trial->poll();
      if (!verdict) {
        ++trial;
        continue;
      }
      counts_.add(trial->program(), *verdict);
      if (!verdict->good()) {
        ++counts_.findings;
        tell(trial->program(), *verdict);
        if (!first) first = {trial->program(), *verdict};
      }
      trial = running_.erase(trial);
    }
    return first;
  }

  void tell(const Program& program, const Verdict& verdict) const {
    fmt::print("FOUND after {:.1f} s in a program of the theme {}: {}\n  again: tutti-conform fuzz --program {:#x}{}\n",
               seconds_since(begin_), program.theme, verdict.text, program.seed, orders_.selecting);
    std::fflush(stdout);
  }

  const Orders& orders_;
  double jobs_ = 1;
  uint64_t next_ = 0;
  std::list<Trial> running_;
  Counts counts_;
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace

int campaign(const Orders& orders) { return Campaign(orders).run(); }

int replay(const Program& program, uint32_t times, const Orders& orders) {
  uint64_t calls = 0, findings = 0;
  for (uint32_t i = 0; i < times; ++i) {
    const Verdict verdict = try_program(program, orders.trial);
    calls += verdict.calls;
    if (verdict.good()) continue;
    ++findings;
    fmt::print("FOUND: {}\n", verdict.text);
    std::fflush(stdout);
    if (!orders.shrink) continue;
    make_small(program, verdict, orders);
    break;
  }
  fmt::print("{} programs, {} calls, {} findings, seed {:#x}\n", times, calls, findings, program.seed);
  return findings ? 1 : 0;
}

}  // namespace tutti::conformance::fuzz
