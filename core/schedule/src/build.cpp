// SPDX-License-Identifier: Apache-2.0
//
// Asks an algorithm for a schedule. The algorithm is a plugin and not trusted: the sink bounds what it takes, and the
// result is checked for form before anybody sees it.
#include <fmt/format.h>

#include <new>

#include "form.hpp"

namespace tutti {
namespace {

class Sink {
 public:
  Sink(Schedule& schedule, uint32_t lanes) : schedule_(schedule), lanes_(lanes) {
    table_.struct_size = sizeof table_;
    table_.self = this;
    table_.set_cuts = [](void* self, const tutti_cut* cuts, uint32_t n) {
      return static_cast<Sink*>(self)->guarded([=](Sink& sink) { return sink.set_cuts(cuts, n); });
    };
    table_.set_scratch = [](void* self, const tutti_extent* chunks, uint32_t n, uint32_t copies) {
      return static_cast<Sink*>(self)->guarded([=](Sink& sink) { return sink.set_scratch(chunks, n, copies); });
    };
    table_.set_flags = [](void* self, uint64_t flags) {
      return static_cast<Sink*>(self)->guarded([=](Sink& sink) { return sink.set_flags(flags); });
    };
    table_.add_step = [](void* self, uint32_t lane, const tutti_step* step, const tutti_span* sources) {
      return static_cast<Sink*>(self)->guarded([=](Sink& sink) { return sink.add_step(lane, step, sources); });
    };
  }

  const tutti_schedule_sink* table() const { return &table_; }
  // The first thing that was refused; empty when nothing was.
  const std::string& error() const { return error_; }
  tutti_status status() const { return status_; }

 private:
  // After one refusal everything is refused, so that an algorithm that ignores statuses ends soon and yields nothing.
  template <typename Body>
  tutti_status guarded(Body body) noexcept {
    if (status_ != TUTTI_OK) return status_;
    try {
      error_ = body(*this);
      if (!error_.empty()) status_ = TUTTI_INTERNAL;
    } catch (const std::bad_alloc&) {
      status_ = TUTTI_NO_RESOURCES;
    } catch (...) {
      status_ = TUTTI_INTERNAL;
    }
    return status_;
  }

  std::string once(bool& said, const char* what) {
    if (said) return fmt::format("{} was called twice", what);
    if (steps_) return fmt::format("{} was called after the first step", what);
    said = true;
    return {};
  }

  std::string set_cuts(const tutti_cut* cuts, uint32_t n) {
    if (std::string text = once(cuts_said_, "set_cuts"); !text.empty()) return text;
    if (n > ScheduleLimits::cuts)
      return fmt::format("{} cut points, more than the limit of {}", n, ScheduleLimits::cuts);
    if (n && !cuts) return "set_cuts: no cut points where some were announced";
    schedule_.cuts.assign(cuts, cuts + n);
    return {};
  }

  std::string set_scratch(const tutti_extent* chunks, uint32_t n, uint32_t copies) {
    if (std::string text = once(scratch_said_, "set_scratch"); !text.empty()) return text;
    if (n > ScheduleLimits::scratch_chunks)
      return fmt::format("{} scratch chunks, more than the limit of {}", n, ScheduleLimits::scratch_chunks);
    if (copies > ScheduleLimits::scratch_copies)
      return fmt::format("{} scratch copies, more than the limit of {}", copies, ScheduleLimits::scratch_copies);
    if (n && !chunks) return "set_scratch: no extents where some were announced";
    schedule_.scratch.assign(chunks, chunks + n);
    schedule_.scratch_copies = copies;
    return {};
  }

  std::string set_flags(uint64_t flags) {
    if (std::string text = once(flags_said_, "set_flags"); !text.empty()) return text;
    schedule_.flags = flags;
    return {};
  }

  std::string add_step(uint32_t lane, const tutti_step* step, const tutti_span* sources) {
    if (!step) return "add_step: no step";
    if (lane >= lanes_) return fmt::format("a step for lane {}, but the query allows {} lanes", lane, lanes_);
    if (++steps_ > ScheduleLimits::steps) return fmt::format("more steps than the limit of {}", ScheduleLimits::steps);
    if (lane >= schedule_.lanes.size()) schedule_.lanes.resize(lane + 1);
    Step& added = schedule_.lanes[lane].emplace_back();
    added.op = *step;
    if (step->kind != TUTTI_STEP_REDUCE) return {};
    sources_ += step->sources;
    if (sources_ > ScheduleLimits::sources)
      return fmt::format("more reduce sources than the limit of {}", ScheduleLimits::sources);
    if (step->sources && !sources) return "add_step: a reduce without its sources";
    added.sources.assign(sources, sources + step->sources);
    return {};
  }

