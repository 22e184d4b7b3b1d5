// SPDX-License-Identifier: Apache-2.0
//
// tutti-conform soak: starts the ranks of the walk, prints what they use interval by interval, and judges it.
#include <fmt/format.h>
#include <tutti/registry.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "command.hpp"
#include "folder.hpp"
#include "options.hpp"
#include "process.hpp"
#include "result.hpp"
#include "runner.hpp"
#include "soak/trend.hpp"
#include "soak/walk.hpp"
#include "worker_messages.hpp"

namespace tutti::conformance {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

struct SoakCommandOptions {
  double minutes = 10;
  double interval = 0;  // seconds; 0: by the length
  std::string plant = "none";
};

// An operation without progress ends after so long; silence of everybody much longer is a hang.
constexpr double operation_timeout = 60, longest_silence = 150;

std::vector<std::string> transports_for(const Selection& selection) {
  std::vector<std::string> names;
  bool chaos = false;
  for (const tutti_transport* transport : list_transports()) {
    const std::string name = transport->name;
    const auto& wanted = selection.transports;
    if (name == "chaos") chaos = true;
    if (name == "chaos" || (!wanted.empty() && std::find(wanted.begin(), wanted.end(), name) == wanted.end())) continue;
    tutti_transport_caps caps{};
    caps.struct_size = sizeof caps;
    if (query_transport(*transport, &caps) == TUTTI_OK && caps.reach != TUTTI_REACH_PROCESS) names.push_back(name);
    take_plugin_error();
  }
  if (names.empty()) throw std::invalid_argument("soak: no transport serves ranks that are processes");
  if (chaos) names.emplace_back("chaos");
  return names;
}

// The id of the plugin that has a transport.
std::string plugin_of(const std::string& transport) {
  for (const PluginRecord& record : list_plugins())
    if (std::find(record.transports.begin(), record.transports.end(), transport) != record.transports.end())
      return record.id;
  return transport;
}

class Soak {
 public:
  Soak(const SoakCommandOptions& options, const Selection& selection) : options_(options), selection_(selection) {
    if (selection.ranks.size() > 1) throw std::invalid_argument("soak: --ranks takes one number");
    if (!selection.ranks.empty()) nranks_ = selection.ranks.front();
    constexpr uint32_t most_ranks = 64;
    if (nranks_ < 2 || nranks_ > most_ranks)
      throw std::invalid_argument(fmt::format("soak: --ranks is {}, expected 2 to {}", nranks_, most_ranks));
    order_.seconds = options.minutes * 60;
    const double interval = options.interval > 0 ? options.interval : std::min(10.0, order_.seconds / 15);
    order_.interval_ms = static_cast<uint32_t>(std::max(50.0, interval * 1000));
    order_.transports = transports_for(selection);
    order_.plant = options.plant;
  }

  int run() {
    fmt::print("soak: {} ranks of 2 threads for {:.1f} min over {}, seed {:#x}; a line each {:.1f} s\n", nranks_,
               options_.minutes, fmt::join(order_.transports, ", "), selection_.seed, order_.interval_ms * 1e-3);
    start();
    while (!over()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (read_samples()) last_word_ = Clock::now();
      if (Clock::now() - last_word_ > std::chrono::duration<double>(longest_silence * selection_.patience)) {
        failures_.push_back(
            fmt::format("nobody has said anything for {} s: a hang", longest_silence * selection_.patience));
        break;
      }
    }
    read_samples();
    return judge();
  }

 private:
  struct Rank {
    std::unique_ptr<Process> process;
    std::ifstream samples;
    std::string rest;
    std::deque<WalkSample> unread;
    bool done = false;
  };

  void start() {
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
    // Faults that the contract allows, over a transport by the seed.
    const std::string over =
        plugin_of(order_.transports[selection_.seed % std::max<size_t>(order_.transports.size() - 1, 1)]);
    const std::vector<std::string> environment = worker_environment(
        {fmt::format("TUTTI_TIMEOUT={}", operation_timeout * selection_.patience), "TUTTI_CHAOS_OVER=" + over,
         "TUTTI_CHAOS=random", "TUTTI_CHAOS_SEED=" + std::to_string(selection_.seed), "TUTTI_CHECKSUM",
         // Freed memory in a thread's cache would count as allocated.
         "GLIBC_TUNABLES=glibc.malloc.tcache_count=0"});
    for (uint32_t r = 0; r < nranks_; ++r) {
      Rank& rank = ranks_.emplace_back();
      rank.process = std::make_unique<Process>(program, environment);
      rank.process->order(Json{{"rank", r},
                               {"nranks", nranks_},
                               {"folder", folder_.path()},
                               {"plugins", selection_.plugins},
                               {"patience", selection_.patience}}
                              .dump());
      rank.process->order(Json{{"case", walk_id(order_)}, {"seed", selection_.seed}}.dump());
    }
  }

