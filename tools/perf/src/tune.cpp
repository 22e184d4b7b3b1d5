// SPDX-License-Identifier: Apache-2.0
#include "tune.hpp"

#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>
#include <tutti/topology.hpp>

#include "judgement.hpp"
#include "measure.hpp"
#include "memory.hpp"
#include "output_file.hpp"
#include "print.hpp"
#include "timing.hpp"

namespace perf {
namespace {

using Json = nlohmann::ordered_json;
constexpr uint32_t rounds = 7;
// A round of a slow algorithm has fewer calls than -n: so many that it takes about this long.
constexpr double round_limit_us = 2000;
// So many algorithms that seem faster than the choice meet it again, so often.
constexpr size_t most_rivals = 3;
constexpr uint32_t duels = 3;

// A communicator that takes part: one in which an algorithm is forced, or the job's own, which chooses.
struct Contestant {
  std::string name;
  const tutti::Communicator* comm = nullptr;
  uint32_t calls = 1;                   // in a round
  std::vector<uint64_t> schedule = {};  // of each rank, and its slices: equal for equal schedules
  std::vector<double> round_us = {};    // of this rank
};

// An algorithm, and the communicator that has no other for the collective.
struct Forced {
  std::string name;
  tutti::Communicator comm;
};

std::string topology_text(const tutti::Communicator& comm) {
  std::string text;
  uint64_t bytes = 0;
  tutti_comm_topology_file(comm.handle(), nullptr, &bytes);
  text.resize(bytes);
  if (const tutti_status status = tutti_comm_topology_file(comm.handle(), text.data(), &bytes); status < 0)
    throw tutti::Error(status, tutti_comm_error(comm.handle()));
  text.resize(bytes - 1);
  return text;
}

std::string machine_text() {
  std::string model = "unknown processor";
  std::ifstream cpus("/proc/cpuinfo");
  for (std::string line; std::getline(cpus, line);)
    if (line.starts_with("model name") && line.find(": ") != line.npos) {
      model = line.substr(line.find(": ") + 2);
      break;
    }
  return std::to_string(std::thread::hardware_concurrency()) + " x " + model;
}

std::string date_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
  return text;
}

class Tuner {
 public:
  Tuner(const tutti::Communicator& comm, const Options& options)
      : comm_(comm),
        options_(options),
        in_(options.most_bytes, options.registered, nullptr),
        out_(options.most_bytes, options.registered, nullptr) {
    // Zeros: sums of sums stay what they are.
    for (const Memory* memory : {&in_, &out_}) std::memset(memory->host(), 0, memory->size());
  }

  // Appends the points of a collective; rank 0 prints each.
  void tune(const Collective& collective, std::vector<Point>* points) {
    const std::vector<Forced> forced = all_forced(collective);
    const uint64_t size = element_bytes(options_.dtypes[0].code);
    const bool has_data = collective.origin != Origin::nothing;
    uint64_t last = 0;
    for (const uint64_t bytes : has_data ? options_.sizes() : std::vector<uint64_t>{0}) {
      const uint64_t count = collective.count_for(bytes, size, comm_.nranks());
      if (has_data && count * size <= last) continue;  // too small for a block each, or as the size before
      last = count * size;
      Point point = measure(collective, count, forced);
      point.bytes = collective.total_bytes(count, size, comm_.nranks());
      if (comm_.rank() == 0) print(point);
      points->push_back(std::move(point));
    }
  }

 private:
  std::vector<Forced> all_forced(const Collective& collective) const {
    const uint64_t bit = uint64_t{1} << tutti::collective_from_name(collective.name);
    std::vector<std::string> names;
    for (const tutti_algorithm* algorithm : tutti::list_algorithms())
      if (algorithm->collectives & bit) names.emplace_back(algorithm->name);
    for (const tutti_collective* native : tutti::list_collectives())
      if (native->collectives & bit) names.emplace_back(native->name);
    std::vector<Forced> all;
    for (const std::string& name : names) all.push_back({name, forced(collective.name, name)});
    return all;
  }

  // "": it chooses for itself.
  tutti::Communicator forced(const char* collective, const std::string& algorithm) const {
    const std::string rule = std::string(collective) + ":" + algorithm, name = "tutti-perf " + rule;
    tutti_comm_config config = tutti::Communicator::defaults();
    config.name = name.c_str();
    config.rank = comm_.rank();
    config.nranks = comm_.nranks();
    if (!algorithm.empty()) config.algorithms = rule.c_str();
    config.device = "none";
    config.all_gather = [](void* comm, const void* mine, uint64_t bytes, void* all) {
      return tutti_all_gather(static_cast<tutti_comm*>(comm), mine, all, bytes, TUTTI_UINT8, nullptr, nullptr);
    };
    config.all_gather_context = comm_.handle();
    return tutti::Communicator(config);
  }

