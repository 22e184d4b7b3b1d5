// SPDX-License-Identifier: Apache-2.0
#include "simulate.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <stdexcept>

#include "findings.hpp"
#include "quantity.hpp"
#include "request.hpp"

namespace tutti::plan {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// As many slices as the core's selector takes (core/engine/choose/selector.cpp), as far as steps stay countable.
uint64_t usual_slices(const Schedule& schedule, uint32_t nranks, const SimulationShape& shape) {
  constexpr uint64_t worth = 16 << 10, fragment = 64 << 10, most = 64, most_steps = 20'000'000;
  if (!schedule.sliced()) return 1;
  const std::vector<uint64_t> bounds = piece_bounds(schedule, shape.block_bytes / shape.element_bytes);
  uint64_t longest = 0, steps = 1;
  for (size_t i = 0; i + 1 < bounds.size(); ++i) longest = std::max(longest, bounds[i + 1] - bounds[i]);
  for (const auto& lane : schedule.lanes) steps += lane.size();
  const uint64_t bytes = longest * shape.element_bytes;
  if (bytes == 0) return 1;
  const uint64_t slice = std::clamp<uint64_t>(bytes / 4, worth, fragment);
  return std::clamp<uint64_t>((bytes + slice - 1) / slice, 1,
                              std::clamp<uint64_t>(most_steps / steps / nranks, 1, most));
}

Schedule schedule_of(const tutti_algorithm& algorithm, const Problem& problem, uint32_t rank) {
  Schedule schedule;
  std::string error;
  const tutti_status status = build_schedule(algorithm, make_query(problem, rank), &schedule, &error);
  if (status == TUTTI_OK) return schedule;
  const std::string reason = take_plugin_error();
  const std::string text = error + (reason.empty() ? "" : ": ") + reason;
  if (status == TUTTI_NOT_SUPPORTED || status == TUTTI_INVALID_ARGUMENT) throw WrongRequest(text);
  throw std::runtime_error(text);
}

}  // namespace

SimulationShape shape_of(const SimulationOptions& options) {
  SimulationShape shape;
  const auto bytes = [](const char* option, const std::string& text) {
    if (const std::optional<uint64_t> parsed = parse_bytes(text)) return *parsed;
    throw WrongRequest(fmt::format("{} \"{}\": expected a number of bytes, such as 64K or 1MiB", option, text));
  };
  shape.block_bytes = bytes("--size", options.size);
  shape.memory = bytes("--memory", options.memory);
  shape.element_bytes = options.element;
  if (shape.block_bytes % options.element != 0)
    throw WrongRequest(fmt::format("--size {}: expected a multiple of an element's {} bytes (--element), got {} bytes",
                                   options.size, options.element, shape.block_bytes));
  if (options.slices != "auto") {
    const char* const end = options.slices.data() + options.slices.size();
    const auto [rest, error] = std::from_chars(options.slices.data(), end, shape.slices);
    if (error != std::errc() || rest != end || shape.slices == 0 || shape.slices > 1 << 20)
      throw WrongRequest(
          fmt::format("--slices \"{}\": expected a number from 1 to {}, or auto", options.slices, 1 << 20));
  }
  return shape;
}

Simulated simulate(const tutti_algorithm& algorithm, Problem problem, const NetworkFile& network,
                   const SimulationShape& shape) {
  const simulation::Fabric fabric = network.fabric_of(problem.nranks);
  problem.hosts = NetworkFile::hosts_of(fabric);
  Simulated made;
  made.title = title(problem, algorithm.name + (problem.parameters.empty() ? "" : ":" + problem.parameters));
  made.block_bytes = problem.collective == TUTTI_BARRIER ? 0 : shape.block_bytes;
  const int width = std::bit_width(made.block_bytes);
  problem.block_bytes = width ? ~uint64_t{0} >> (64 - width) : 0;  // the size class, as the core asks

  Clock::time_point start = Clock::now();
  const Schedule first = schedule_of(algorithm, problem, 0);
  const uint64_t slices = shape.slices ? shape.slices : usual_slices(first, problem.nranks, shape);
  simulation::Schedules schedules(problem, {made.block_bytes, shape.element_bytes, slices, shape.memory});
  schedules.add(first);
  for (uint32_t rank = 1; rank < problem.nranks; ++rank) schedules.add(schedule_of(algorithm, problem, rank));
  made.compile_seconds = seconds_since(start);
  start = Clock::now();
  made.slices = schedules.slices();
  made.memory = schedules.bytes();
  made.result = simulation::run(schedules, *simulation::make_network(fabric), network.processor);
  made.run_seconds = seconds_since(start);
  made.problem = std::move(problem);
  if (!made.result.error.empty()) throw std::runtime_error(fmt::format("{}: {}", made.title, made.result.error));
  return made;
}

std::vector<Utilisation> utilisations(const Simulated& simulated, const simulation::Network& network) {
  std::vector<Utilisation> all;
  const simulation::Result& result = simulated.result;
  for (const simulation::LinkClass& of : network.classes()) {
    Utilisation& made = all.emplace_back();
    made.name = of.name;
    made.links = of.links;
    made.first = made.busiest = of.first;
    for (uint32_t link = of.first; link < of.first + of.links; ++link) {
      const uint64_t bytes = result.link_bytes[link];
      made.bytes += bytes;
      if (bytes > result.link_bytes[made.busiest]) made.busiest = link;
      made.of_link.push_back(result.seconds > 0 ? double(bytes) * of.per_byte / result.seconds : 0);
    }
    for (const double use : made.of_link) made.mean += use / of.links, made.most = std::max(made.most, use);
  }
  return all;
}

}  // namespace tutti::plan
