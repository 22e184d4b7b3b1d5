// SPDX-License-Identifier: Apache-2.0
#include "engine/communicator.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <tutti/registry.h>

#include <algorithm>

#include "bootstrap/failure.hpp"
#include "engine/fork_generation.hpp"
#include "engine/host.hpp"

namespace tutti::core {
namespace {

constexpr size_t most_plans = 1024;
constexpr uint64_t look_interval_ns = 1'000'000;
constexpr uint64_t drain_limit_ns = 5'000'000'000;
constexpr uint32_t polls_per_look = 64;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// Where the communicator has a progress thread or asynchronous operations other threads may come in, so the engine is
// locked; otherwise its owner is alone and pays nothing. `pending_` is published last, so that whoever reads zero knows that
// nobody else is inside.
class Communicator::Hold {
 public:
  explicit Hold(Communicator& comm) : comm_(comm) {
    if (comm.threaded_ || comm.pending_.load(std::memory_order_acquire)) lock_ = std::unique_lock(comm.mutex_);
  }
  Hold(Communicator& comm, std::unique_lock<std::mutex> lock) : comm_(comm), lock_(std::move(lock)) {}
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() {
    const uint64_t before = comm_.pending_.load(std::memory_order_relaxed);
    if (before != comm_.unfinished_) {
      const bool first = before == 0;
      comm_.pending_.store(comm_.unfinished_, std::memory_order_release);
      if (first) {
        if (lock_) lock_.unlock();
        ActiveEngines::process().add(&comm_);
      }
    }
  }

