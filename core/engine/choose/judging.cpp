// SPDX-License-Identifier: Apache-2.0
//
// The part of the selector that predicts times: what it costs to judge an algorithm grows with the steps of all ranks,
// so algorithms that cannot be the best are not looked at further than that needs.
#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <tutti/base/bits.hpp>

#include "engine/choose/scratch_layout.hpp"
#include "engine/choose/selector.hpp"

namespace tutti::core {
namespace {

// The cost for a processor of handing a byte to a transport, or of taking one: about one copy.
constexpr double copy_seconds_per_byte = 8e-11;
// The processor time of a message at each of its ends. It decides where many ranks share a core: a rank that talks to
// all others keeps the core busy there.
constexpr double message_seconds = 3e-8;
// It also opens a link to each: 0.24 ms at each end, in ten thousand calls, where ranks share cores.
constexpr double link_seconds = 2.4e-8;
// Giving a core from a rank that waits to another one, and coming back with the caches cold.
constexpr double switch_seconds = 2e-6;
// A rank that waits for a message through memory comes back to such a core.
constexpr double turn_seconds = 2e-6;
// A rank that waits for a message of the operating system comes back to a core that others want.
constexpr double wake_seconds = 7e-6;
// So many messages wait in a socket, where blocks have at most so many bytes.
constexpr double calls_in_a_row = 8;
constexpr uint64_t buffered_block = 64 << 10;
// Above so many ranks, all ranks' schedules are not made just to cost them; the root's own one stands for all.
constexpr uint32_t simulated_ranks = 64;

// Up to so many ranks, each candidate's schedules are made for all of them: those of a few would cost as much.
constexpr uint32_t few_ranks = 8;

// The largest of the sizes that are one class: those with as many binary digits.
uint64_t largest_of_class(uint64_t bytes) {
  const int width = std::bit_width(bytes);
  return width ? ~uint64_t{0} >> (64 - width) : 0;
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

Problem Selector::problem(const tutti_algorithm& algorithm, const Shape& shape) const {
  Problem problem;
  problem.collective = shape.collective;
  problem.nranks = topology_.nranks();
  problem.root = shape.root;
  problem.lanes = lanes_;
  problem.hosts = topology_.host_of_rank();
  problem.parameters = filter_of(shape).parameters(shape.collective, algorithm.name);
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
// ranks. Above `few_ranks` ranks those of the root and of the ranks a power of two behind it, which have the most to
// keep in trees; above `simulated_ranks` ranks out of place as well.
std::vector<Schedule> Selector::sampled(const tutti_algorithm& algorithm, const Problem& problem) const {
  std::vector<Schedule> sample;
  const bool all = problem.nranks <= few_ranks;
  for (const bool in_place : {false, true}) {
    if (problem.nranks <= simulated_ranks && !in_place) continue;
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
  if (topology_.processors_per_rank() < 1) {
    model.per_switch = switch_seconds;
    model.per_peer = link_seconds;
    if (topology_.hosts() == 1) model.calls_in_a_row = calls_in_a_row;
    model.per_wake = wake_seconds;
    model.per_turn = turn_seconds;
  }
  return model;
}

// `seconds` of an algorithm that may be a candidate is about the least that it can take.
Candidate Selector::admit(const tutti_algorithm* algorithm, const Shape& shape, const CostModel& model) const {
  const Problem problem = this->problem(*algorithm, shape);
  Candidate candidate;
  candidate.algorithm = algorithm;
  if (!has_bit(algorithm->collectives, problem.collective)) {
    candidate.reason = fmt::format("it does no {}", collective_name(problem.collective));
    return candidate;
  }
  candidate.reason = filter_of(shape).refuses(problem.collective, algorithm->name);
  if (!candidate.reason.empty()) return candidate;
  const tutti_query asked = make_query(problem, problem.root);
  if (algorithm->supports(algorithm->self, &asked) < 0) {
    candidate.reason = take_plugin_error();
    if (candidate.reason.empty()) candidate.reason = "it does not support this query and gives no reason";
    return candidate;
  }
  candidate.seconds = least_time(*algorithm, problem, shape, model);
  return candidate;
}

// About the least time that an algorithm can take, by the work of a few ranks, the root and leaves of trees among them:
// the others of a host work as long as the least of these. 0 where judge() finds a reason, or costs as little.
double Selector::least_time(const tutti_algorithm& algorithm, const Problem& problem, const Shape& shape,
                            const CostModel& model) const {
  const uint32_t n = problem.nranks;
  if (n <= few_ranks) return 0;
  const uint64_t block = shape.count * shape.element_bytes();
  double most = 0, least = std::numeric_limits<double>::infinity();
  for (const uint32_t distance : {0u, 1u, n / 2, n - 1}) {
    const uint32_t rank = (problem.root + distance) % n;
    const tutti_query asked = make_query(problem, rank);
    Schedule schedule;
    std::string error;
    if (build_schedule(algorithm, asked, &schedule, &error) < 0) return 0;
    if (n > simulated_ranks) return own_cost(schedule, asked, block, model);
    const double work = work_of_rank(problem, rank, schedule, block, shape.element_bytes(), model);
    most = std::max(most, work);
    least = std::min(least, work);
  }
  std::vector<double> ranks(model.hosts.size(), 0);
  for (const uint32_t host : problem.hosts)
    if (host < ranks.size()) ranks[host] += 1;
  for (size_t host = 0; host < ranks.size(); ++host)
    most = std::max(most, least * ranks[host] / model.hosts[host].processors);
  return most;
}

// A candidate that admit() found. Where its time is above `limit`, only that is known.
Candidate Selector::judge(const tutti_algorithm* algorithm, const Shape& shape, const CostModel& model, bool on_device,
                          double limit) const {
  Candidate candidate;
  candidate.algorithm = algorithm;
  Made made{this->problem(*algorithm, shape), std::vector<Schedule>(1), std::nullopt};
  const Problem& problem = made.problem;
  std::vector<Schedule>& schedules = made.schedules;
  const bool all = problem.nranks <= simulated_ranks;
  const tutti_status built = all ? build_schedules(*algorithm, problem, &schedules, &candidate.reason)
                                 : build_schedule(*algorithm, make_query(problem, problem.root), &schedules[0],
                                                  &candidate.reason);
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
  // On the host slices may cost more steps than their overlap gains, with more ranks than cores for instance. They are
  // kept where the times are alike: a slice stays in the processor's cache. Between hosts they are also sent on from
  // the cache, which the prediction does not know.
  const double alike = topology_.hosts() > 1 ? 0.85 : 1;
  // Unequal blocks run in one slice: the number would depend on sizes that not all ranks know.
  cost(candidate, made, shape, !has_unequal_blocks(shape.collective), model, limit / alike);
  if (candidate.slices > 1 && all && !on_device) {
    Candidate whole;
    whole.algorithm = algorithm;
    cost(whole, made, shape, false, model, limit);
    if (whole.reason.empty() && (!candidate.reason.empty() || whole.seconds < alike * candidate.seconds)) return whole;
  }
  return candidate;
}

// Gives a candidate its predicted time, cut into slices or not, or the reason why it is none. Above `limit` the time is
// only known to be above, and reasons are not looked for.
void Selector::cost(Candidate& candidate, Made& made, const Shape& shape, bool cut, const CostModel& model,
                    double limit) const {
  const Problem& problem = made.problem;
  const std::vector<Schedule>& schedules = made.schedules;
  candidate.cut = cut;
  for (const Schedule& schedule : schedules) candidate.lanes = std::max(candidate.lanes, schedule.lanes.size());
  for (const Schedule& schedule : schedules)
    if (cut) candidate.slices = std::max(candidate.slices, slices_of(schedule, shape));
  for (const Schedule& schedule : schedules)
    for (const auto& lane : schedule.lanes) candidate.steps += lane.size() * candidate.slices;
  const uint64_t block = shape.count * shape.element_bytes();
  candidate.seconds = schedules.size() == problem.nranks
                          ? simulate(problem, schedules, block, shape.element_bytes(), candidate.slices, model, limit)
                          : own_cost(schedules[0], make_query(problem, problem.root), block, model);
  if (!std::isfinite(candidate.seconds)) candidate.reason = "the schedules of its ranks do not match one another";
  if (!candidate.reason.empty() || candidate.seconds > limit) return;
  if (!made.sample) made.sample = sampled(*candidate.algorithm, problem);
  const uint64_t scratch = std::max(most_scratch(schedules, shape, cut), most_scratch(*made.sample, shape, cut));
  if (scratch > scratch_limit_)
    candidate.reason =
        fmt::format("it may need {} bytes of scratch at this size, the limit is {}", scratch, scratch_limit_);
}

// The algorithms, best first, refused ones last. Unless `every` time is wanted, those that cannot be the best have a
// lower bound of theirs, and may be refused ones.
std::vector<Candidate> Selector::judge_algorithms(const Shape& shape, bool on_device, bool every) const {
  CostModel model = this->model(on_device);
  if (shape.count * shape.element_bytes() > buffered_block) model.calls_in_a_row = 1;
  std::vector<Candidate> all;
  for (const tutti_algorithm* algorithm : algorithms_) all.push_back(admit(algorithm, shape, model));
  std::vector<Candidate*> admitted;
  for (Candidate& candidate : all)
    if (candidate.reason.empty()) admitted.push_back(&candidate);
  std::ranges::stable_sort(admitted, {}, &Candidate::seconds);
  double limit = std::numeric_limits<double>::infinity();
  for (Candidate* candidate : admitted) {
    if (candidate->seconds > limit) break;
    *candidate = judge(candidate->algorithm, shape, model, on_device, limit);
    if (candidate->reason.empty() && !every) limit = std::min(limit, alike_times() * candidate->seconds);
  }
  sort(shape, on_device, all);
  return all;
}

}  // namespace tutti::core
