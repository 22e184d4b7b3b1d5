// SPDX-License-Identifier: Apache-2.0
#include "measure.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "timing.hpp"

namespace perf {
namespace {

// The positions of IN and OUT when one buffer holds both (tutti.h defines in place).
void place_in_buffer(const Collective& collective, const BlockLayout& layout, char* buffer, Call* call) {
  const bool in_is_part = collective.in == Blocks::one && collective.out == Blocks::per_rank;
  const bool out_is_part = collective.in == Blocks::per_rank && collective.out == Blocks::one;
  // In windows the input of a gather lies at one place on all ranks (memory.h): the root's block.
  const uint32_t block = collective.rooted && in_is_part && !collective.unequal ? call->root : call->rank;
  const uint64_t own = layout.begin(call->rank, out_is_part, block) * element_bytes(call->dtype);
  call->in = buffer + (in_is_part ? own : 0);
  call->out = buffer + (out_is_part ? own : 0);
}

// Checks one block of OUT, whose number is `block`; the host sees OUT at `out`.
void check_block(const Collective& collective, const BlockLayout& layout, const Pattern& pattern, const Call& call,
                 const char* out, uint32_t block, Mistakes* found) {
  const uint64_t count = layout.elements(call.rank, false, block), position = layout.begin(call.rank, false, block);
  const char* data = out + position * element_bytes(call.dtype);
  const auto share_of = [&](uint32_t rank) { return layout.begin(rank, true, call.rank); };
  switch (collective.origin) {
    case Origin::nothing:
      return;
    case Origin::root:
      return check_moved(pattern, call.root, 0, count, data, position, found);
    case Origin::own_share:
      return check_moved(pattern, call.root, share_of(call.root), count, data, position, found);
    case Origin::reduced:
      return check_reduced(pattern, call.nranks, 0, count, data, position, found);
    case Origin::reduced_share:
      return check_reduced(pattern, call.nranks, share_of(call.rank), count, data, position, found);
    case Origin::prefix:
      return check_reduced(pattern, call.rank + 1, 0, count, data, position, found);
    case Origin::prefix_before:
      return check_reduced(pattern, call.rank, 0, count, data, position, found);
    case Origin::each_rank:
      return check_moved(pattern, block, 0, count, data, position, found);
    case Origin::each_share:
      return check_moved(pattern, block, share_of(block), count, data, position, found);
    case Origin::previous_rank:
      return check_moved(pattern, (call.rank + call.nranks - 1) % call.nranks, 0, count, data, position, found);
  }
}

}  // namespace

Measurer::Measurer(const tutti::Communicator& comm, const Options& options, const Device* device)
    : comm_(comm),
      options_(options),
      device_(device),
      in_(options.most_bytes, options.registered, device),
      out_(options.most_bytes, options.registered, device),
      seed_(options.seed << 32) {
  call_options_.struct_size = sizeof call_options_;
  if (device) call_options_.stream = device->stream();
  free_options_ = call_options_;
  free_options_.order = TUTTI_ORDER_FREE;
  if (!device || !options.registered) return;
  in_window_ = tutti::Window(comm, in_.data(), in_.size());
  out_window_ = tutti::Window(comm, out_.data(), out_.size());
}

Row Measurer::measure(const Case& what) {
  const Collective& collective = *what.collective;
  const uint64_t size = element_bytes(what.dtype.code);
  Call call;
  call.comm = comm_.handle();
  call.rank = comm_.rank();
  call.nranks = comm_.nranks();
  call.count = collective.count_for(what.bytes, size, call.nranks);
  call.dtype = what.dtype.code;
  call.op = what.op.code;
  call.root = what.root;
  call_options_.order = options_.exact && collective.reduces ? TUTTI_ORDER_EXACT : TUTTI_ORDER_DEFAULT;
  if (device_ || call_options_.order) call.options = &call_options_;
  const BlockLayout layout = layout_of(collective, call);
  const std::vector<uint64_t> in_counts = layout.counts(call.rank, true), out_counts = layout.counts(call.rank, false);
  call.in_counts = in_counts.data();
  call.out_counts = out_counts.data();
  Row row;
  row.collective = &collective;
  row.count = call.count;
  row.bytes = collective.total_bytes(call.count, size, call.nranks);
  row.dtype = what.dtype.name;
  row.op = what.op.name;
  row.root = collective.rooted ? static_cast<int64_t>(what.root) : -1;
  row.out_of_place = measure_side(what, call, false);
  if (collective.has_in_place) row.in_place = measure_side(what, call, true);
  for (Side* side : {&row.out_of_place, &row.in_place}) {
    side->algorithm_bandwidth = side->time_us > 0 ? static_cast<double>(row.bytes) / side->time_us / 1e3 : 0;
    side->bus_bandwidth = side->algorithm_bandwidth * collective.bus_factor(call.nranks);
  }
  return row;
}

Side Measurer::measure_side(const Case& what, Call call, bool in_place) {
  const Collective& collective = *what.collective;
  const BlockLayout layout = layout_of(collective, call);
  call.in = in_.data();
  call.out = out_.data();
  if (in_place) place_in_buffer(collective, layout, out_.data(), &call);
  Side side;
  side.measured = true;
  side.checked = options_.checks > 0 && collective.origin != Origin::nothing;
  uint64_t wrong = 0;
  for (uint32_t i = 0; i < options_.checks; ++i) wrong += check_once(what, call, in_place, "before timing");
  // In place, results become inputs: zeros stay zeros, where other values would drift into denormals or infinity.
  if (in_place) {
    const uint64_t used =
        std::max(layout.total(call.rank, true), layout.total(call.rank, false)) * element_bytes(call.dtype);
    std::memset(out_.host(), 0, used);
    out_.upload(used);
  }
  const bool compares = call_options_.order == TUTTI_ORDER_EXACT;
  Call free = call;
  free.options = &free_options_;
  for (uint32_t i = 0; i < options_.untimed(); ++i) {
    run(collective, call);
    if (compares) run(collective, free);
  }
  finish();
  // By turns, so that what else runs on the machine slows both.
  constexpr uint32_t turns = 4;
  double time_us = 0, free_us = 0;
  for (uint32_t turn = 0; compares && turn < turns; ++turn) {
    free_us += time_iterations(collective, free) / turns;
    time_us += time_iterations(collective, call) / turns;
  }
  if (!compares) time_us = time_iterations(collective, call);
  const Latency latency = options_.measures_latency() ? time_singly(collective, call) : Latency{};
  for (uint32_t i = 0; i < options_.checks; ++i) wrong += check_once(what, call, in_place, "after timing");
  wrong_here_ += wrong;
  exchange(&side, time_us, free_us, latency, wrong);
  return side;
}

uint64_t Measurer::check_once(const Case& what, const Call& call, bool in_place, const char* when) {
  const Collective& collective = *what.collective;
  const bool rounds = collective.reduces && call_options_.order == TUTTI_ORDER_EXACT;
  const Pattern pattern{++seed_, call.dtype, call.op, call.nranks, rounds};
  const BlockLayout layout = layout_of(collective, call);
  const uint64_t in_count = layout.total(call.rank, true), out_count = layout.total(call.rank, false);
  const uint64_t size = element_bytes(call.dtype);
  const bool has_in = collective.has_in(call.rank, call.root), has_out = collective.has_out(call.rank, call.root);
  const uint64_t used = std::max(in_count, out_count) * size;
  out_.poison(used);
  if (!in_place) in_.poison(used);
  if (has_in) fill_input(pattern, call.rank, 0, in_count, host_of(call.in));
  out_.upload(used);
  if (!in_place) in_.upload(used);
  run(collective, call);
  out_.download(used);
  if (!in_place) in_.download(used);
  finish();
  Mistakes in, out;
  if (has_out)
    for (uint32_t block = 0; block < layout.blocks(false); ++block)
      check_block(collective, layout, pattern, call, host_of(call.out), block, &out);
  // Inputs stay as they are, unless they are where the output goes.
  if (has_in && !(in_place && has_out)) check_moved(pattern, call.rank, 0, in_count, host_of(call.in), 0, &in);
  Mistakes guard;
  guard.count = out_.guards_lost(used) + (in_place ? 0 : in_.guards_lost(used));
  if (guard.count) guard.expected = "untouched bytes", guard.got = "overwritten ones";
  if (out.count) report(what, call, in_place, when, "output", out, out_count);
  if (in.count) report(what, call, in_place, when, "input, which must not change,", in, in_count);
  if (guard.count) report(what, call, in_place, when, "guard behind the buffers", guard, guard_bytes);
  return out.count + in.count + guard.count;
}

void Measurer::report(const Case& what, const Call& call, bool in_place, const char* when, const char* place,
                      const Mistakes& found, uint64_t of) const {
  std::string root;
  if (what.collective->rooted) root = " root " + std::to_string(call.root);
  std::fprintf(
      stderr,
      "tutti-perf: rank %u: %s %s %s%s of %llu bytes, %s, %s: %s: index %llu: expected %s, got %s; %llu of %llu "
      "elements are wrong\n",
      call.rank, what.collective->name, what.dtype.name.c_str(), what.op.name.c_str(), root.c_str(),
      static_cast<unsigned long long>(what.bytes), in_place ? "in place" : "out of place", when, place,
      static_cast<unsigned long long>(found.first_index), found.expected.c_str(), found.got.c_str(),
      static_cast<unsigned long long>(found.count), static_cast<unsigned long long>(of));
}

void Measurer::run(const Collective& collective, const Call& call) {
  const tutti_status status = collective.run(call);
  if (status < 0) throw tutti::Error(status, std::string(collective.name) + ": " + tutti_comm_error(call.comm));
}

double Measurer::time_iterations(const Collective& collective, const Call& call) {
  comm_.barrier();
  const auto start = Clock::now();
  for (uint32_t i = 0; i < options_.iterations; ++i) run(collective, call);
  finish();
  const double time = microseconds(Clock::now() - start);
  comm_.barrier();
  return time / options_.iterations;
}

Latency Measurer::time_singly(const Collective& collective, const Call& call) {
  std::vector<double> times(options_.iterations);
  comm_.barrier();
  for (double& time : times) {
    const auto start = Clock::now();
    run(collective, call);
    finish();
    time = microseconds(Clock::now() - start);
  }
  comm_.barrier();
  std::sort(times.begin(), times.end());
  // The smallest value that at least the given share of all values does not exceed.
  const auto percentile = [&](size_t percent) { return times[(times.size() * percent + 99) / 100 - 1]; };
  return {times.front(), percentile(50), percentile(99)};
}

void Measurer::exchange(Side* side, double time_us, double free_us, const Latency& latency, uint64_t wrong) const {
  constexpr size_t fields = 6;
  const double mine[fields] = {time_us, latency.minimum, latency.p50, latency.p99, static_cast<double>(wrong), free_us};
  std::vector<double> all(fields * comm_.nranks());
  comm_.all_gather<double>(mine, all);
  std::vector<double> minimum, p50, p99, free;
  for (size_t i = 0; i < all.size(); i += fields) {
    side->rank_time_us.push_back(all[i]);
    if (options_.measures_latency()) side->rank_latency.push_back({all[i + 1], all[i + 2], all[i + 3]});
    minimum.push_back(all[i + 1]);
    p50.push_back(all[i + 2]);
    p99.push_back(all[i + 3]);
    side->wrong += static_cast<uint64_t>(all[i + 4]);
    free.push_back(all[i + 5]);
  }
  side->time_us = combined(options_.report, side->rank_time_us);
  side->free_us = combined(options_.report, free);
  side->latency = {combined(options_.report, minimum), combined(options_.report, p50), combined(options_.report, p99)};
}

double combined(Report report, const std::vector<double>& of_ranks) {
  switch (report) {
    case Report::rank0:
      return of_ranks.front();
    case Report::minimum:
      return *std::min_element(of_ranks.begin(), of_ranks.end());
    case Report::maximum:
      return *std::max_element(of_ranks.begin(), of_ranks.end());
    case Report::average:
      break;
  }
  return std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0) / static_cast<double>(of_ranks.size());
}

}  // namespace perf
