// SPDX-License-Identifier: Apache-2.0
//
// Collectives on device memory: the call returns when the work is in the stream.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "bootstrap/failure.hpp"
#include "comm/communicator_hold.hpp"
#include "plugins/host.hpp"
#include "plugins/settings.hpp"

namespace tutti::core {
namespace {

constexpr uint64_t let_go_limit_ns = 5'000'000'000;

}  // namespace

void Communicator::make_streams() {
  StreamRunner::Setup setup;
  setup.rank = rank_;
  setup.device = device_;
  setup.topology = &topology_;
  setup.selector = selector_.get();
  setup.links = &fabric_.links();
  setup.first_lane = host_lanes();
  setup.lanes = configuration_.lanes;
  setup.communicator = id_;
  setup.name = name();
  setup.mapped_links = &fabric_.mapped_links();
  setup.named = !configuration_.transports.empty();
  setup.in_host = flag_setting("TUTTI_HOST_STAGING");
  setup.scratch_limit = configuration_.scratch_limit;
  setup.windows = &memory_windows_;
  setup.connect = [](Link& link) { return connect(link); };
  setup.progress = [this] { fabric_.progress(true, *this); };
  streams_ = std::make_unique<StreamRunner>(std::move(setup));
}

// The first call on device memory: streams wait for bytes while the application does something else, so somebody has to
// move them. The thread that is made here waits for the lock.
void Communicator::require_mover() {
  if (threaded_ || !streams_->has_channels()) return;
  const Hold hold(*this, std::unique_lock(mutex_));
  breakdown_.require_none();
  or_tell([this] { thread_ = std::thread([this] { progress_thread(); }); });
  threaded_ = true;
}

// The beginning of every call on a stream. The caller holds the communicator.
void Communicator::begin_on_stream(StreamCall& call, const tutti_options* options, bool wants_request) {
  if (breakdown_.pending()) look_around();
  breakdown_.require_none();
  call.timeout_ns = timeout(options);
  call.wants_request = wants_request;
  call.capturing = streams_->require_stream(call);
}

tutti_status Communicator::stream_collective(StreamCall call, const tutti_options* options, tutti_request** request) {
  require_mover();
  const Hold hold(*this);
  begin_on_stream(call, options, request != nullptr);
  if (call.capturing) streams_->require_recordable(call);
  const auto idle = [&] { await_device(call.timeout_ns); };
  waiter_.until([this] { return streams_->has_room(); });
  StreamPlan& plan = or_tell([&]() -> StreamPlan& { return streams_->find_plan(call, idle); });
  breakdown_.require_none();
  Call mine = call_of(plan.plan, operations_.next_sequence());
  mine.plan ^= streams_->places_hash();
  if (call_check_.has_news()) hear_news(mine);

  auto made = or_tell([&] { return operations_.make<StreamCollective>(request != nullptr, call.timeout_ns); });
  made->bytes = plan.plan.call_bytes;
  made->service = stream_service(plan, call.where);
  plans_.forget_last(call.shape.collective);
  made->sequence = call.sequence = operations_.take_sequence();
  reports_->recorder().begin(mine, plan.plan.shape.in_place, made->service, made->begin_ticks);
  if (call_check_.checked())
    check_stream_call(mine, call.timeout_ns);
  else if (std::exchange(plan.plan.fresh, false))
    for (Link* link : plan.plan.links)
      if (!topology_.same_process(rank_, link->peer)) untold_.push_back({mine, link});
  StreamPlan& form = open_channels(call, plan, mine);
  const auto tell = [&] {
    made->service = stream_service(form, call.where);
    reports_->serve(call.shape.collective, made->service, form.plan.slices, form.plan.schedule_hash);
  };
  tell();
  issue_stream(call, form);
  if (form.fuses && !streams_->fused()) {  // the device has refused it, and is not asked again
    form.fuses = false;
    form.service.reset();
    tell();
  }
  // Where no rank of another process takes part, nobody waits for this one any more, and nobody may look when the
  // stream has come to the end.
  if (!streams_->has_channels() || streams_->captures()) reports_->recorder().end(made->sequence, ticks(), TUTTI_OK);
  if (streams_->captures()) {
    streams_->issued(nullptr);
    return TUTTI_OK;
  }
  return issued(std::move(made), request);
}

// The call's work is in the stream: the operation is pending from now on.
tutti_status Communicator::issued(Operations::Request made, tutti_request** request) {
  tutti_request& pending = operations_.pend(std::move(made));
  streams_->issued(&pending);
  if (request) *request = &pending;
  progress();
  return TUTTI_OK;
}

uint32_t Communicator::stream_service(StreamPlan& plan, const DeviceMemory& where) {
  if (plan.service) return *plan.service;
  std::string carriers = where.tables.memory->name;
  if (!plan.plan.transports.empty()) carriers += "+" + plan.plan.transports;
  if (plan.fuses) carriers += "+fused";
  plan.service = reports_->row(collective_name(plan.plan.shape.collective), plan.plan.algorithm, carriers);
  return *plan.service;
}

// In checked mode, after the checks of all calls before it.
void Communicator::check_stream_call(const Call& mine, uint64_t timeout_ns) {
  try {
    waiter_.until(
        [&] { return operations_.all_launched() && call_check_.check(mine, [](Link& link) { return connect(link); }); },
        timeout_ns, [&] { breakdown_.fail(breakdown_.late(timeout_ns, mine.sequence)); });
  } catch (const std::exception& problem) {
    breakdown_.fail(cause_of(problem));
  }
  breakdown_.require_none();
}

// The call's time is over: does a rank of this process keep it waiting?
void Communicator::require_peers(const StreamCall& call) {
  std::string peer;
  if (const std::string missing = streams_->missing(); !missing.empty())
    peer =
        fmt::format("{} of its process: ranks that are threads of one process call from threads of their own", missing);
  else if (const auto issuer = streams_->silent_issuer(call.timeout_ns))
    peer = fmt::format(
        "{} of its process, whose thread puts the work of all into their streams and has not come back from a call of "
        "the device: is a stream full of work that waits for something else?",
        *issuer);
  else
    return;
  const Failure late(
      TUTTI_TIMEOUT,
      fmt::format("has waited {:.1f} s (TUTTI_TIMEOUT) in {} on device memory for rank {}",
                  static_cast<double>(call.timeout_ns) * 1e-9, collective_name(call.shape.collective), peer));
  streams_->leave(late);
  throw late;
}

// A turn of the wait until a call's work is in the stream. False: nothing has moved for too long, and not for the work
// that the application has put into the stream before.
bool Communicator::fill_stream(Waiter::Round& round) {
  const bool in_time = round.go_on(!streams_->awaits_peer() && !streams_->reached());
  if (breakdown_.begun()) throw breakdown_.failure();
  return in_time;
}

Failure Communicator::stood_still(const StreamCall& call) const {
  const double seconds = static_cast<double>(call.timeout_ns) * 1e-9;
  const std::string awaited = streams_->waits_for();
  return {TUTTI_TIMEOUT,
          awaited.empty()
              ? fmt::format("{} has stood still for {:.1f} s (TUTTI_TIMEOUT)", streams_->standpoint(), seconds)
              : fmt::format("has waited {:.1f} s (TUTTI_TIMEOUT) in {} on device memory for {}", seconds,
                            streams_->begun_text(), awaited)};
}

// Until the work is in the stream: the ranks of this process meet for it. What is pending goes on meanwhile.
void Communicator::issue_stream(const StreamCall& call, StreamPlan& plan) {
  Waiter::Round round(waiter_, call.timeout_ns);
  const auto meanwhile = [&] {
    if (!fill_stream(round)) throw stood_still(call);
  };
  try {
    const std::function<void()> waiting = std::ref(meanwhile);
    const uint64_t turn = streams_->begin(call, plan, waiting);
    while (!streams_->passed(turn)) {
      bool in_time = true;
      try {
        in_time = fill_stream(round);
      } catch (const Failure& why) {
        streams_->leave(why);
        throw;
      }
      if (!in_time) require_peers(call);
    }
  } catch (const std::exception& problem) {
    end_issue(failure_of(problem));
  }
}

// It may have failed half-way. What it has left in the stream is spoken of in the communicator's error, or in that of
// this call where the other is known already.
void Communicator::end_issue(const Failure& failure) {
  streams_->failed();
  std::string in_use;
  if (breakdown_.begun()) {
    in_use = let_streams_go();
    fail_streams(async_error());
  } else {
    breakdown_.fail({failure.status, rank_, failure.text});
  }
  throw Failure(async_error(), breakdown_.text() + in_use);
}

// Waits until no communicator of the process has work pending on the device. Work of this one has deadlines of its own.
void Communicator::await_device(uint64_t timeout_ns) {
  const auto late = [&] {
    throw Failure(
        TUTTI_TIMEOUT,
        fmt::format("has waited {:.1f} s (TUTTI_TIMEOUT) for {}: this call needs memory or kernels of {}, "
                    "which waits until no communicator of the process has work pending there",
                    static_cast<double>(timeout_ns) * 1e-9, streams_->pending_users(), core::describe(device_)));
  };
  if (!waiter_.until([this] { return streams_->may_synchronise(); }, timeout_ns, late,
                     [this] { return streams_->operations() != 0; }))
    throw breakdown_.failure();
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
StreamPlan& Communicator::open_channels(const StreamCall& call, StreamPlan& plan, const Call& mine) {
  StreamPlan* form = &plan;
  try {
    const auto until = [&](const auto& enough) { await_peers(enough, call.timeout_ns, call.sequence); };
    const auto meet = [&](const std::string& bytes) {
      return gather(fmt::format("{}, plan {:016x}", call_text(mine), mine.plan), bytes, call.timeout_ns, call.sequence);
    };
    form = &streams_->choose_form(call, plan, std::cref(meet), until);
    streams_->open_channels(call, *form, until);
  } catch (const std::exception& problem) {
    if (!breakdown_.begun()) breakdown_.fail(cause_of(problem));
  }
  if (breakdown_.begun()) streams_->failed();  // also where all have come, and then something broke
  breakdown_.require_none();
  return *form;
}

// Until other ranks have come to the call, too.
void Communicator::await_peers(const std::function<bool()>& enough, uint64_t timeout_ns,
                               std::optional<uint64_t> sequence) {
  const bool come = waiter_.until(
      enough, timeout_ns, [&] { breakdown_.fail(breakdown_.late(timeout_ns, sequence)); },
      [this] { return streams_ && streams_->held_up(); });
  if (!come) throw breakdown_.failure();
}

bool Communicator::advance_streams() {
  if (!untold_.empty()) tell_of_streams();
  return streams_->advance([this](tutti_request* request) {
    if (Operations::unmatched(*request)) return false;
    operations_.complete(*request, TUTTI_OK);
    return true;
  });
}

// After a failure: lets the device's work come to its end, so that nothing of ours is in use any more. Returns what the
// error has to say where it does not, or "".
std::string Communicator::let_streams_go() {
  waiter_.watch([this] { return streams_->let_go(); }, let_go_limit_ns);
  return streams_->in_use();
}

void Communicator::fail_streams(tutti_status status) {
  streams_->fail_all([&](tutti_request* request) { operations_.complete(*request, status); });
}

// The thread of another rank uses them still, and nobody will say when it does not any more.
void Communicator::keep_streams() {
  struct Kept {
    std::unique_ptr<StreamRunner> streams;
    std::vector<Link> links, mapped_links;
  };
  static std::mutex mutex;
  static auto& kept = *new std::vector<Kept>;
  const std::lock_guard lock(mutex);
  log(TUTTI_LOG_WARN, name(),
      fmt::format("rank {}: the thread of another rank still puts work into this rank's stream: scratch and plans are "
                  "kept until the process ends",
                  rank_));
  kept.push_back({std::move(streams_), std::move(fabric_.links()), std::move(fabric_.mapped_links())});
}

}  // namespace tutti::core
