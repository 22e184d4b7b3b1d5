// SPDX-License-Identifier: Apache-2.0
#include "stream/stream_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/failure.hpp"
#include "stream/stream_program.hpp"

namespace tutti::core {

namespace {

using Ways = std::function<StreamWay(uint32_t peer, bool outgoing)>;

// Orders the steps of a plan that has its sizes, and lists what goes along its ways.
void order_steps(StreamPlan& made, const Schedule& schedule, const StreamShape& shape) {
  if (const std::string error = order_for_stream(schedule, shape, &made.steps); !error.empty())
    throw Failure(TUTTI_INTERNAL, error);
  std::map<std::tuple<uint32_t, uint32_t, bool>, std::vector<uint64_t>> sizes;
  for (uint32_t lane = 0; shape.length && lane < made.plan.lanes.size(); ++lane)
    for (const BoundStep& bound : made.plan.lanes[lane])
      if (const Link* link = bound.out ? bound.out : bound.in; link && shape.way(link->peer, bound.out).slots)
        sizes[{link->peer, lane, bound.out != nullptr}];
  made.bytes = 0;
  made.commands = 2;  // of the counter
  for (const StreamStep& step : made.steps) {
    const BoundStep& bound = made.plan.lanes[step.lane][step.step];
    const Link* link = bound.out ? bound.out : bound.in;
    if (!link) {
      const uint64_t sources = std::max<uint64_t>(1, bound.sources);
      made.bytes += piece_of(made.plan, part_of(made.plan, bound.dst, step.part), step.slice).bytes * sources;
      made.commands += 1 + sources;
      continue;
    }
    const uint64_t sources = bound.kind == TUTTI_STEP_RECV_REDUCE ? 2 : 1;
    made.bytes += step.bytes * sources;
    made.commands += 4 + sources;  // three of them for flags
    const bool outgoing = bound.out != nullptr;
    if (shape.way(link->peer, outgoing).slots) sizes[{link->peer, step.lane, outgoing}].push_back(step.bytes);
  }
  made.traffic.clear();
  for (auto& [key, list] : sizes)
    made.traffic.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), std::move(list)});
}

}  // namespace

StreamPlan bind_stream_plan(Plan plan, Schedule schedule, const Ways& way) {
  StreamPlan made;
  made.plan = std::move(plan);
  if (has_unequal_blocks(made.plan.shape.collective)) {
    made.schedule = std::make_shared<const Schedule>(std::move(schedule));
    return made;
  }
  made.scratch_bytes = made.plan.scratch.bytes;
  order_steps(made, schedule, {made.plan.count, made.plan.element_bytes, made.plan.slices, way});
  return made;
}

void bind_stream_blocks(StreamPlan& plan, const BlockTable& table, uint32_t nranks, uint32_t rank, const Ways& way) {
  Plan& bound = plan.plan;
  const uint64_t before = bound.common_hash;
  bind_blocks(bound, table, nranks, rank);
  bound.fresh |= bound.common_hash != before;  // other ranks can compare what they all know
  plan.id = StreamPlan::ids.fetch_add(1, std::memory_order_relaxed);
  plan.programs.clear();
  // Where all ranks know all sizes the shape bounds them, and no later call needs more.
  const uint64_t most = all_know_blocks(bound.shape.collective) ? (bound.shape.count + 1) * nranks : 0;
  plan.scratch_bytes = std::max(bound.scratch.bytes, unequal_scratch_need(*plan.schedule, most, bound.element_bytes));
  const auto length = [&](uint32_t buffer, uint32_t chunk) { return chunk_length(bound, nranks, rank, buffer, chunk); };
  order_steps(plan, *plan.schedule, {0, bound.element_bytes, 1, way, length});
}