 private:
  Communicator& comm_;
  std::unique_lock<std::mutex> lock_;
};

bool Communicator::try_progress() {
  if (!pending_.load(std::memory_order_acquire)) return false;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return true;
  if (!pending_.load(std::memory_order_acquire)) return false;
  const Hold hold(*this, std::move(lock));
  progress();
  return unfinished_ != 0;
}

void Communicator::progress_thread() {
  uint32_t idle = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    bool busy = false;
    {
      const Hold hold(*this, std::unique_lock(mutex_));
      busy = unfinished_ != 0;
      if (busy && progress()) idle = 0;
      if (idle % polls_per_look == 0) look_around();
    }
    ++idle;
    if (busy && idle < policy_.spins)
      relax();
    else if (busy && idle < policy_.spins + policy_.yields)
      sched_yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(busy ? 50 : 500));
  }
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
  const char* verify_setting = host_config("TUTTI_VERIFY");
  if (verify_setting && std::string(verify_setting) == "1") {
    const Proof proof = verify_algorithm(*choice.algorithm, problem);
    if (!proof.ok())
      throw Failure(TUTTI_INTERNAL, fmt::format("TUTTI_VERIFY: algorithm {} is wrong: {}", choice.algorithm->name, proof.error));
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
    if (services_[i].collective == collective && services_[i].algorithm == algorithm && services_[i].transports == transports)
      return static_cast<uint32_t>(i);
  services_.push_back({collective, algorithm, transports});
  return static_cast<uint32_t>(services_.size() - 1);
}

// ---- Operations --------------------------------------------------------------------------------------------

void Communicator::require_usable() const {
  if (fork_generation_ != fork_generation())
    throw Failure(TUTTI_INVALID_USAGE, "this process was forked after the communicator was made: a child may only exec or exit");
  if (const tutti_status status = async_error(); status < 0) throw Failure(status, broken_text_);
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
  ++plan.pins;
}

tutti_status Communicator::collective(const Shape& shape, const void* in, void* out, const tutti_options* options,
                                      tutti_request** request) {
  const Hold hold(*this);
  require_usable();
  Plan* plan = memo_[shape.collective];
  if (!plan || !(plan->shape == shape)) plan = &find_plan(shape);
  if (!request) {
    begin(direct_, *plan, in, out, options);
    run_directly(direct_);
    return result_of(direct_);
  }
  auto made = std::make_unique<tutti_request>();
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
    require_usable();
    r.comm = this;
    r.timeout_ns = options && options->timeout_ns ? options->timeout_ns : timeout_ns_;
    r.begin_ticks = ticks();
    r.state = tutti_request::State::running;
    r.complete.store(false, std::memory_order_relaxed);
    r.service = service_row(sending ? "send" : "receive", "", links_[peer].port->api->name);
    r.transfer.sending = sending;
    r.transfer.peer = peer;
    r.transfer.tag = tag;
    r.transfer.data = static_cast<std::byte*>(data);
    r.transfer.bytes = bytes;
    r.transfer.finished = [this, &r] {
      if (r.transfer.status < 0 && broken_status_.load(std::memory_order_relaxed) == TUTTI_OK)
        r.transfer.error = fmt::format("rank {}: {}: {}", rank_, name_, r.transfer.error);
      complete(r, r.transfer.status);
    };
    ++unfinished_;
    point_to_point_.start(&r.transfer);
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
  const tutti_status status = link.port->api->connect(link.port->endpoint, link.peer, link.address.data(), link.address.size(), &link.handle);
  if (status < 0) throw Failure(status, fmt::format("{}: connecting to rank {}: {}", link.port->api->name, link.peer, take_plugin_error()));
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
  window.running = &request;
  window.execution.launch(*request.plan, request.in, request.out, ports_.size(), request.plan->stores.next(&request == &direct_));
  request.state = tutti_request::State::running;
  return true;
}

void Communicator::complete(tutti_request& request, tutti_status status) {
  Service& service = services_[request.service];
  ++service.calls;
  service.bytes += request.plan ? request.plan->call_bytes : request.transfer.bytes;
  service.ticks += ticks() - request.begin_ticks;
  if (request.plan) {
    --request.plan->pins;
    Window& window = windows_[request.sequence % windows_.size()];
    if (window.running == &request) window.running = nullptr;
  }
  request.state = tutti_request::State::done;
  request.status = status;
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
      if (windows_[request.sequence % windows_.size()].execution.advance()) {
        at = in_order_.erase(at);
        moved = true;
        complete(request, TUTTI_OK);
        continue;
      }
    } catch (const Failure& failure) {
      break_down(failure.status, fmt::format("{}: {}", describe(request), failure.text), true);
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
  if (lost_status_ < 0 && async_error() == TUTTI_OK) {
    give_up_lost_peer();
    moved = true;
  }
  return moved;
}

// A transport has lost a peer. Often that peer (or what made it end) is about to be named by the control plane, with the
// cause: that is worth a short wait.
void Communicator::give_up_lost_peer() {
  constexpr uint64_t patience_ns = 200'000'000;
  const uint64_t limit = clock_ns() + patience_ns;
  do {
    if (const auto lost = bootstrap_->poll_failure()) {
      break_down(TUTTI_PEER_FAILED, fmt::format("{} [rank {}: {}]", lost_text_, lost->first, lost->second), false);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (clock_ns() < limit);
  break_down(lost_status_, lost_text_, true);
}

bool Communicator::progress() {
  if (async_error() < 0) return false;
  bool moved = false;
  if (!in_order_.empty()) moved |= advance_operations();
  if (point_to_point_.active()) moved |= advance_transfers();
  bool connecting = false;
  for (const tutti_request* request : in_order_) connecting |= request->state == tutti_request::State::queued;
  moved |= progress_ports(point_to_point_.active() || connecting);
  if (point_to_point_.replies()) moved |= advance_transfers();
  return moved;
}

bool Communicator::advance_transfers() {
  try {
    return point_to_point_.advance([this](Link& link) { return connect(link); });
  } catch (const Failure& failure) {
    break_down(failure.status, fmt::format("rank {}: {}: {}", rank_, name_, failure.text), true);
    return true;
  }
}

// What need not be looked at in every poll.
void Communicator::look_around() {
  if (abort_asked_.load(std::memory_order_relaxed) && async_error() == TUTTI_OK) {
    const std::lock_guard lock(abort_mutex_);
    break_down(TUTTI_ABORTED, fmt::format("rank {}: {}: aborted: {}", rank_, name_, abort_reason_), true);
    return;
  }
  progress_ports(true);
  ActiveEngines::process().progress_others(this);
  const uint64_t now = clock_ns();
  if (now < next_look_ns_) return;
  next_look_ns_ = now + look_interval_ns;
  if (async_error() < 0) return;
  if (const auto lost = bootstrap_->poll_failure()) {
    break_down(TUTTI_PEER_FAILED,
               fmt::format("rank {}: {}: rank {} is lost: {}", rank_, name_, lost->first, lost->second), false);
    return;
  }
  check_deadlines(now);
}

void Communicator::check_deadlines(uint64_t now) {
  const auto overdue = [&](tutti_request& request, bool moved) {
    if (request.last_progress_ns == 0 || moved) request.last_progress_ns = now;
    return now - request.last_progress_ns > request.timeout_ns;
  };
  const auto late = [&](tutti_request& request) {
    const bool running = request.state == tutti_request::State::running;
    Execution& execution = windows_[request.sequence % windows_.size()].execution;
    if (!overdue(request, running && execution.take_progress())) return false;
    break_down(TUTTI_TIMEOUT,
               fmt::format("{}: no progress for {:.1f} s (TUTTI_TIMEOUT); it stands at {}", describe(request),
                           static_cast<double>(request.timeout_ns) * 1e-9,
                           running ? execution.where() : std::string("its start: links are being connected, or earlier operations go on")),
               true);
    return true;
  };
  if (!direct_.complete.load(std::memory_order_relaxed) && late(direct_)) return;
  for (tutti_request* request : in_order_)
    if (late(*request)) return;
  if (const Transfer* transfer = point_to_point_.overdue(now, timeout_ns_))
    break_down(TUTTI_TIMEOUT,
               fmt::format("rank {}: {}: {} rank {} with tag {} made no progress for {:.1f} s (TUTTI_TIMEOUT); it waits for "
                           "the other side's {}",
                           rank_, name_, transfer->sending ? "send to" : "receive from", transfer->peer, transfer->tag,
                           static_cast<double>(timeout_ns_) * 1e-9, transfer->sending ? "receive" : "send"),
               true);
}

std::string Communicator::describe(const tutti_request& request) const {
  return fmt::format("rank {}: {}: {} #{} ({}{})", rank_, name_, collective_name(request.plan->shape.collective), request.sequence,
                     request.plan->algorithm->name, request.plan->transports.empty() ? "" : " over " + request.plan->transports);
}

void Communicator::drain() {
  const uint64_t limit = clock_ns() + drain_limit_ns;
  for (Port& port : ports_)
    while (port.outstanding && clock_ns() < limit) {
      const uint64_t before = port.outstanding;
      progress_port(port, *this);
      if (port.outstanding == before) sched_yield();
    }
  for (const Port& port : ports_)
    if (port.outstanding)
      broken_text_ += fmt::format("; {} has not given back {} buffers: keep them untouched until the communicator is destroyed",
                                  port.api->name, port.outstanding);
}

void Communicator::break_down(tutti_status status, const std::string& text, bool tell_others) {
  if (async_error() < 0) return;
  broken_text_ = text;
  broken_status_.store(status, std::memory_order_release);
  log(TUTTI_LOG_INFO, name_, text);
  if (tell_others) bootstrap_->announce_failure(text);
  for (Port& port : ports_) port.api->abort(port.endpoint);
  drain();
  if (!direct_.complete.load(std::memory_order_relaxed)) complete(direct_, status);
  while (!in_order_.empty()) {
    tutti_request* request = in_order_.front();
    in_order_.pop_front();
    complete(*request, status);
  }
  point_to_point_.fail_all(status, broken_text_);
}

// ---- Waiting -----------------------------------------------------------------------------------------------

void Communicator::pause(uint32_t& fruitless) {
  ++fruitless;
  if (fruitless % polls_per_look == 0) look_around();
  if (fruitless < policy_.spins) {
    relax();
  } else if (fruitless < policy_.spins + policy_.yields) {
    sched_yield();
  } else {
    look_around();
    if (!ActiveEngines::process().progress_others(this))
      sleep();
    else
      sched_yield();
  }
}

// Until something can be done, at most a few milliseconds: the deadline and other threads' wishes are looked at in between.
void Communicator::sleep() {
  constexpr int most_ms = 20;
  constexpr size_t most_ports = 15;
  pollfd fds[most_ports + 1];
  size_t n = 0, armed = 0;
  bool can_sleep = ports_.size() <= most_ports, busy = false;
  for (Port& port : ports_) {
    if (!port.wait_fd || !can_sleep) {
      can_sleep = false;
      break;
    }
    ++armed;
    if (port.wait_fd->arm(port.endpoint) != TUTTI_OK) {
      busy = true;
      break;
    }
    fds[n++] = {port.fd, POLLIN, 0};
  }
  if (!can_sleep)
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  else if (!busy) {
    if (const int fd = bootstrap_->wait_fd(); fd >= 0) fds[n++] = {fd, POLLIN, 0};
    poll(fds, n, most_ms);
  } else {
    sched_yield();
  }
  for (size_t i = 0; i < armed; ++i) ports_[i].wait_fd->disarm(ports_[i].endpoint);
}

// A blocking call. Alone, it runs at once in this thread; behind asynchronous operations it takes its turn.
void Communicator::run_directly(tutti_request& request) {
  uint32_t fruitless = 0;
  Window& window = windows_[request.sequence % windows_.size()];
  try {
    while (!in_order_.empty() || window.running || !try_launch(request)) {
      if (!progress()) {
        progress_ports(true);
        pause(fruitless);
      } else {
        fruitless = 0;
      }
      if (request.complete.load(std::memory_order_relaxed)) return;
    }
    for (fruitless = 0; !window.execution.advance();) {
      const bool moved = progress_ports(false);
      if (moved)
        fruitless = 0;
      else
        pause(fruitless);
      if (request.complete.load(std::memory_order_relaxed)) return;  // broken down
    }
  } catch (const Failure& failure) {
    break_down(failure.status, fmt::format("{}: {}", describe(request), failure.text), true);
    return;
  }
  request.plan->stores.report(ticks() - request.begin_ticks);
  complete(request, TUTTI_OK);
}

tutti_status Communicator::result_of(tutti_request& request) {
  if (request.status == TUTTI_OK) return TUTTI_OK;
  const bool own = !request.plan && !request.transfer.error.empty();
  return remember(request.status, own ? request.transfer.error : broken_text_);
}

tutti_status Communicator::test(tutti_request& request) {
  if (!request.complete.load(std::memory_order_acquire)) {
    const Hold hold(*this);
    if (!progress()) look_around();
  }
  return request.complete.load(std::memory_order_acquire) ? result_of(request) : tutti_status{TUTTI_AGAIN};
}

tutti_status Communicator::wait(tutti_request& request, uint64_t timeout_ns) {
  const uint64_t deadline = timeout_ns == UINT64_MAX ? UINT64_MAX : clock_ns() + timeout_ns;
  uint32_t fruitless = 0;
  while (!request.complete.load(std::memory_order_acquire)) {
    const Hold hold(*this);
    if (progress())
      fruitless = 0;
    else if (!request.complete.load(std::memory_order_acquire))
      pause(fruitless);
    if (deadline != UINT64_MAX && clock_ns() >= deadline && !request.complete.load(std::memory_order_acquire)) return TUTTI_AGAIN;
  }
  return result_of(request);
}

void Communicator::free(tutti_request* request) {
  if (!request->complete.load(std::memory_order_acquire)) wait(*request, UINT64_MAX);
  delete request;
}

void Communicator::abort(const std::string& reason) {
  {
    const std::lock_guard lock(abort_mutex_);
    if (!abort_asked_.load(std::memory_order_relaxed)) abort_reason_ = reason;
    abort_asked_.store(true, std::memory_order_release);
  }
  // Whoever is inside notices; if nobody is, it is done here.
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock && direct_.complete.load(std::memory_order_acquire)) {
    const Hold hold(*this, std::move(lock));
    look_around();
  }
}

tutti_status Communicator::remember(tutti_status status, std::string text) {
  error_text_ = std::move(text);
  return status;
}

// ---- Port events -------------------------------------------------------------------------------------------

void Communicator::on_control(Port& port, uint32_t peer, const std::byte* data, uint64_t bytes) {
  std::string error;
  if (peer >= nranks_ || peer == rank_ || async_error() < 0) return;
  if (!point_to_point_.on_control(peer, data, bytes, &error)) {
    lost_status_ = TUTTI_MISMATCH;
    lost_text_ = fmt::format("rank {}: {}: rank {} sent over {} {}", rank_, name_, peer, port.api->name, error);
  }
}

void Communicator::on_peer_failed(Port& port, uint32_t peer, const char* reason) {
  if (lost_status_ < 0) return;
  lost_status_ = TUTTI_PEER_FAILED;
  const tutti_request* oldest = !direct_.complete.load(std::memory_order_relaxed) ? &direct_
                                : in_order_.empty()                              ? nullptr
                                                                                 : in_order_.front();
  lost_text_ = fmt::format("{}: {} lost rank {}: {}", oldest ? describe(*oldest) : fmt::format("rank {}: {}", rank_, name_),
                           port.api->name, peer, reason);
}

void Communicator::on_port_error(Port& port, tutti_status status, const std::string& reason) {
  if (lost_status_ < 0) return;
  lost_status_ = status;
  lost_text_ = fmt::format("rank {}: {}: transport {} failed: {}", rank_, name_, port.api->name, reason);
}

// ---- Reports -----------------------------------------------------------------------------------------------

std::vector<tutti_service> Communicator::services() {
  const Hold hold(*this);
  std::vector<tutti_service> rows;
  for (const Service& s : services_)
    rows.push_back({s.collective.c_str(), s.algorithm.c_str(), s.transports.c_str(), s.calls, s.bytes, ticks_to_ns(s.ticks)});
  return rows;
}

std::vector<tutti_link_traffic> Communicator::traffic() const {
  std::vector<tutti_link_traffic> rows;
  for (const Link& link : links_)
    if (link.sent || link.received) rows.push_back({link.port->api->name, link.peer, 0, link.sent, link.received});
  return rows;
}

std::string Communicator::explain(uint32_t collective, uint64_t count, uint32_t dtype) {
  const uint32_t element_bytes = dtype_bytes(dtype);
  std::string text = fmt::format("{} of {} {} elements ({} bytes a block), {} ranks on {} hosts\n", collective_name(collective),
                                 count, dtype_name(dtype), count * element_bytes, nranks_, topology_.hosts());
  text += fmt::format("  {:<14} {:>14} {:>8}  {}\n", "algorithm", "predicted us", "slices", "");
  bool first = true;
  for (const Candidate& c : selector_->candidates(collective, 0, count, element_bytes)) {
    if (c.reason.empty())
      text += fmt::format("  {:<14} {:>14.3f} {:>8}  {}\n", c.algorithm->name, c.seconds * 1e6, c.slices,
                          first ? "chosen: the lowest predicted time" : "");
    else
      text += fmt::format("  {:<14} {:>14} {:>8}  no candidate: {}\n", c.algorithm->name, "-", "-", c.reason);
    first = false;
  }
  return text;
}

}  // namespace tutti::core