  Schedule& schedule_;
  uint32_t lanes_;
  tutti_schedule_sink table_{};
  uint64_t steps_ = 0, sources_ = 0;
  bool cuts_said_ = false, scratch_said_ = false, flags_said_ = false;
  tutti_status status_ = TUTTI_OK;
  std::string error_;
};

std::string asker(const tutti_algorithm& algorithm, const tutti_query& query) {
  return fmt::format("algorithm {}: {} at rank {} of {}", algorithm.name ? algorithm.name : "(without name)",
                     collective_name(query.collective), query.rank, query.nranks);
}

tutti_status failed(tutti_status status, std::string text, std::string* error) {
  if (error) *error = std::move(text);
  return status;
}

// The part of a problem that the form of one rank's schedule depends on.
Problem problem_of(const tutti_query& query) {
  Problem problem;
  problem.collective = query.collective;
  problem.nranks = query.nranks;
  problem.root = query.root;
  problem.lanes = query.lanes;
  if (query.flags & TUTTI_QUERY_IN_PLACE) problem.in_place.assign(query.nranks, true);
  return problem;
}

tutti_status check_algorithm(const tutti_algorithm& algorithm, const tutti_query& query, std::string* error) {
  const std::string who = asker(algorithm, query);
  if (!TUTTI_HAS(tutti_algorithm, &algorithm, supports) || !TUTTI_HAS(tutti_algorithm, &algorithm, schedule))
    return failed(TUTTI_INTERNAL, who + ": its table lacks supports or schedule", error);
  if (!(algorithm.collectives >> query.collective & 1))
    return failed(TUTTI_NOT_SUPPORTED, who + ": it does not offer this collective", error);
  const tutti_status status = algorithm.supports(algorithm.self, &query);
  if (status == TUTTI_OK) return TUTTI_OK;
  if (status > 0)
    return failed(TUTTI_INTERNAL, fmt::format("{}: supports answered {}, which is not an error", who, status), error);
  return failed(status, fmt::format("{}: it does not support this query (status {})", who, status), error);
}

}  // namespace

tutti_status build_schedule(const tutti_algorithm& algorithm, const tutti_query& query, Schedule* schedule,
                            std::string* error) {
  const Problem problem = problem_of(query);
  if (const Finding finding = check_problem(problem)) return failed(TUTTI_INVALID_ARGUMENT, finding.text, error);
  if (query.rank >= query.nranks)
    return failed(TUTTI_INVALID_ARGUMENT,
                  fmt::format("rank {} is not a rank: expected 0 to {}", query.rank, query.nranks - 1), error);
  if (const tutti_status status = check_algorithm(algorithm, query, error); status != TUTTI_OK) return status;

  Schedule made;
  Sink sink(made, query.lanes);
  const tutti_status status = algorithm.schedule(algorithm.self, &query, sink.table());
  const std::string who = asker(algorithm, query);
  if (sink.status() != TUTTI_OK)
    return failed(sink.status(), fmt::format("{}: {}", who, sink.error().empty() ? "out of memory" : sink.error()),
                  error);
  if (status != TUTTI_OK)
    return failed(status > 0 ? TUTTI_INTERNAL : status,
                  fmt::format("{}: schedule() failed with status {}", who, status), error);
  if (const Finding finding = check_form(problem, query.rank, made))
    return failed(TUTTI_INTERNAL, fmt::format("{}: {}", who, finding.text), error);
  *schedule = std::move(made);
  return TUTTI_OK;
}

tutti_status build_schedules(const tutti_algorithm& algorithm, const Problem& problem, std::vector<Schedule>* schedules,
                             std::string* error) {
  if (const Finding finding = check_problem(problem)) return failed(TUTTI_INVALID_ARGUMENT, finding.text, error);
  std::vector<Schedule> made(problem.nranks);
  for (uint32_t rank = 0; rank < problem.nranks; ++rank) {
    const tutti_query query = make_query(problem, rank);
    if (const tutti_status status = build_schedule(algorithm, query, &made[rank], error); status != TUTTI_OK)
      return status;
  }
  *schedules = std::move(made);
  return TUTTI_OK;
}

}  // namespace tutti