namespace {

constexpr size_t most_programs = 4;  // of a plan

StreamProgram& program_of(const std::vector<StreamLaunch*>& launches) {
  auto& programs = launches.front()->plan->programs;
  const auto found = std::ranges::find_if(programs, [&](const auto& program) { return program->serves(launches); });
  if (found != programs.end()) return **found;
  auto made = std::make_shared<StreamProgram>(launches);
  if (programs.size() == most_programs) programs.pop_back();
  programs.insert(programs.begin(), std::move(made));
  return *programs.front();
}

// One operation on its way into the streams.
class CollectiveIssue {
 public:
  CollectiveIssue(StreamWriter& writer, const std::vector<StreamLaunch*>& launches)
      : writer_(writer), launches_(launches), program_(program_of(launches)) {}

  void run(const DeviceTables& device, const std::function<void()>& meanwhile) {
    const bool bounded = std::ranges::any_of(
        launches_, [](const StreamLaunch* launch) { return !launch->plan->traffic.empty() && launch->counter; });
    writer_.open(device, bounded ? most_queued : 0, meanwhile);
    for (size_t r = 0; r < launches_.size(); ++r) {
      const StreamLaunch& launch = *launches_[r];
      writer_.add({launch.rank, launch.device, launch.stream, launch.spare, launch.queue}, program_.events(r));
    }
    begun_ = true;
    program_.relocate(launches_, writer_);
    for (size_t r = 0; r < launches_.size(); ++r) begin(r);
    if (launches_.size() == 1 && launches_[0]->fuse)
      fuse();
    else
      for (const StreamProgram::Run& run : program_.runs()) {
        launches_[run.rank]->entered.store(true, std::memory_order_relaxed);
        writer_.write(run.rank, program_.commands(run.rank) + run.from, run.to - run.from);
      }
    for (size_t r = 0; r < launches_.size(); ++r) launches_[r]->commands = writer_.commands(r);
  }

  // It has failed: a thread that waits for the end of a rank's stream waits for those that read the rank's memory, too.
  void give_up() {
    if (!begun_) return;
    for (size_t r = 0; r < launches_.size(); ++r) {
      writer_.drop(r);
      launches_[r]->commands = writer_.commands(r);
    }
    for (size_t owner = 0; owner < launches_.size(); ++owner)
      for (size_t reader = 0; reader < launches_.size(); ++reader)
        if (launches_[owner]->counter &&
            program_.reads(owner, writer_.prepared(owner), reader, writer_.prepared(reader)))
          order_behind(owner, reader);
  }

 private:
  void begin(size_t r) {
    const StreamLaunch& launch = *launches_[r];
    if (launch.after) writer_.add(r, launch.counter->wait(*launch.after));
    writer_.flush(r);
  }
  void fuse() {
    size_t n = 0;
    for (const StreamProgram::Run& run : program_.runs()) n = run.to;
    if (n) writer_.write_fused(0, program_.commands(0), n);
  }

  void order_behind(size_t owner, size_t reader) {
    try {
      tutti_event* const end = writer_.event_end(reader);
      writer_.flush(reader);
      writer_.event(owner, TUTTI_COMMAND_AFTER, end);
      writer_.flush(owner);
    } catch (const Failure&) {  // the device takes no more
      std::string& readers = launches_[owner]->read_by;
      readers += fmt::format("{}{}", readers.empty() ? "rank " : ", ", launches_[reader]->rank);
      writer_.drop(owner);
      writer_.drop(reader);
    }
  }

  StreamWriter& writer_;
  const std::vector<StreamLaunch*>& launches_;
  StreamProgram& program_;
  bool begun_ = false;  // the writer has the streams
};

}  // namespace

void require_readable(const StreamPart& reader, uint32_t device, uint32_t rank) {
  if (!reader.unreadable) return;
  if (const auto found = reader.unreadable->find(device); found != reader.unreadable->end())
    throw Failure(found->second.status, fmt::format("device {} of rank {} cannot read device {} of rank {}: {}",
                                                    reader.device, reader.rank, device, rank, found->second.text));
}

void issue(StreamWriter& writer, const DeviceTables& device, const std::vector<StreamLaunch*>& launches,
           const std::function<void()>& meanwhile) {
  CollectiveIssue work(writer, launches);
  try {
    work.run(device, meanwhile);
  } catch (...) {
    work.give_up();
    throw;
  }
}

}  // namespace tutti::core
