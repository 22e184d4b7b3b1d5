// SPDX-License-Identifier: Apache-2.0
#include "engine/choose/selector.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <tutti/base/bits.hpp>
#include <tutti/base/name_list.hpp>

#include "base/failure.hpp"
#include "engine/choose/scratch_layout.hpp"
#include "engine/choose/shape.hpp"
#include "kernels/kernels.hpp"

namespace tutti::core {
namespace {

// The cost for a processor of handing a byte to a transport, or of taking one: about one copy.
constexpr double copy_seconds_per_byte = 8e-11;
// The processor time of a message at each of its ends. It decides where many ranks share a core: a rank that talks to
// all others keeps the core busy there, and opens a link to each.
constexpr double message_seconds = 3e-8;
// Giving a core from a rank that waits to another one, and coming back with the caches cold.
constexpr double switch_seconds = 2e-6;
// Above so many ranks, all ranks' schedules are not made just to cost them; the root's own one stands for all.
constexpr uint32_t simulated_ranks = 64;

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(';', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string known_collectives() {
  std::string known;
  for (uint32_t c = TUTTI_BROADCAST; c <= last_collective; ++c)
    known += (known.empty() ? "" : ", ") + std::string(collective_name(c));
  return known;
}

// The largest of the sizes that are one class: those with as many binary digits.
uint64_t largest_of_class(uint64_t bytes) {
  const int width = std::bit_width(bytes);
  return width ? ~uint64_t{0} >> (64 - width) : 0;
}

// The call of the smallest size of its class, for which all are judged. Ranks may plan calls in orders of their own, as
// persistent ones are planned when they are made, and must choose alike.
Shape of_class(Shape shape) {
  const uint64_t bytes = shape.element_bytes();
  shape.count = (std::bit_floor(shape.count * bytes) + bytes - 1) / bytes;
  return shape;
}

// Does a step reduce a message while it arrives, in parts that know no unit of a wire format?
bool cuts_units(const Schedule& schedule) {
  return std::ranges::any_of(schedule.lanes, [](const std::vector<Step>& lane) {
    return std::ranges::any_of(lane, [](const Step& step) { return step.op.kind == TUTTI_STEP_RECV_REDUCE; });
  });
}

// Is OUT written by reductions alone, and only for the application?
bool keeps_sums(const Schedule& schedule) {
  const auto keeps = [](const Step& step) {
    const auto is_out = [](const tutti_span& span) { return span.chunks && span.buffer == TUTTI_BUFFER_OUT; };
    return (step.op.kind == TUTTI_STEP_REDUCE || !is_out(step.op.dst)) && !is_out(step.op.src) &&
           std::ranges::none_of(step.sources, is_out);
  };
  return std::ranges::all_of(schedule.lanes,
                             [&](const std::vector<Step>& lane) { return std::ranges::all_of(lane, keeps); });
}

// The cost of one rank's schedule by itself: latency and bytes of its messages, all in a row.
double own_cost(const Schedule& schedule, const tutti_query& query, uint64_t block_bytes, const CostModel& model) {
  double seconds = 0;
  for (const auto& lane : schedule.lanes)
    for (const Step& step : lane) {
      const double bytes =
          static_cast<double>(block_bytes) / schedule.pieces() * std::max(step.op.src.chunks, step.op.dst.chunks);
      seconds += model.per_step;
      if (step.op.kind == TUTTI_STEP_SEND || step.op.kind == TUTTI_STEP_SIGNAL) {
        const LinkCost link = model.link(query.rank, step.op.peer);
        seconds += link.latency + link.gap + bytes * link.per_byte;
      }
    }
  return seconds;
}

}  // namespace

AlgorithmFilter::AlgorithmFilter(const std::string& text) {
  if (text.empty()) return;
  for (const std::string& part : parts_of(text)) {
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
    const NameList list = name_list("TUTTI_ALGO=\"" + text + "\": " + name, part.substr(colon + 1));
    if (!list.problem.empty()) throw Failure(TUTTI_INVALID_ARGUMENT, list.problem);
    rule.denies = list.excludes;
    rule.text = text;
    for (std::string algorithm : list.names) {
      const size_t end = std::min(algorithm.find(':'), algorithm.size());
      const std::string parameters = algorithm.substr(std::min(end + 1, algorithm.size()));
      algorithm.resize(end);
      std::string error;
      const auto is_native = [&](const tutti_collective* native) { return algorithm == native->name; };
      if (!find_algorithm(algorithm, &error) && !std::ranges::any_of(list_collectives(), is_native))
        throw Failure(TUTTI_NOT_FOUND, fmt::format("TUTTI_ALGO=\"{}\": {}", text, error));
      if (rule.denies && !parameters.empty())
        throw Failure(TUTTI_INVALID_ARGUMENT,
                      fmt::format("TUTTI_ALGO=\"{}\" rules {} out and has parameters for it, \"{}\": name it alone",
                                  text, algorithm, parameters));
      if (const auto [entry, fresh] = rule.names.try_emplace(algorithm, parameters);
          !fresh && entry->second != parameters)
        throw Failure(TUTTI_INVALID_ARGUMENT,
                      fmt::format("TUTTI_ALGO=\"{}\" names {} with parameters \"{}\" and \"{}\": name it once", text,
                                  algorithm, entry->second, parameters));
    }
  }
}

std::string AlgorithmFilter::refuses(uint32_t collective, const std::string& algorithm) const {
  const auto rule = rules_.find(collective);
  if (rule == rules_.end() || rule->second.names.contains(algorithm) != rule->second.denies) return {};
  return fmt::format("TUTTI_ALGO=\"{}\" rules it out", rule->second.text);
}

std::string AlgorithmFilter::parameters(uint32_t collective, const std::string& algorithm) const {
  const auto rule = rules_.find(collective);
  if (rule == rules_.end()) return {};
  const auto named = rule->second.names.find(algorithm);
  return named == rule->second.names.end() ? std::string() : named->second;
}

Selector::Selector(const Topology& topology, AlgorithmFilter filter, std::vector<const tutti_algorithm*> algorithms,
                   uint32_t lanes, uint64_t scratch_limit, SelectorSettings settings)
    : topology_(topology),
      filter_(std::move(filter)),
      algorithms_(std::move(algorithms)),
      lanes_(lanes),
      scratch_limit_(scratch_limit),
      plugin_(settings.plugin),
      tuning_(std::move(settings.tuning)),
      misfit_(tuning_ ? tuning_->misfit(topology) : "") {
  for (uint32_t rank = 0; rank < topology_.nranks(); ++rank) {
    const RankDescription& of = topology_.rank(rank);
    numa_of_rank_.push_back(of.device.numa >= 0 ? of.device.numa : of.numa);
  }
  topology_table_.struct_size = sizeof topology_table_;
  topology_table_.nranks = topology_.nranks();
  topology_table_.self = this;
  topology_table_.host_of_rank = topology_.host_of_rank().data();
  topology_table_.process_of_rank = topology_.process_of_rank().data();
  topology_table_.device_of_rank = topology_.device_of_rank().data();
  topology_table_.numa_of_rank = numa_of_rank_.data();
  topology_table_.link = [](void* self, uint32_t from, uint32_t to, tutti_link_figures* figures) -> tutti_status {
    const Topology& ranks = static_cast<Selector*>(self)->topology_;
    if (from >= ranks.nranks() || to >= ranks.nranks() || from == to) return TUTTI_INVALID_ARGUMENT;
    const LinkCost cost = ranks.cost(from, to);
    *figures = {static_cast<uint64_t>(std::llround(cost.latency * 1e9)),
                cost.per_byte > 0 ? static_cast<uint64_t>(std::llround(1 / cost.per_byte)) : UINT64_MAX};
    return TUTTI_OK;
  };
}

Problem Selector::problem(const tutti_algorithm& algorithm, const Shape& shape) const {
  Problem problem;
  problem.collective = shape.collective;
  problem.nranks = topology_.nranks();
  problem.root = shape.root;
  problem.lanes = lanes_;
  problem.hosts = topology_.host_of_rank();
  problem.parameters = filter_.parameters(shape.collective, algorithm.name);
  problem.block_bytes = largest_of_class(shape.count * shape.element_bytes());
  problem.topology = {std::shared_ptr<const void>(), &topology_table_};  // outlives it
  return problem;
}

uint64_t Selector::slices_of(const Schedule& schedule, const Shape& shape, uint64_t uncut) const {
  if (!schedule.sliced()) return 1;
  const std::vector<uint64_t> bounds = piece_bounds(schedule, shape.count);
  uint64_t longest = 0;
  for (size_t i = 0; i + 1 < bounds.size(); ++i) longest = std::max(longest, bounds[i + 1] - bounds[i]);
  // At least four slices when they are worth their steps, so that the steps of a chunk overlap; never above a fragment.
  constexpr uint64_t worth = 16 << 10;
  const uint64_t most = topology_.smallest_fragment();
  const uint64_t bytes = longest * shape.element_bytes();
  if (bytes <= uncut) return 1;
  const uint64_t slice = std::clamp(bytes / 4, std::min(worth, most), most);
  return std::max<uint64_t>(1, (bytes + slice - 1) / slice);
}

// The schedules by which the need for scratch is judged besides those of all ranks out of place: in place those of all
// ranks. Above `simulated_ranks` ranks both forms of the root and of the ranks a power of two behind it, which have the
// most to keep in trees.
std::vector<Schedule> Selector::sampled(const tutti_algorithm& algorithm, const Problem& problem) const {
  std::vector<Schedule> sample;
  const bool all = problem.nranks <= simulated_ranks;
  for (const bool in_place : {false, true}) {
    if (all && !in_place) continue;
    Problem asked = problem;
    asked.in_place.assign(problem.nranks, in_place);
    for (uint64_t distance = 0; distance < problem.nranks;) {
      Schedule schedule;
      std::string error;
      const auto rank = static_cast<uint32_t>((problem.root + distance) % problem.nranks);
      if (build_schedule(algorithm, make_query(asked, rank), &schedule, &error) == TUTTI_OK)
        sample.push_back(std::move(schedule));
      distance = all ? distance + 1 : std::max<uint64_t>(1, distance * 2);
    }
  }
  return sample;
}

// The most scratch that any of some ranks needs for any count of this count's size class: a choice holds for the whole
// class.
uint64_t Selector::most_scratch(std::span<const Schedule> schedules, Shape shape, bool cut) const {
  const uint32_t element_bytes = shape.element_bytes();
  shape.count = largest_of_class(shape.count * element_bytes) / element_bytes;
  uint64_t most = 0;
  for (const Schedule& schedule : schedules) {
    if (schedule.scratch.empty()) continue;
    most =
        std::max(most, has_unequal_blocks(shape.collective)
                           ? unequal_scratch_need(schedule, shape.count * topology_.nranks(), element_bytes)
                           : scratch_need(schedule, shape.count, element_bytes, cut ? slices_of(schedule, shape) : 1));
  }
  return most;
}

// In calls on the host a processor hands bytes to transports. In calls on devices a rank's stream does everything,
// one command after the other.
CostModel Selector::model(bool on_device) const {
  CostModel model;
  const LinkCost command = topology_.command_cost();
  if (on_device && command.per_byte > 0) {
    model.link = [this](uint32_t from, uint32_t to) { return topology_.device_cost(from, to); };
    model.send_per_byte = model.receive_per_byte = model.reduce_per_byte = model.copy_per_byte = command.per_byte;
    model.per_message = command.latency;
    return model;
  }
  model.link = [this](uint32_t from, uint32_t to) { return topology_.cost(from, to); };
  model.send_per_byte = model.receive_per_byte = copy_seconds_per_byte;
  model.per_message = message_seconds;
  model.hosts = topology_.host_costs();
  if (topology_.processors_per_rank() < 1) model.per_switch = switch_seconds;
  return model;
}

Candidate Selector::judge(const tutti_algorithm* algorithm, const Shape& shape, const CostModel& model,
                          bool on_device) const {
  const Problem problem = this->problem(*algorithm, shape);
  Candidate candidate;
  candidate.algorithm = algorithm;
  if (!has_bit(algorithm->collectives, problem.collective)) {
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
  if (built < 0) {
    if (const std::string why = take_plugin_error(); !why.empty()) candidate.reason += ": " + why;
    return candidate;
  }
  if (is_in_blocks(shape.wire) && std::ranges::any_of(schedules, cuts_units)) {
    candidate.reason = "it reduces messages while they arrive, which would cut the blocks of float8 (options.wire)";
    return candidate;
  }
  if (shape.keeps_sums() && !std::ranges::all_of(schedules, keeps_sums)) {
    candidate.reason = "its results are more than the sums of one step, which stay float32 (options.wire)";
    return candidate;
  }
  const std::vector<Schedule> sample = sampled(*algorithm, problem);
  // Unequal blocks run in one slice: the number would depend on sizes that not all ranks know.
  cost(candidate, problem, schedules, sample, shape, !has_unequal_blocks(shape.collective), model);
  // On the host slices may cost more steps than their overlap gains, with more ranks than cores for instance. They are
  // kept where the times are alike: a slice stays in the processor's cache.
  if (candidate.slices > 1 && all && !on_device) {
    Candidate whole;
    whole.algorithm = algorithm;
    cost(whole, problem, schedules, sample, shape, false, model);
    // Between hosts they are also sent on from the cache, which the prediction does not know.
    const double alike = topology_.hosts() > 1 ? 0.85 : 1;
    if (whole.reason.empty() && (!candidate.reason.empty() || whole.seconds < alike * candidate.seconds)) return whole;
  }
  return candidate;
}

// Gives a candidate its predicted time, cut into slices or not, or the reason why it is none.
void Selector::cost(Candidate& candidate, const Problem& problem, const std::vector<Schedule>& schedules,
                    const std::vector<Schedule>& sample, const Shape& shape, bool cut, const CostModel& model) const {
  candidate.cut = cut;
  for (const Schedule& schedule : schedules) candidate.lanes = std::max(candidate.lanes, schedule.lanes.size());
  for (const Schedule& schedule : schedules)
    if (cut) candidate.slices = std::max(candidate.slices, slices_of(schedule, shape));
  for (const Schedule& schedule : schedules)
    for (const auto& lane : schedule.lanes) candidate.steps += lane.size() * candidate.slices;
  const uint64_t scratch = std::max(most_scratch(schedules, shape, cut), most_scratch(sample, shape, cut));
  if (scratch > scratch_limit_) {
    candidate.reason =
        fmt::format("it may need {} bytes of scratch at this size, the limit is {}", scratch, scratch_limit_);
    return;
  }
  const uint64_t block = shape.count * shape.element_bytes();
  candidate.seconds = schedules.size() == problem.nranks
                          ? simulate(problem, schedules, block, shape.element_bytes(), candidate.slices, model)
                          : own_cost(schedules[0], make_query(problem, problem.root), block, model);
  if (!std::isfinite(candidate.seconds)) candidate.reason = "the schedules of its ranks do not match one another";
}

std::vector<Candidate> Selector::candidates(const Shape& shape, bool on_device) const {
  std::vector<Candidate> all = judge_algorithms(of_class(shape), on_device);
  if (shape.order != Order::free || shape.must_be_flat()) require_order(shape, all, true);
  add_natives(shape, on_device, all);
  return all;
}

std::vector<Candidate> Selector::judge_algorithms(const Shape& shape, bool on_device) const {
  const CostModel model = this->model(on_device);
  std::vector<Candidate> all;
  for (const tutti_algorithm* algorithm : algorithms_) all.push_back(judge(algorithm, shape, model, on_device));
  sort(shape, on_device, all);
  return all;
}

bool Selector::asks_natives(const Shape& shape, bool on_device) const {
  // collective/1 has no place for counts
  return !natives_.empty() && !on_device && !has_unequal_blocks(shape.collective);
}

// They are asked about the very call: one may refuse a count.
void Selector::add_natives(const Shape& shape, bool on_device, std::vector<Candidate>& all) const {
  if (!asks_natives(shape, on_device)) return;
  for (const NativeGroup* native : natives_) {
    Candidate candidate;
    candidate.native = native;
    candidate.reason = filter_.refuses(shape.collective, native->name());
    if (is_of_application(shape.op)) candidate.reason = "it does not know the operators of the application";
    if (shape.order == Order::canonical)
      candidate.reason = "the order of its operands is not known, and the canonical one is required (TUTTI_ORDER)";
    if (shape.order == Order::exact)
      candidate.reason = "its roundings are not known, and exact sums are required (TUTTI_ORDER, options.order)";
    if (shape.wire) candidate.reason = "it does not know wire formats (options.wire)";
    if (candidate.reason.empty()) candidate.reason = native->refuses(shape, &candidate.seconds);
    all.push_back(std::move(candidate));
  }
  sort(of_class(shape), on_device, all);
}

void Selector::sort(const Shape& shape, bool on_device, std::vector<Candidate>& all) const {
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    if (a.reason.empty() != b.reason.empty()) return a.reason.empty();
    return a.reason.empty() && a.seconds < b.seconds;
  });
  // Where the times are alike: on one host fewer lanes, as each has room of its own in the transport, which wants a
  // place in the caches; between hosts more lanes, as what waits for another host does not hold up the others, unless
  // ranks share cores, where whatever could go on takes the core from others. Then fewer steps: a slice more, or a sum
  // that is not made while the message is read, costs what the prediction does not know.
  const auto alike = std::ranges::find_if(
      all, [&](const Candidate& c) { return !c.reason.empty() || c.native || c.seconds > 1.01 * all.front().seconds; });
  const bool more = topology_.hosts() > 1 && topology_.processors_per_rank() == 1;
  std::stable_sort(all.begin(), alike, [more](const Candidate& a, const Candidate& b) {
    if (a.lanes != b.lanes) return more ? a.lanes > b.lanes : a.lanes < b.lanes;
    return a.steps < b.steps;
  });
  if (!on_device) prefer_measured(shape, all);
}

// Measured candidates come first. Times of an algorithm without parameters say nothing about it with parameters.
void Selector::prefer_measured(const Shape& shape, std::vector<Candidate>& all) const {
  if (!tuning_ || !misfit_.empty()) return;
  const uint64_t block_bytes = shape.count * shape.element_bytes();
  for (Candidate& c : all)
    if (c.reason.empty() && filter_.parameters(shape.collective, c.name()).empty())
      c.measured = tuning_->seconds(shape.collective, c.name(), block_bytes);
  static constexpr double never = std::numeric_limits<double>::infinity();
  std::ranges::stable_sort(all, {}, [](const Candidate& c) { return c.measured.value_or(never); });
}

std::string Selector::why(const Candidate& chosen) const {
  if (plugin_) return fmt::format("chosen by the selector {}", plugin_->name);
  return chosen.measured ? "chosen: the lowest measured time" : "chosen: the lowest predicted time";
}

std::string Selector::tuning_note(uint32_t collective, const std::vector<Candidate>& all) const {
  if (!tuning_) return "";
  if (!misfit_.empty()) return fmt::format("TUTTI_TUNING has no effect: {}", misfit_);
  if (plugin_)
    return fmt::format("TUTTI_TUNING has no effect: the selector {} chooses, by predicted times", plugin_->name);
  if (std::ranges::any_of(all, [](const Candidate& c) { return c.measured.has_value(); })) return "";
  return fmt::format("TUTTI_TUNING has no effect: no candidate was measured at this size; measured: {} of {}",
                     tuning_->sizes(collective), collective_name(collective));
}

uint64_t Selector::judged_count(const Shape& shape, bool on_device) const {
  return asks_natives(shape, on_device) ? shape.count : of_class(shape).count;
}

size_t Selector::pick(const Shape& shape, bool on_device, const std::vector<Candidate>& all) const {
  if (!plugin_) return 0;
  std::vector<tutti_candidate> shown;
  for (const Candidate& c : all)
    shown.push_back({c.name(),
                     c.reason.empty() ? nullptr : c.reason.c_str(),
                     static_cast<uint64_t>(c.seconds * 1e9),
                     c.slices,
                     c.native ? uint64_t{TUTTI_CANDIDATE_NATIVE} : 0,
                     {}});
  const tutti_selection asked{sizeof asked,
                              shape.collective,
                              topology_.nranks(),
                              shape.root,
                              judged_count(shape, on_device),
                              shape.element_bytes(),
                              topology_.host_of_rank().data(),
                              shown.data(),
                              shown.size()};
  uint64_t index = all.size();
  if (const tutti_status status = plugin_->choose(plugin_->self, &asked, &index); status < 0)
    throw Failure(status, fmt::format("selector {}: {}", plugin_->name, take_plugin_error()));
  if (index < all.size() && all[index].reason.empty()) return index;
  throw Failure(TUTTI_INTERNAL, index < all.size() ? fmt::format("selector {} chose {}, which is not a candidate: {}",
                                                                 plugin_->name, all[index].name(), all[index].reason)
                                                   : fmt::format("selector {} chose number {} of {} candidates",
                                                                 plugin_->name, index, all.size()));
}

// Excludes candidates that the order of the shape does not permit; with a free order those whose operands do not stand
// in rank order. Proofs take time: without a plugin that chooses, those behind the first that serves are not looked at.
void Selector::require_order(const Shape& shape, std::vector<Candidate>& all, bool look_at_all) const {
  for (Candidate& candidate : all) {
    if (!candidate.reason.empty()) continue;
    const Proof proof = verify_algorithm(*candidate.algorithm, problem(*candidate.algorithm, shape));
    if (!proof.ok())
      candidate.reason = "it is wrong: " + proof.error;
    else if (shape.order == Order::canonical && !proof.canonical)
      candidate.reason = "its operands are not in the canonical order, which is required (TUTTI_ORDER)";
    else if (shape.order == Order::exact && !proof.flat)
      candidate.reason =
          "it does not reduce all contributions in one step, as exact sums require (TUTTI_ORDER, options.order)";
    else if (shape.must_be_flat() && !proof.flat)
      candidate.reason = "it rounds sums on their way, where codes are rounded once (options.wire)";
    else if (shape.order != Order::exact && !proof.rank_order)
      candidate.reason = "its operands are not in rank order, and the operator does not commute";
    else if (!plugin_ && !look_at_all)
      break;
  }
  std::ranges::stable_partition(all, [](const Candidate& candidate) { return candidate.reason.empty(); });
}

Candidate Selector::choose(const Shape& shape, bool on_device, bool ordered) {
  const Shape judged = of_class(shape);
  const auto key = std::make_tuple(judged.collective, judged.root, judged.count, judged.element_bytes(), on_device,
                                   judged.order, judged.must_be_flat(), ordered);
  auto known = judged_.find(key);
  if (known == judged_.end()) {
    std::vector<Candidate> all = judge_algorithms(judged, on_device);
    if (ordered || judged.order != Order::free || judged.must_be_flat()) require_order(judged, all, false);
    known = judged_.emplace(key, std::move(all)).first;
  }
  std::vector<Candidate> all = known->second;
  add_natives(shape, on_device, all);
  if (all.empty() || !all.front().reason.empty()) {
    std::string reasons;
    for (const Candidate& c : all) reasons += fmt::format("; {}: {}", c.name(), c.reason);
    throw Failure(TUTTI_NOT_SUPPORTED,
                  fmt::format("no algorithm can serve it{}",
                              all.empty() ? "; no algorithm plugin is loaded (TUTTI_PLUGIN_PATH?)" : reasons));
  }
  return all[pick(shape, on_device, all)];
}

}  // namespace tutti::core
