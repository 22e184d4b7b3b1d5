// SPDX-License-Identifier: Apache-2.0
#include "engine/choose/selector.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <tutti/base/bits.hpp>

#include "base/failure.hpp"
#include "base/hash.hpp"
#include "engine/choose/scratch_layout.hpp"
#include "engine/choose/shape.hpp"
#include "kernels/kernels.hpp"

namespace tutti::core {
namespace {

// The call of the smallest size of its class, for which all are judged. Ranks may plan calls in orders of their own, as
// persistent ones are planned when they are made, and must choose alike.
Shape of_class(Shape shape) {
  const uint64_t bytes = shape.element_bytes();
  shape.count = (std::bit_floor(shape.count * bytes) + bytes - 1) / bytes;
  return shape;
}

}  // namespace

Selector::Selector(const Topology& topology, AlgorithmFilter filter, std::vector<const tutti_algorithm*> algorithms,
                   uint32_t lanes, uint64_t scratch_limit, SelectorSettings settings)
    : topology_(topology),
      filter_(std::move(filter)),
      algorithms_(std::move(algorithms)),
      lanes_(lanes),
      scratch_limit_(scratch_limit),
      plugin_(settings.plugin),
      tuning_(std::move(settings.tuning)),
      misfit_(tuning_ ? tuning_->misfit(topology) : ""),
      judgements_(Judgements::of(settings.communicator)) {
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

uint64_t Selector::algorithms_of_call(const char* call, const char* text) {
  if (!text || !*text) return 0;
  const uint64_t hash = std::max<uint64_t>(hash_text(text), 1);
  if (!of_calls_.contains(hash)) of_calls_.emplace(hash, AlgorithmFilter(call, text));
  return hash;
}

std::vector<Candidate> Selector::candidates(const Shape& shape, bool on_device) const {
  std::vector<Candidate> all = judge_algorithms(of_class(shape), on_device, true);
  if (shape.order != Order::free || shape.must_be_flat()) require_order(shape, all, true);
  add_natives(shape, on_device, all);
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
    candidate.reason = filter_of(shape).refuses(shape.collective, native->name());
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
  const auto alike = std::ranges::find_if(all, [&](const Candidate& c) {
    return !c.reason.empty() || c.native || c.seconds > alike_times() * all.front().seconds;
  });
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
    if (c.reason.empty() && filter_of(shape).parameters(shape.collective, c.name()).empty())
      c.measured = tuning_->seconds(shape.collective, c.name(), block_bytes);
  static constexpr double never = std::numeric_limits<double>::infinity();
  std::ranges::stable_sort(all, {}, [](const Candidate& c) { return c.measured.value_or(never); });
}

std::string Selector::why(const Candidate& chosen, const std::vector<Candidate>& all) const {
  if (plugin_) return fmt::format("chosen by the selector {}", plugin_->name);
  if (chosen.measured) return "chosen: the lowest measured time";
  double least = chosen.seconds;
  for (const Candidate& c : all)
    if (c.reason.empty()) least = std::min(least, c.seconds);
  if (least == chosen.seconds) return "chosen: the lowest predicted time";
  const double percent = std::ceil(100 * (chosen.seconds / least - 1));
  return fmt::format("chosen: the lowest predicted time within {:.0f} %", percent);
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
    else if (!shape.must_be_flat() && !proof.rank_order)
      candidate.reason = "its operands are not in rank order, and the operator does not commute";
    else if (!plugin_ && !look_at_all)
      break;
  }
  std::ranges::stable_partition(all, [](const Candidate& candidate) { return candidate.reason.empty(); });
}

Candidate Selector::choose(const Shape& shape, bool on_device, bool ordered) {
  const Shape judged = of_class(shape);
  const auto key = std::make_tuple(judged.collective, judged.root, judged.count, judged.element_bytes(), on_device,
                                   judged.order, judged.must_be_flat(), ordered, judged.algorithms);
  const bool restricted = ordered || judged.order != Order::free || judged.must_be_flat();
  std::vector<Candidate> all = judgements_->find(key, [&] {
    const bool every = restricted || plugin_ || (tuning_ && misfit_.empty());  // the best of all need not be chosen
    std::vector<Candidate> made = judge_algorithms(judged, on_device, every);
    if (restricted) require_order(judged, made, false);
    return made;
  });
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