  Call call_on(const tutti::Communicator& comm, uint64_t count) const {
    Call call;
    call.comm = comm.handle();
    call.rank = comm.rank();
    call.nranks = comm.nranks();
    call.in = in_.data();
    call.out = out_.data();
    call.count = count;
    call.dtype = options_.dtypes[0].code;
    call.op = options_.ops[0].code;
    call.root = options_.root.value_or(0);
    return call;
  }

  // false: the algorithm does not serve this call, on all ranks.
  bool run(const Collective& collective, const Call& call) const {
    const tutti_status status = collective.run(call);
    if (status == TUTTI_NOT_SUPPORTED) return false;
    if (status < 0) throw tutti::Error(status, std::string(collective.name) + ": " + tutti_comm_error(call.comm));
    return true;
  }

  // The warm-up, what is run, and how many calls a round has. false: the algorithm does not serve this call.
  bool prepare(const Collective& collective, uint64_t count, Contestant& contestant) const {
    const Call call = call_on(*contestant.comm, count);
    if (!run(collective, call)) return false;
    for (uint32_t i = 0; i < options_.untimed(); ++i) run(collective, call);
    comm_.barrier();
    const auto start = Clock::now();
    run(collective, call);
    const std::vector<double> mine{microseconds(Clock::now() - start)};
    std::vector<double> all(comm_.nranks());
    comm_.all_gather<double>(mine, all);
    tutti_plan_facts facts{};
    facts.struct_size = sizeof facts;
    tutti_comm_plan(contestant.comm->handle(), tutti::collective_from_name(collective.name), &facts);
    contestant.name = facts.algorithm;
    const std::vector<uint64_t> plan{facts.schedule_hash, facts.slices};
    contestant.schedule.resize(plan.size() * comm_.nranks());
    comm_.all_gather<uint64_t>(plan, contestant.schedule);
    const double fitting = round_limit_us / std::max(std::ranges::max(all), 1e-3);
    contestant.calls = static_cast<uint32_t>(std::clamp(fitting, 1.0, static_cast<double>(options_.iterations)));
    return true;
  }

  void run_rounds(const Collective& collective, uint64_t count, std::span<Contestant* const> contestants) const {
    for (uint32_t round = 0; round < rounds; ++round)
      for (Contestant* contestant : contestants) {
        const Call call = call_on(*contestant->comm, count);
        comm_.barrier();
        const auto start = Clock::now();
        for (uint32_t i = 0; i < contestant->calls; ++i) run(collective, call);
        contestant->round_us.push_back(microseconds(Clock::now() - start) / contestant->calls);
      }
  }

  Point measure(const Collective& collective, uint64_t count, const std::vector<Forced>& forced) const {
    Contestant choice{"", &comm_};
    if (!prepare(collective, count, choice))
      throw tutti::Error(TUTTI_NOT_SUPPORTED, std::string(collective.name) + ": " + tutti_comm_error(comm_.handle()));
    std::vector<Contestant> serving;
    for (const Forced& each : forced)
      if (Contestant contestant{each.name, &each.comm}; prepare(collective, count, contestant))
        serving.push_back(std::move(contestant));
    std::vector<Contestant*> all{&choice};
    for (Contestant& contestant : serving) all.push_back(&contestant);
    run_rounds(collective, count, all);
    Point point;
    point.collective = &collective;
    point.block_bytes = count * element_bytes(options_.dtypes[0].code);
    point.chosen = choice.name;
    judge(collective, count, all, &point);
    return point;
  }

  // Among many algorithms one has the lowest median by chance, and one communicator's memory may lie better than
  // another's. Those that seem faster than the choice meet it again in duels, and only these count.
  void judge(const Collective& collective, uint64_t count, std::vector<Contestant*> all, Point* point) const {
    compare(all, point);
    for (const Contestant* contestant : all) point->us[contestant->name] = median(of_all_ranks(contestant->round_us));
    if (point->ratio() <= alike) return;
    const auto us = [&](const Contestant* contestant) { return point->us.at(contestant->name); };
    std::erase_if(all, [&, schedule = all.front()->schedule](const Contestant* contestant) {
      return contestant->schedule == schedule || us(contestant) * alike > point->chosen_us;
    });
    std::ranges::stable_sort(all, {}, us);
    all.resize(std::min(all.size(), most_rivals));
    std::vector<std::string> names{""};
    for (const Contestant* rival : all) names.push_back(rival->name);
    repeat(collective, count, names, point);
  }

