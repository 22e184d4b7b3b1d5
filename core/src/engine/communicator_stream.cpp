// SPDX-License-Identifier: Apache-2.0
//
// Collectives on device memory: the call returns when the work is in the stream.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

#include "bootstrap/failure.hpp"
#include "engine/communicator_hold.hpp"
#include "engine/host.hpp"
#include "engine/settings.hpp"

namespace tutti::core {
namespace {

constexpr uint64_t let_go_limit_ns = 5'000'000'000;

}  // namespace

void Communicator::make_streams() {
  if (streams_) return;
  if (nranks_ > 1 && !device_lanes_)
    throw Failure(
        TUTTI_NOT_SUPPORTED,
        "device memory: a rank of this communicator found no device when it was made, so there are no lanes for "
        "device memory; load the device's plugin on every rank before");
  StreamRunner::Place place;
  place.rank = rank_;
  place.topology = &topology_;
  place.selector = selector_.get();
  place.links = &links_;
  place.first_lane = windows_count_ * lanes_ + 1;
  place.lanes = lanes_;
  place.communicator = id_;
  place.exchange = exchange_.get();
  place.in_host = flag_setting("TUTTI_HOST_STAGING");
  place.scratch_limit = scratch_limit_;
  place.board = board_;
  place.no_board = no_board_;
  place.connect = [this](Link& link) { return connect(link); };
  auto made = std::make_unique<StreamRunner>(std::move(place));
  {
    const std::lock_guard lock(mutex_);  // a progress thread looks at it
    streams_ = std::move(made);
  }
  // Streams wait for bytes while the application does something else: somebody has to move them.
  if (streams_->has_channels() && !threaded_) {
    threaded_ = true;
    thread_ = std::thread([this] { progress_thread(); });
  }
}

void Communicator::require_streams() {
  if (streams_) return;
  require_usable();
  or_tell([this] { make_streams(); });
}

// What every call on a stream begins with, once it holds the communicator.
void Communicator::begin_on_stream(StreamRunner::Call& call, const tutti_options* options, bool wants_request) {
  if (abort_asked_.load(std::memory_order_relaxed)) look_around();
  require_usable();
  call.timeout_ns = options && options->timeout_ns ? options->timeout_ns : timeout_ns_;
  call.wants_request = wants_request;
  call.capturing = streams_->require_stream(call);
}

tutti_status Communicator::stream_collective(StreamRunner::Call call, const tutti_options* options,
                                             tutti_request** request) {
  require_streams();
  const Hold hold(*this);
  begin_on_stream(call, options, request != nullptr);
  if (call.capturing) streams_->require_recordable(call);
  const auto idle = [this] { await_streams([this] { return streams_->operations() == 0; }); };
  await_streams([this] { return streams_->has_room(); });
  StreamPlan& plan = or_tell([&]() -> StreamPlan& { return streams_->find_plan(call, idle); });
  require_usable();
  const Call mine = call_of(plan.plan, next_sequence_);
  if (call_check_.has_news()) hear_news(mine);

  auto made = or_tell([] { return std::make_unique<tutti_request>(); });
  made->comm = this;
  made->alive = alive_;
  made->begin_ticks = ticks();
  made->timeout_ns = call.timeout_ns;
  made->state = tutti_request::State::running;
  made->complete.store(false, std::memory_order_relaxed);
  made->transfer.bytes = plan.plan.call_bytes;
  const auto served = [&](const StreamPlan& by) {
    std::string carriers = call.where.tables.memory->name;
    if (!by.plan.transports.empty()) carriers += "+" + by.plan.transports;
    if (by.fuses) carriers += "+fused";
    return service_row(collective_name(call.shape.collective), by.plan.algorithm->name, carriers);
  };
  made->service = served(plan);
  memo_[call.shape.collective] = nullptr;
  made->sequence = call.sequence = next_sequence_++;
  recorder_->begin(mine, plan.plan.shape.in_place, made->service, made->begin_ticks);
  if (call_check_.checked())
    check_stream_call(mine, call.timeout_ns);
  else if (std::exchange(plan.plan.fresh, false))
    for (Link* link : plan.plan.links)
      if (!topology_.same_process(rank_, link->peer)) untold_.push_back({mine, link});
  StreamPlan& form = open_channels(call, plan);
  const auto tell = [&] {
    made->service = served(form);
    stream_facts_[call.shape.collective] = {true, made->service, form.plan.slices, form.plan.schedule_hash};
  };
  tell();
  issue_stream(call, form);
  if (form.fuses && !streams_->fused()) {  // the device has refused it, and is not asked again
    form.fuses = false;
    tell();
  }
  // Where no rank of another process takes part, nobody waits for this one any more, and nobody may look when the
  // stream has come to the end.
  if (!streams_->has_channels() || streams_->captures()) recorder_->end(made->sequence, ticks(), TUTTI_OK);
  if (streams_->captures()) {
    streams_->issued(nullptr);
    return TUTTI_OK;
  }
  ++unfinished_;
  streams_->issued(made.get());
  if (request) {
    *request = made.release();
  } else {
    own_requests_.push_back(std::move(made));
  }
  progress();
  return TUTTI_OK;
}

// In checked mode, after the checks of all calls before it.
void Communicator::check_stream_call(const Call& mine, uint64_t timeout_ns) {
  const auto launched = [this] {
    return std::ranges::all_of(in_order_,
                               [](const tutti_request* r) { return r->state != tutti_request::State::queued; });
  };
  uint64_t limit = clock_ns() + timeout_ns;
  try {
    while (!breaking_ && (!launched() || !call_check_.check(mine, [this](Link& link) { return connect(link); }))) {
      if (progress()) limit = clock_ns() + timeout_ns;
      look_around();
      sched_yield();
      if (clock_ns() > limit) break_down_late(timeout_ns, mine.sequence);
    }
  } catch (const std::exception& problem) {
    break_down(problem);
  }
  require_usable();
}

// Until the work is in the stream: the ranks of this process meet for it. What is pending goes on meanwhile.
void Communicator::issue_stream(const StreamRunner::Call& call, StreamPlan& plan) {
  uint64_t limit = clock_ns() + call.timeout_ns;
  const auto advance = [&] {
    const bool moved = progress();
    if (moved || !streams_->reached()) limit = clock_ns() + call.timeout_ns;
    if (!moved) sched_yield();
    look_around();
    if (breaking_) throw Failure(async_error(), broken_text_);
  };
  const auto meanwhile = [&] {
    advance();
    if (clock_ns() > limit)
      throw Failure(TUTTI_TIMEOUT, fmt::format("{} has stood still for {:.1f} s (TUTTI_TIMEOUT)",
                                               streams_->standpoint(), static_cast<double>(call.timeout_ns) * 1e-9));
  };
  try {
    const uint64_t turn = streams_->begin(call, plan, meanwhile);
    while (!streams_->passed(turn)) {
      try {
        advance();
      } catch (const Failure& why) {
        streams_->leave(why);
        throw;
      }
      if (clock_ns() > limit && !streams_->missing().empty()) {
        const Failure late(
            TUTTI_TIMEOUT,
            fmt::format(
                "has waited {:.1f} s (TUTTI_TIMEOUT) in {} on device memory for rank {} of its process: ranks that "
                "are threads of one process call from threads of their own",
                static_cast<double>(call.timeout_ns) * 1e-9, collective_name(call.shape.collective),
                streams_->missing()));
        streams_->leave(late);
        throw late;
      }
    }
  } catch (const std::exception& problem) {
    end_issue(failure_of(problem));
  }
}

// It may have failed half-way.
void Communicator::end_issue(const Failure& failure) {
  streams_->failed();
  if (breaking_) end_streams(async_error());
  break_down(failure.status, rank_, failure.text);
  throw Failure(async_error(), broken_text_);
}

// Until the device has come far enough.
void Communicator::await_streams(const std::function<bool()>& enough) {
  while (!enough() && !breaking_) {
    if (!progress()) sched_yield();
    look_around();
  }
}

// The threads of this process compare their calls when they meet.
void Communicator::tell_of_streams() {
  std::erase_if(untold_, [this](const Untold& one) {
    if (!connect(*one.link)) return false;
    call_check_.tell(one.call, {one.link});
    return true;
  });
}

// The call has begun: whatever goes wrong concerns all ranks. Returns the form of the plan that is to be issued.
StreamPlan& Communicator::open_channels(const StreamRunner::Call& call, StreamPlan& plan) {
  StreamPlan* form = &plan;
  try {
    const auto until = [&](const auto& enough) { await_peers(enough, call.timeout_ns, call.sequence); };
    streams_->take_census(call, until);
    form = &streams_->settle_form(call, plan, until);
    streams_->open_channels(call, *form, until);
  } catch (const std::exception& problem) {
    if (!breaking_) break_down(problem);
  }
  if (breaking_) streams_->failed();  // also where all have come, and then something broke
  require_usable();
  return *form;
}

// Until other ranks have come to the call, too.
void Communicator::await_peers(const std::function<bool()>& enough, uint64_t timeout_ns,
                               std::optional<uint64_t> sequence) {
  uint64_t limit = clock_ns() + timeout_ns;
  while (!enough()) {
    if (breaking_) throw Failure(async_error(), broken_text_);
    const bool moved = progress();
    if (moved || streams_->held_up()) limit = clock_ns() + timeout_ns;
    if (!moved) sched_yield();
    look_around();
    if (clock_ns() > limit) break_down_late(timeout_ns, sequence);
  }
}

bool Communicator::advance_streams() {
  try {
    if (!untold_.empty()) tell_of_streams();
    return streams_->advance([this](tutti_request* request) { end_stream_request(request, TUTTI_OK); });
  } catch (const Failure& failure) {
    break_down(failure.status, rank_, fmt::format("failed: {}", failure.text));
    return true;
  }
}

void Communicator::end_stream_request(tutti_request* request, tutti_status status) {
  complete(*request, status);
  std::erase_if(own_requests_, [request](const auto& own) { return own.get() == request; });
}

// After a failure: lets the device's work come to its end, so that nothing of ours is in use any more.
void Communicator::end_streams(tutti_status status) {
  const uint64_t limit = clock_ns() + let_go_limit_ns;
  while (!streams_->let_go() && clock_ns() < limit) sched_yield();
  if (!streams_->let_go())
    broken_text_ +=
        "; the device has not come to the end of what it was given: keep its buffers untouched until the stream is "
        "destroyed";
  streams_->fail_all([&](tutti_request* request) { end_stream_request(request, status); });
}

}  // namespace tutti::core
