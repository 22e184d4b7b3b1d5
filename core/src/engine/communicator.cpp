// SPDX-License-Identifier: Apache-2.0
#include "engine/communicator.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <tutti/registry.h>

#include <algorithm>

#include "bootstrap/failure.hpp"
#include "engine/communicator_hold.hpp"
#include "engine/fork_generation.hpp"
#include "engine/hash.hpp"
#include "engine/host.hpp"

namespace tutti::core {
namespace {

constexpr size_t most_plans = 1024;
constexpr uint64_t look_interval_ns = 1'000'000;

}  // namespace

bool Communicator::try_progress() {
  if (!pending_.load(std::memory_order_acquire)) return false;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return true;
  if (!pending_.load(std::memory_order_acquire)) return false;
  const Hold hold(*this, std::move(lock));
  notice_abort();
  progress();
  return unfinished_ != 0;
}

// ---- Plans -------------------------------------------------------------------------------------------------

Plan& Communicator::find_plan(const Shape& shape) {
  const auto found = plans_.find(shape);
  Plan& plan = found != plans_.end() ? *found->second : make_plan(shape);
  plan.last_used = ++plan_clock_;
  memo_[shape.collective] = &plan;
  return plan;
}

Plan& Communicator::make_plan(const Shape& shape) {
  evict_plans();
  const uint32_t element_bytes = shape.dtype ? dtype_bytes(shape.dtype) : 1;
  const Candidate choice = selector_->choose(shape.collective, shape.root, shape.count, element_bytes);
  Problem problem = selector_->problem(shape.collective, shape.root);
  if (verifies_) {
    const Proof proof = verify_algorithm(*choice.algorithm, problem);
    if (!proof.ok())
      throw Failure(TUTTI_INTERNAL,
                    fmt::format("TUTTI_VERIFY: algorithm {} is wrong: {}", choice.algorithm->name, proof.error));
  }
  problem.in_place.assign(nranks_, false);
  problem.in_place[rank_] = shape.in_place != 0;
  Schedule schedule;
  std::string error;
  const tutti_status status = build_schedule(*choice.algorithm, make_query(problem, rank_), &schedule, &error);
  if (status < 0) throw Failure(status, fmt::format("algorithm {}: {}", choice.algorithm->name, error));
  const uint64_t slices = selector_->slices_of(schedule, shape.count, element_bytes);
  auto plan = std::make_unique<Plan>(bind_plan(schedule, shape, slices, nranks_, rank_, links_));
  plan->algorithm = choice.algorithm;
  plan->schedule_hash = schedule_hash(schedule);
  plan->common_hash = hash_text(fmt::format("{} in {} slices", choice.algorithm->name, slices));
  plan->service = service_row(collective_name(shape.collective), choice.algorithm->name, plan->transports);
  return *plans_.emplace(shape, std::move(plan)).first->second;
}

void Communicator::evict_plans() {
  if (plans_.size() < most_plans) return;
  auto oldest = plans_.end();
  for (auto p = plans_.begin(); p != plans_.end(); ++p)
    if (!p->second->pins && (oldest == plans_.end() || p->second->last_used < oldest->second->last_used)) oldest = p;
  if (oldest == plans_.end()) return;
  Plan*& memo = memo_[oldest->first.collective];
  if (memo == oldest->second.get()) memo = nullptr;
  plans_.erase(oldest);
}

uint32_t Communicator::service_row(const char* collective, const char* algorithm, const std::string& transports) {
  for (size_t i = 0; i < services_.size(); ++i)
    if (services_[i].collective == collective && services_[i].algorithm == algorithm &&
        services_[i].transports == transports)
      return static_cast<uint32_t>(i);
  services_.push_back({collective, algorithm, transports});
  recorder_->name_service(static_cast<uint32_t>(services_.size() - 1), algorithm, transports);
  return static_cast<uint32_t>(services_.size() - 1);
}

// ---- Operations --------------------------------------------------------------------------------------------

bool Communicator::forked() const { return fork_generation_ != fork_generation(); }

void Communicator::require_usable() {
  if (forked())
    throw Failure(TUTTI_INVALID_USAGE,
                  "this process was forked after the communicator was made: a child may only exec or exit");
  if (!breaking_ && bootstrap_->control().failed()) break_down(*bootstrap_->control().first_cause());
  if (breaking_) throw Failure(async_error(), broken_text_);
}

void Communicator::begin(tutti_request& request, Plan& plan, const void* in, void* out, const tutti_options* options) {
  request.comm = this;
  request.plan = &plan;
  request.in = in;
  request.out = out;
  request.sequence = next_sequence_++;
  request.timeout_ns = options && options->timeout_ns ? options->timeout_ns : timeout_ns_;
  request.last_progress_ns = 0;
  request.begin_ticks = ticks();
  request.service = plan.service;
  request.state = tutti_request::State::queued;
  request.status = TUTTI_OK;
  request.complete.store(false, std::memory_order_relaxed);
  recorder_->begin(call_of(plan, request.sequence), plan.shape.in_place, plan.service, request.begin_ticks);
  ++plan.pins;
}

tutti_status Communicator::collective(const Shape& shape, const void* in, void* out, const tutti_options* options,
                                      tutti_request** request) {
  const Hold hold(*this);
  // Calls that never wait would otherwise never look around.
  constexpr uint64_t calls_per_look = 256;
  if (abort_asked_.load(std::memory_order_relaxed) || ++polls_ % calls_per_look == 0) look_around();
  require_usable();
  Plan* plan = memo_[shape.collective];
  if (!plan || !(plan->shape == shape)) plan = &or_tell([&]() -> Plan& { return find_plan(shape); });
  if (call_check_.has_news()) hear_news(call_of(*plan, next_sequence_));
  if (!request) {
    begin(direct_, *plan, in, out, options);
    run_directly(direct_);
    return result_of(direct_);
  }
  auto made = or_tell([] { return std::make_unique<tutti_request>(); });
  made->alive = alive_;
  begin(*made, *plan, in, out, options);
  in_order_.push_back(made.get());
  ++unfinished_;
  *request = made.release();
  progress();
  return TUTTI_OK;
}

tutti_status Communicator::transfer(bool sending, void* data, uint64_t bytes, uint32_t peer, uint32_t tag,
                                    const tutti_options* options, tutti_request** request) {
  auto made = std::make_unique<tutti_request>();
  tutti_request& r = *made;
  {
    const Hold hold(*this);
    if (abort_asked_.load(std::memory_order_relaxed)) look_around();
    require_usable();
    r.comm = this;
    r.alive = alive_;
    r.timeout_ns = options && options->timeout_ns ? options->timeout_ns : timeout_ns_;
    r.begin_ticks = ticks();
    r.state = tutti_request::State::running;
    r.complete.store(false, std::memory_order_relaxed);
    r.service = service_row(sending ? "send" : "receive", "", links_[peer].port->api->name);
    r.sequence = recorder_->begin_transfer(sending, peer, tag, bytes, r.service, r.begin_ticks);
    r.transfer.sending = sending;
    r.transfer.peer = peer;
    r.transfer.tag = tag;
    r.transfer.data = static_cast<std::byte*>(data);
    r.transfer.bytes = bytes;
    r.transfer.timeout_ns = r.timeout_ns;
    r.transfer.finished = [this, &r] {
      if (r.transfer.status < 0 && broken_status_.load(std::memory_order_relaxed) == TUTTI_OK)
        r.transfer.error = fmt::format("rank {}: {}: {}", rank_, name_, r.transfer.error);
      complete(r, r.transfer.status);
    };
    ++unfinished_;
    try {
      point_to_point_.start(&r.transfer);
      end_difference();
    } catch (const std::exception& problem) {
      break_down(problem);
    }
    progress();
  }
  if (request) {
    *request = made.release();
    return TUTTI_OK;
  }
  const tutti_status status = wait(r, UINT64_MAX);
  return status;
}

bool Communicator::connect(Link& link) {
  if (link.handle) return true;
  const tutti_status status =
      link.port->api->connect(link.port->endpoint, link.peer, link.address.data(), link.address.size(), &link.handle);
  if (status < 0)
    throw Failure(status,
                  fmt::format("{}: connecting to rank {}: {}", link.port->api->name, link.peer, take_plugin_error()));
  if (status == TUTTI_AGAIN) link.handle = nullptr;
  return link.handle != nullptr;
}

bool Communicator::connected(const std::vector<Link*>& links) {
  bool all = true;
  for (Link* link : links) all &= connect(*link);
  return all;
}

// Starts a queued operation when its window is free and its links are there. Operations start in order.
bool Communicator::try_launch(tutti_request& request) {
  Window& window = windows_[request.sequence % windows_.size()];
  if (window.running || !connected(request.plan->links)) return false;
  if (call_check_.checked()) {
    if (!call_check_.check(call_of(*request.plan, request.sequence), [this](Link& link) { return connect(link); }))
      return false;
  } else if (request.plan->fresh) {
    call_check_.tell(call_of(*request.plan, request.sequence), request.plan->links);
  }
  window.running = &request;
  window.execution.launch(*request.plan, request.in, request.out, ports_.size(),
                          request.plan->stores.next(&request == &direct_));
  request.state = tutti_request::State::running;
  return true;
}

// Others have told which calls they make. A difference ends the communicator before this rank's call begins.
void Communicator::hear_news(const Call& mine) {
  if (const auto difference = call_check_.compare_news(mine))
    break_down(TUTTI_MISMATCH, difference->culprit, difference->reason);
  require_usable();
}

// At the end of a plan's first launch: what its peers told of their calls before they sent anything is here by now.
// True when it has ended the communicator.
bool Communicator::listen_once(Plan& plan) {
  plan.fresh = false;
  progress_ports(true);
  return breaking_;
}

void Communicator::complete(tutti_request& request, tutti_status status) {
  Service& service = services_[request.service];
  const uint64_t now = ticks();
  ++service.calls;
  service.bytes += request.plan ? request.plan->call_bytes : request.transfer.bytes;
  service.ticks += now - request.begin_ticks;
  if (request.plan) {
    recorder_->end(request.sequence, now, status);
    --request.plan->pins;
    Window& window = windows_[request.sequence % windows_.size()];
    if (window.running == &request) window.running = nullptr;
  } else if (request.exchange) {
    for (const Transfer& transfer : request.group)
      if (transfer.on_stream) recorder_->end_transfer(transfer.record, now, status);
  } else if (request.transfer.finished) {
    recorder_->end_transfer(request.sequence, now, status);
  } else {  // on a stream
    recorder_->end(request.sequence, now, status);
  }
  request.state = tutti_request::State::done;
  request.status = status;
  if (status < 0)
    request.error = request.plan || request.transfer.error.empty() ? broken_text_ : request.transfer.error;
  if (&request != &direct_) --unfinished_;
  request.complete.store(true, std::memory_order_release);  // from here on its owner may free it
}

bool Communicator::advance_operations() {
  bool moved = false;
  bool may_launch = true;
  for (auto at = in_order_.begin(); at != in_order_.end();) {
    tutti_request& request = **at;
    try {
      if (request.state == tutti_request::State::queued) {
        if (!may_launch || !try_launch(request)) {
          may_launch = false;
          ++at;
          continue;
        }
      }
      Execution& execution = windows_[request.sequence % windows_.size()].execution;
      const bool over = execution.advance();
      moved |= execution.take_moved();
      if (over) {
        if (request.plan->fresh && listen_once(*request.plan)) return true;
        at = in_order_.erase(at);
        moved = true;
        complete(request, TUTTI_OK);
        continue;
      }
    } catch (const Failure& failure) {
      break_down(failure);
      return true;
    }
    ++at;
  }
  return moved;
}

bool Communicator::progress_ports(bool all) {
  bool moved = false;
  for (Port& port : ports_)
    if (all || port.outstanding) moved |= progress_port(port, *this);
  if (lost_status_ < 0 && !breaking_) {
    break_down(lost_status_, lost_peer_, lost_reason_);
    moved = true;
  }
  return moved;
}

bool Communicator::progress() {
  if (breaking_) return false;
  try {
    return advance_all();
  } catch (const std::exception& problem) {
    break_down(problem);
    return true;
  }
}

bool Communicator::advance_all() {
  bool moved = false;
  if (!in_order_.empty()) moved |= advance_operations();
  if (point_to_point_.active()) moved |= advance_transfers();
  bool connecting = streams_ && streams_->pending();
  if (connecting) moved |= advance_streams();
  for (const tutti_request* request : in_order_) connecting |= request->state == tutti_request::State::queued;
  moved |= progress_ports(point_to_point_.active() || connecting);
  if (point_to_point_.replies()) moved |= advance_transfers();
  return moved;
}

bool Communicator::advance_transfers() {
  try {
    return point_to_point_.advance([this](Link& link) { return connect(link); });
  } catch (const Failure& failure) {
    break_down(failure);
    return true;
  }
}

// What need not be looked at in every poll.
void Communicator::look_around() {
  notice_abort();
  if (streams_) streams_->heed();
  if (breaking_) return;
  progress_ports(true);
  ActiveEngines::process().progress_others(this);
  const uint64_t now = clock_ns();
  if (now < next_look_ns_) return;
  next_look_ns_ = now + look_interval_ns;
  if (breaking_) return;
  if (bootstrap_->control().failed()) return break_down(*bootstrap_->control().first_cause());
  check_deadlines(now);
}

}  // namespace tutti::core