  // Duels of the communicator that chooses for itself and those of the other names, each on communicators of its own.
  void repeat(const Collective& collective, uint64_t count, const std::vector<std::string>& names, Point* point) const {
    std::vector<std::vector<double>> us(names.size()), ratios(names.size());
    for (uint32_t duel = 0; duel < duels; ++duel) {
      std::vector<Forced> fresh;
      for (const std::string& name : names) fresh.push_back({name, forced(collective.name, name)});
      std::vector<Contestant> contestants;
      for (const Forced& each : fresh) contestants.push_back({each.name, &each.comm});
      std::vector<Contestant*> all;
      for (Contestant& contestant : contestants) {
        prepare(collective, count, contestant);
        all.push_back(&contestant);
      }
      run_rounds(collective, count, all);
      for (size_t i = 0; i < names.size(); ++i) {
        us[i].push_back(median(of_all_ranks(contestants[i].round_us)));
        ratios[i].push_back(us[0].back() / us[i].back());
      }
    }
    point->repeated = true;
    point->chosen_us = median(us[0]);
    double most = 0;
    for (size_t i = 1; i < names.size(); ++i)
      if (const double ratio = median(ratios[i]); ratio > most) {
        most = ratio;
        point->rival = names[i];
        point->rival_us = point->chosen_us / ratio;
      }
  }

  // The first one is the choice. Other names may have the same schedule, as trees of two ranks do: its rounds are those
  // of all of them.
  void compare(std::span<Contestant* const> all, Point* point) const {
    std::vector<double> of_choice;
    point->rival.clear();
    for (const Contestant* contestant : all) {
      const std::vector<double> times = of_all_ranks(contestant->round_us);
      if (contestant->schedule == all.front()->schedule) {
        of_choice.insert(of_choice.end(), times.begin(), times.end());
      } else if (const double us = median(times); point->rival.empty() || us < point->rival_us) {
        point->rival = contestant->name;
        point->rival_us = us;
      }
    }
    point->chosen_us = median(of_choice);
  }

  // The rounds' times as -a says.
  std::vector<double> of_all_ranks(const std::vector<double>& mine) const {
    std::vector<double> all(mine.size() * comm_.nranks()), result, of_ranks(comm_.nranks());
    comm_.all_gather<double>(mine, all);
    for (size_t round = 0; round < mine.size(); ++round) {
      for (uint32_t rank = 0; rank < comm_.nranks(); ++rank) of_ranks[rank] = all[rank * mine.size() + round];
      result.push_back(combined(options_.report, of_ranks));
    }
    return result;
  }

  static void print(const Point& point) {
    perf::print("  {:<15} {:12} {:12}  {:<18} {:10.2f}  {:<18} {:10.2f} {:7.2f}\n", point.collective->name, point.bytes,
                point.block_bytes, point.winner(), point.winner_us(), point.chosen, point.chosen_us, point.ratio());
    std::fflush(stdout);
  }

  const tutti::Communicator& comm_;
  const Options& options_;
  Memory in_, out_;
};

// The subject of the measurement, for people and for programs that read both files.
Json described(const Options& options, const tutti::TopologyFile& topology) {
  return {{"machine", machine_text()},
          {"date", date_text()},
          {"command", options.command},
          {"host_of_rank", topology.host_of_rank()},
          {"transports", topology.transports()}};
}

std::string finished_text(const Json& file) { return file.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"; }

std::string judged(const Options& options, const tutti::TopologyFile& topology, const std::vector<Point>& points) {
  Json file = described(options, topology);
  file["judgement"] = judgement_json(points);
  return finished_text(file);
}

std::string tuning_file(const Options& options, const tutti::TopologyFile& topology, const std::vector<Point>& points) {
  Json collectives = Json::object();
  for (const Point& point : points)
    collectives[point.collective->name].push_back({{"block_bytes", point.block_bytes}, {"us", point.us}});
  Json file{{"tutti_tuning", 1}};
  file.update(described(options, topology));
  file["collectives"] = std::move(collectives);
  return finished_text(file);
}

}  // namespace

int tune(const tutti::Communicator& comm, const Options& options) {
  const bool speaks = comm.rank() == 0;
  const tutti::TopologyFile topology(topology_text(comm));
  if (const char* file = std::getenv("TUTTI_TUNING"); speaks && file && *file)
    print("# The default follows TUTTI_TUNING={}\n", file);
  if (speaks)
    print(
        "# tutti-perf {} --tune: {} ranks, medians of {} rounds of {} calls, us ({})\n#\n"
        "# {:<15} {:>12} {:>12}  {:<18} {:>10}  {:<18} {:>10} {:>7}\n",
        tutti_version(), comm.nranks(), rounds, options.iterations, report_name(options.report), "collective", "size",
        "block", "winner", "time", "default", "time", "ratio");
  Tuner tuner(comm, options);
  std::vector<Point> points;
  for (const Collective* collective : options.collectives)
    if (!collective->unequal && collective->least_ranks == 1) tuner.tune(*collective, &points);
  if (points.empty())
    throw tutti::Error(TUTTI_INVALID_ARGUMENT,
                       "--tune: no size is large enough for an element of each block: use a larger -e");
  if (!speaks) return 0;
  print("#\n{}# For the same ranks on the same hosts: TUTTI_TUNING={}\n", judgement_text(points), options.tune_path);
  const bool written = options.json_path.empty() || write_file(options.json_path, judged(options, topology, points));
  return write_file(options.tune_path, tuning_file(options, topology, points)) && written ? 0 : 1;
}

}  // namespace perf