  // Have all ranks answered, or has one failed?
  bool over() {
    bool all = true;
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      if (rank.done) continue;
      const bool open = rank.process->read_answers();
      if (const auto answer = rank.process->next_answer()) {
        rank.done = true;
        const Outcome outcome = outcome_from(Json::parse(*answer).at("outcome"));
        if (is_bad(outcome.verdict)) failures_.push_back(fmt::format("rank {}: {}", r, outcome.message));
      } else if (!open) {
        rank.done = true;
        rank.process->wait(5000);
        failures_.push_back(fmt::format("rank {} {}: {}", r, rank.process->how(), rank.process->output_tail()));
      }
      all = all && rank.done;
    }
    return all || !failures_.empty();
  }

  // Takes in what the ranks wrote and prints an interval once all have; whether anything came.
  bool read_samples() {
    bool news = false;
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      if (!rank.samples.is_open()) rank.samples.open(fmt::format("{}/samples-{}", folder_.path(), r));
      rank.samples.clear();
      std::string line;
      for (char c = 0; rank.samples.get(c);) {
        if (c != '\n') {
          rank.rest += c;
          continue;
        }
        WalkSample sample;
        if (from_line(rank.rest, &sample)) rank.unread.push_back(sample);
        rank.rest.clear();
        news = true;
      }
    }
    while (std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return !r.unread.empty(); })) take_interval();
    return news;
  }

  void take_interval() {
    WalkSample sum;
    for (Rank& rank : ranks_) {
      const WalkSample one = rank.unread.front();
      rank.unread.pop_front();
      sum.epochs = std::max(sum.epochs, one.epochs);
      sum.operations += one.operations;
      sum.resident += one.resident;
      sum.allocated += one.allocated;
      sum.descriptors += one.descriptors;
      sum.latency = std::max(sum.latency, one.latency);
    }
    watched_.resident.add(sum.resident);
    watched_.allocated.add(sum.allocated);
    watched_.descriptors.add(sum.descriptors);
    watched_.latency.add(sum.latency);
    operations_ = sum.operations;
    epochs_ = sum.epochs;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    fmt::print(
        "{:8.1f} s  {:6} epochs  {:8} operations  {:8.1f} MiB resident  {:8.2f} MiB allocated  {:5.0f} descriptors  "
        "{:8.1f} us\n",
        seconds, sum.epochs, sum.operations, sum.resident, sum.allocated, sum.descriptors, sum.latency);
    std::fflush(stdout);
  }

  int judge() {
    for (const std::string& growth : watched_.growth()) failures_.push_back(growth);
    if (failures_.empty() && !watched_.resident.known())
      failures_.push_back(
          "the time was too short to say anything about growth: give it more --minutes or a shorter --interval");
    for (const std::string& failure : failures_) fmt::print("FAIL {}\n", failure);
    if (failures_.empty())
      fmt::print("passed: {} epochs, {} operations, every result right, nothing grows\n", epochs_, operations_);
    else
      fmt::print("again: tutti-conform soak --minutes {} --seed {:#x} --ranks {}\n", options_.minutes, selection_.seed,
                 nranks_);
    return failures_.empty() ? 0 : 1;
  }

  const SoakCommandOptions& options_;
  uint32_t nranks_ = 3;
  const Selection& selection_;
  WalkOrder order_;
  Folder folder_;  // outlives the ranks
  std::vector<Rank> ranks_;
  Watched watched_;
  uint64_t operations_ = 0, epochs_ = 0;
  std::vector<std::string> failures_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point last_word_ = Clock::now();
};

}  // namespace

Action add_soak_command(CLI::App& app, Session& session) {
  auto* sub = app.add_subcommand(
      "soak", "A seeded random walk over everything at once, watched for wrong results, leaks and slowness");
  const auto options = std::make_shared<SoakCommandOptions>();
  add_number(*sub, "--minutes", options->minutes, 0.01, 1e6, "how long");
  add_number(*sub, "--interval", options->interval, 0.05, 1e5, "seconds between two lines, 0: by the length");
  sub->add_option("--plant", options->plant, "leaks on purpose, to see that it is found")->group("");
  return [&session, options] {
    require_known("--plant", {options->plant}, {"none", "memory", "descriptor", "latency"});
    return Soak(*options, session.selection).run();
  };
}

}  // namespace tutti::conformance
