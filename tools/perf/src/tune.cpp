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
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <tutti/topology.hpp>

#include "measure.hpp"
#include "memory.hpp"
#include "output_file.hpp"
#include "print.hpp"
#include "timing.hpp"

namespace perf {
namespace {

using Json = nlohmann::ordered_json;
constexpr uint32_t rounds = 7;

// An algorithm, and the communicator that has no other for the collective.
struct Contestant {
  std::string name;
  tutti::Communicator comm;
  std::vector<double> round_us = {};  // of this rank
};

// The result for one size of one collective, equal on all ranks.
struct Point {
  const Collective* collective = nullptr;
  uint64_t bytes = 0, block_bytes = 0;
  std::map<std::string, double> us;  // by algorithm
  std::string chosen;                // without --tune
  const std::string& winner() const {
    return std::ranges::min_element(us, {}, [](const auto& entry) { return entry.second; })->first;
  }
  double ratio() const { return us.at(chosen) / us.at(winner()); }
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
    std::vector<Contestant> contestants = contestants_of(collective);
    const uint64_t size = element_bytes(options_.dtypes[0].code);
    const bool has_data = collective.origin != Origin::nothing;
    uint64_t last = 0;
    for (const uint64_t bytes : has_data ? options_.sizes() : std::vector<uint64_t>{0}) {
      const uint64_t count = collective.count_for(bytes, size, comm_.nranks());
      if (has_data && count * size <= last) continue;  // too small for a block each, or as the size before
      last = count * size;
      Point point = measure(collective, count, contestants);
      point.bytes = collective.total_bytes(count, size, comm_.nranks());
      if (comm_.rank() == 0) print(point);
      points->push_back(std::move(point));
    }
  }

 private:
  std::vector<Contestant> contestants_of(const Collective& collective) const {
    const uint64_t bit = uint64_t{1} << tutti::collective_from_name(collective.name);
    std::vector<std::string> names;
    for (const tutti_algorithm* algorithm : tutti::list_algorithms())
      if (algorithm->collectives & bit) names.emplace_back(algorithm->name);
    for (const tutti_collective* native : tutti::list_collectives())
      if (native->collectives & bit) names.emplace_back(native->name);
    std::vector<Contestant> contestants;
    for (const std::string& name : names) contestants.push_back({name, forced(collective.name, name)});
    return contestants;
  }

  tutti::Communicator forced(const char* collective, const std::string& algorithm) const {
    const std::string rule = std::string(collective) + ":" + algorithm, name = "tutti-perf " + rule;
    tutti_comm_config config = tutti::Communicator::defaults();
    config.name = name.c_str();
    config.rank = comm_.rank();
    config.nranks = comm_.nranks();
    config.algorithms = rule.c_str();
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

  Point measure(const Collective& collective, uint64_t count, std::vector<Contestant>& contestants) const {
    std::vector<Contestant*> serving;
    for (Contestant& contestant : contestants) {
      const Call call = call_on(contestant.comm, count);
      if (!run(collective, call)) continue;
      for (uint32_t i = 0; i < options_.untimed(); ++i) run(collective, call);
      contestant.round_us.clear();
      serving.push_back(&contestant);
    }
    for (uint32_t round = 0; round < rounds; ++round)
      for (Contestant* contestant : serving) {
        const Call call = call_on(contestant->comm, count);
        comm_.barrier();
        const auto start = Clock::now();
        for (uint32_t i = 0; i < options_.iterations; ++i) run(collective, call);
        contestant->round_us.push_back(microseconds(Clock::now() - start) / options_.iterations);
      }
    Point point;
    point.collective = &collective;
    point.block_bytes = count * element_bytes(options_.dtypes[0].code);
    for (const Contestant* contestant : serving)
      point.us[contestant->name] = median(of_all_ranks(contestant->round_us));
    if (!run(collective, call_on(comm_, count)))
      throw tutti::Error(TUTTI_NOT_SUPPORTED, std::string(collective.name) + ": " + tutti_comm_error(comm_.handle()));
    tutti_plan_facts facts{};
    facts.struct_size = sizeof facts;
    tutti_comm_plan(comm_.handle(), tutti::collective_from_name(collective.name), &facts);
    point.chosen = facts.algorithm;
    return point;
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
                point.block_bytes, point.winner(), point.us.at(point.winner()), point.chosen, point.us.at(point.chosen),
                point.ratio());
    std::fflush(stdout);
  }

  const tutti::Communicator& comm_;
  const Options& options_;
  Memory in_, out_;
};

std::string tuning_file(const Options& options, const tutti::TopologyFile& topology, const std::vector<Point>& points) {
  Json collectives = Json::object();
  for (const Point& point : points)
    collectives[point.collective->name].push_back({{"block_bytes", point.block_bytes}, {"us", point.us}});
  const Json file{{"tutti_tuning", 1},
                  {"machine", machine_text()},
                  {"date", date_text()},
                  {"command", options.command},
                  {"host_of_rank", topology.host_of_rank()},
                  {"transports", topology.transports()},
                  {"collectives", std::move(collectives)}};
  return file.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void print_end(const Options& options, const std::vector<Point>& points) {
  constexpr double alike = 1.1;
  const auto near = std::ranges::count_if(points, [](const Point& point) { return point.ratio() <= alike; });
  const Point& worst = *std::ranges::max_element(points, {}, &Point::ratio);
  print(
      "#\n# The default is within 10 % of the winner at {:.0f} % of {} points; worst ratio {:.2f}: {} of {} bytes\n",
      100.0 * static_cast<double>(near) / static_cast<double>(points.size()), points.size(), worst.ratio(),
      worst.collective->name, worst.bytes);
  print("# For the same ranks on the same hosts: TUTTI_TUNING={}\n", options.tune_path);
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
  print_end(options, points);
  return write_file(options.tune_path, tuning_file(options, topology, points)) ? 0 : 1;
}

}  // namespace perf
