// SPDX-License-Identifier: Apache-2.0
#include "walk_endpoint.hpp"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::conformance::contract {
namespace {

constexpr uint8_t overwritten = 0x5B;
constexpr size_t most_retired = 48;

template <typename Get>
auto offered(Get&& get) -> decltype(get()) {
  try {
    return get();
  } catch (const NotOffered&) {
    return nullptr;
  }
}

}  // namespace

WalkEndpoint::WalkEndpoint(Bench& bench, const Walk& walk, World& world, uint32_t rank, uint32_t communicator,
                           tutti_domain* domain)
    : bench_(bench),
      walk_(walk),
      world_(world),
      shared_(world.communicators[communicator]),
      me_(rank),
      communicator_(communicator),
      mail_(shared_),
      peers_(walk.ranks),
      stillness_(world, walk.ranks) {
  RankOptions options;
  options.rank = rank;
  options.nranks = walk.ranks;
  options.lanes = walk.lanes;
  options.communicator = walk.seed * 1021 + communicator * 2 + 1;
  options.domain = domain;
  options.mail = &mail_;
  rank_ = std::make_unique<Rank>(bench, options);
  rank_->failures_expected = walk.has_end(communicator);
  for (Peer& peer : peers_) peer.out.resize(walk.lanes), peer.in.resize(walk.lanes);
  registers_ = TUTTI_HAS(tutti_transport, bench.transport(), register_memory);
  view_ = offered([&] { return bench.view(); });
  wait_ = offered([&] { return bench.wait_fd(); });
  if (wait_) {
    const tutti_status status = call("get_fd", false, [&] { return wait_->get_fd(rank_->endpoint, &fd_); });
    require(status == TUTTI_OK && fd_ >= 0, "W-1", "get_fd returned {}", status_text(status));
  }
}

WalkEndpoint::~WalkEndpoint() {
  try {
    close();
  } catch (...) {
  }
  for (const Lent& lent : kept_) munmap(lent.data, lent.bytes);
}

std::string WalkEndpoint::name(const Flight& f) const {
  return fmt::format("the {}{} of {} bytes: message {} from rank {} to rank {} on lane {} of communicator {}",
                     f.quiet ? "INLINE " : "", f.sending ? "SEND" : "RECV", f.memory.bytes(), f.label.k, f.label.from,
                     f.label.to, f.label.lane, communicator_);
}

void WalkEndpoint::play(const Step& step) {
  if (is_closed()) return;
  rouse();
  const uint32_t peer = step.peer;
  if (step.act < Act::progress && !is_linked(peer)) return;
  switch (step.act) {
    case Act::send:
    case Act::receive:
      for (uint32_t i = 0; i < step.amount && post_one(step.act == Act::send, peer, step.lane, step.dice + i * 77);)
        ++i;
      break;
    case Act::post_mixed:
      return post_mixed(step);
    case Act::view_send:
      return view_send(peer, step.lane, step.dice);
    case Act::view_receive:
      return view_receive(peer, step.lane, step.dice);
    case Act::send_region:
      return send_region(peer, step.lane, step.dice);
    case Act::control:
      for (uint32_t i = 0; i < step.amount; ++i) {
        const uint32_t k = shared_.controls[me_][peer];
        const tutti_status status =
            rank_->send_control(peer, planned_control(walk_, bench_.caps(), communicator_, {me_, peer, 0, k}));
        judge_status(status, peer, "send_control");
        if (status != TUTTI_OK) return;
        shared_.controls[me_][peer] = k + 1;
      }
      break;
    case Act::full_mail:
      shared_.refusals = step.amount;
      break;
    case Act::give_up: {
      if (!rank_->bench.has_fail_peer()) break;
      end(peer, World::gave_up);
      const tutti_status status = rank_->fail_peer(peer);
      require(status == TUTTI_OK, "T-30", "fail_peer({}) returned {}: {}", peer, status_text(status), last_error());
      break;
    }
    case Act::abort: {
      for (uint32_t other = 0; other < walk_.ranks; ++other) end(other, World::aborted);
      aborted_ = true;
      const tutti_status status = rank_->abort();
      require(status == TUTTI_OK, "T-31", "abort returned {}: {}", status_text(status), last_error());
      break;
    }
    case Act::close:
      for (uint32_t other = 0; other < walk_.ranks; ++other) end(other, World::closed);
      return close();
    default:
      break;
  }
}

// ---- Posting

bool WalkEndpoint::is_linked(uint32_t peer) {
  if (rank_->links[peer]) return true;
  const tutti_status status = rank_->connect(peer);
  if (status < 0)
    require(is_over(peer) || aborted_, "T-5", "rank {}'s connect to rank {} of communicator {} returned {}: {}", me_,
            peer, communicator_, status_text(status), last_error());
  return status == TUTTI_OK;
}

void WalkEndpoint::judge_status(tutti_status status, uint32_t peer, const char* function) const {
  const bool given_up = my_ends(peer) & World::gave_up;
  if (status >= 0) {
    require(status != TUTTI_OK || !(aborted_ || given_up), aborted_ ? "T-31" : "T-30",
            "rank {} took a {} for rank {} after {}", me_, function, peer, aborted_ ? "abort" : "fail_peer");
    return;
  }
  if (aborted_ && status == TUTTI_ABORTED) return;
  if ((given_up || peers_[peer].told) && status == TUTTI_PEER_FAILED) return;
  broken(aborted_   ? "T-31"
         : given_up ? "T-30"
                    : "T-9",
         "{} of rank {} for rank {} in communicator {} returned {}: {}. Expected {}", function, me_, peer,
         communicator_, status_text(status), last_error(),
         aborted_                        ? "TUTTI_ABORTED after abort"
         : given_up || peers_[peer].told ? "TUTTI_PEER_FAILED for a lost peer"
                                         : "TUTTI_OK: no PEER_FAILED record of it has come");
}

bool WalkEndpoint::may_post(bool sending, uint32_t peer, uint32_t lane) const {
  if (pending_.size() >= 500) return false;
  return sending ? !peers_[peer].out[lane].reserved : !peers_[peer].in[lane].shown;
}

void WalkEndpoint::enroll(Flight& flight) {
  const tutti_transport* t = bench_.transport();
  const tutti_memory memory{sizeof memory, TUTTI_MEMORY_HOST, flight.memory.data(), flight.memory.bytes(), -1, 0, 0};
  const tutti_status status =
      call("register_memory", true, [&] { return t->register_memory(rank_->domain, &memory, &flight.region); });
  require(status == TUTTI_OK, "T-35", "register_memory of {} bytes returned {}: {}", memory.bytes, status_text(status),
          last_error());
}

void WalkEndpoint::discharge(tutti_region*& region) {
  if (!region) return;
  const tutti_transport* t = bench_.transport();
  const tutti_status status =
      call("deregister_memory", true, [&] { return t->deregister_memory(rank_->domain, region); });
  region = nullptr;
  require(status == TUTTI_OK, "T-36", "deregister_memory returned {}: {}", status_text(status), last_error());
}

std::shared_ptr<WalkEndpoint::Flight> WalkEndpoint::prepare(bool sending, uint32_t peer, uint32_t lane, uint32_t k,
                                                            uint32_t dice) {
  const Label label{sending ? me_ : peer, sending ? peer : me_, lane, k};
  const Planned plan = planned(walk_, bench_.caps(), communicator_, label);
  const size_t bytes = sending ? plan.bytes : plan.expected;
  auto flight = std::make_shared<Flight>(label, plan, sending, bytes, dice % 7);
  if (sending) {
    fill(flight->memory.data(), bytes, fill_seed(walk_, communicator_), label);
    flight->memory.forbid_writing();
    flight->quiet = bytes <= bench_.caps().inline_bytes && dice / 7 % 2;
  }
  if (registers_ && bytes > 0 && !flight->quiet && dice / 14 % 8 == 0) enroll(*flight);
  return flight;
}

void WalkEndpoint::enter(const std::shared_ptr<Flight>& flight, Posted* posted) {
  const auto& [from, to, lane, k] = flight->label;
  if (flight->sending) {
    Outgoing& out = peers_[to].out[lane];
    out.next = k + 1;
    out_stream(to, lane).sent = out.next;
    if (flight->quiet) {
      complete_send(to, lane, k);
      flight->memory.allow();
      std::memset(flight->memory.data(), overwritten, flight->memory.bytes());
      return;
    }
    ++out.pending;
  } else {
    Incoming& in = peers_[from].in[lane];
    in.next = k + 1;
    in_stream(from, lane).awaited = in.next;
    ++in.pending;
  }
  pending_.insert(flight);
  posted->on_done = [this, flight](Posted& p) { settle(flight, p); };
}

bool WalkEndpoint::post_one(bool sending, uint32_t peer, uint32_t lane, uint32_t dice) {
  if (!may_post(sending, peer, lane)) return false;
  const uint32_t k = sending ? peers_[peer].out[lane].next : peers_[peer].in[lane].next;
  const auto flight = prepare(sending, peer, lane, k, dice);
  GuardedMemory& memory = flight->memory;
  tutti_transfer t = sending ? rank_->send(peer, lane, memory.data(), memory.bytes(),
                                           flight->quiet ? uint16_t{TUTTI_TRANSFER_INLINE} : uint16_t{0})
                             : rank_->receive(peer, lane, memory.data(), memory.bytes());
  t.region = flight->region;
  if (sending)
    if (auto& tried = out_stream(peer, lane).tried; tried < k + 1) tried = k + 1;
  tutti_status status = TUTTI_OK;
  Posted* posted = rank_->post(t, &status);
  judge_status(status, peer, "post");
  if (posted) {
    enter(flight, posted);
    return true;
  }
  discharge(flight->region);
  if (status == TUTTI_AGAIN && !sending && !is_over(peer) && !aborted_)
    require(peers_[peer].in[lane].pending >= bench_.caps().receive_depth, "T-20",
            "{} is refused though only {} RECVs are pending on that lane; receive_depth is {}", name(*flight),
            peers_[peer].in[lane].pending, bench_.caps().receive_depth);
  return false;
}

void WalkEndpoint::post_mixed(const Step& step) {
  uint32_t dice = step.dice;
  for (uint32_t i = 0; i < std::min<uint32_t>(step.amount, 40); ++i) {
    dice = dice * 1664525 + 1013904223;
    const uint32_t peer = (me_ + 1 + (dice >> 8) % (walk_.ranks - 1)) % walk_.ranks, lane = (dice >> 16) % walk_.lanes;
    if (is_linked(peer)) post_one(dice >> 24 & 1, peer, lane, dice >> 4);
  }
}

// ---- Completions and events

void WalkEndpoint::complete_send(uint32_t peer, uint32_t lane, uint32_t k) {
  Outgoing& out = peers_[peer].out[lane];
  if (out.done.size() <= k) out.done.resize(k + 1);
  out.done[k] = true;
  while (out.complete < out.done.size() && out.done[out.complete]) ++out.complete;
  out_stream(peer, lane).complete = out.complete;
}

void WalkEndpoint::retire(const std::shared_ptr<Flight>& flight) {
  discharge(flight->region);
  flight->memory.forbid("T-18", "the memory of a transfer that had completed");
  retired_.push_back(flight);
  if (retired_.size() > most_retired) retired_.pop_front();
}

void WalkEndpoint::settle(const std::shared_ptr<Flight>& flight, const Posted& posted) {
  const auto& [from, to, lane, k] = flight->label;
  pending_.erase(flight);
  if (flight->sending)
    --peers_[to].out[lane].pending;
  else
    --peers_[from].in[lane].pending;
  if (posted.status == TUTTI_PEER_FAILED || posted.status == TUTTI_ABORTED) {
    settle_lost(*flight, posted);
  } else if (flight->sending) {
    require(posted.status == TUTTI_OK, "T-11", "{} completed with {}", name(*flight), status_text(posted.status));
    complete_send(to, lane, k);
    flight->memory.allow();
    std::memset(flight->memory.data(), overwritten, flight->memory.bytes());
    if (k % 2) {  // every other one may still be read by a transport that has told too much
      discharge(flight->region);
      retired_.push_back(flight);
      return;
    }
  } else {
    settle_receive(*flight, posted);
  }
  retire(flight);
}

void WalkEndpoint::settle_receive(Flight& f, const Posted& posted) {
  require(in_stream(f.label.from, f.label.lane).tried > f.label.k, f.plan.bytes > 0 ? "T-17" : "T-25",
          "{} completed before its SEND was posted", name(f));
  const bool fits = f.plan.bytes == f.plan.expected;
  if (posted.status == TUTTI_MISMATCH && fits)
    broken(f.plan.bytes > 0 ? "T-13" : "T-25",
           "{} met a message of {} bytes: was a message dropped, doubled or overtaken?", name(f), posted.reported);
  require(posted.status == TUTTI_OK || posted.status == TUTTI_MISMATCH, "T-11", "{} completed with {}", name(f),
          status_text(posted.status));
  require(fits || posted.status == TUTTI_MISMATCH, "T-24", "{} completed with {}; its message has {} bytes", name(f),
          status_text(posted.status), f.plan.bytes);
  require(posted.reported == f.plan.bytes, fits ? "T-12" : "T-24", "{} reports {} bytes; its message has {}", name(f),
          posted.reported, f.plan.bytes);
  f.memory.check_surroundings();
  if (fits) judge_message(fill_seed(walk_, communicator_), f.label, walk_.lanes, f.memory.data(), f.plan.bytes);
}

// A transfer ended without having moved its message: is that allowed?
void WalkEndpoint::settle_lost(const Flight& f, const Posted& posted) const {
  const uint32_t peer = f.sending ? f.label.to : f.label.from;
  if (posted.status == TUTTI_ABORTED) {
    require(aborted_, "T-11", "{} completed with TUTTI_ABORTED; nobody called abort here", name(f));
    return;
  }
  if (aborted_ || (my_ends(peer) & World::gave_up)) return;
  require(ends_of(peer) != 0, "T-32", "{} completed with TUTTI_PEER_FAILED, and the peer has neither died nor ended",
          name(f));
  const bool only_closed = ends_of(peer) == World::closed;
  require(f.sending || !only_closed || in_stream(peer, f.label.lane).complete <= f.label.k, "T-33",
          "{} completed with TUTTI_PEER_FAILED. Its SEND had completed before the sender closed its endpoint", name(f));
}

void WalkEndpoint::read_events() {
  for (; !rank_->events.empty(); rank_->events.pop_front()) {
    const Event& event = rank_->events.front();
    Peer& peer = peers_[event.peer];
    if (event.kind == TUTTI_COMPLETION_PEER_FAILED) {
      require(!(my_ends(event.peer) & World::gave_up), "T-30", "rank {} gave rank {} up and was told of its loss: {}",
              me_, event.peer, event.data);
      require(aborted_ || ends_of(event.peer) != 0, "T-32",
              "rank {} was told that rank {} is lost in communicator {}, which it is not: {}", me_, event.peer,
              communicator_, event.data);
      require(!std::exchange(peer.told, true), "T-32", "rank {} was told twice that rank {} is lost", me_, event.peer);
      continue;
    }
    const Label label{event.peer, me_, 0, peer.controls++};
    const std::string expected = planned_control(walk_, bench_.caps(), communicator_, label);
    require(event.data == expected, "T-28",
            "control message {} from rank {} to rank {} in communicator {} has {} bytes: {}", label.k, event.peer, me_,
            communicator_, expected.size(),
            event.data.size() != expected.size()
                ? fmt::format("{} came", event.data.size())
                : first_difference(reinterpret_cast<const uint8_t*>(expected.data()),
                                   reinterpret_cast<const uint8_t*>(event.data.data()), expected.size()));
  }
}

uint32_t WalkEndpoint::turn(uint32_t capacity) {
  if (is_closed()) return 0;
  bool overslept = false;
  if (asleep_) {
    overslept = stillness_.lasts(bench_.patience / 2);
    pollfd one{fd_, POLLIN, 0};
    const bool mail = mail_.has_any(me_);
    const bool readable = poll(&one, 1, mail || walk_.way == Walk::Way::one_thread ? 0 : 1) > 0;
    overslept &= !readable && !mail;
    world_.turns[me_] += walk_.way == Walk::Way::one_thread ? 0 : 100;
    if (!readable && !mail && !overslept) return 0;
    rouse();
  }
  const uint32_t n = rank_->progress(capacity);
  require(!overslept || n == 0 || stillness_.had_news(), "W-2",
          "rank {} of communicator {} sleeps: arm returned TUTTI_OK, nothing happened for {:.1f} s, and the descriptor "
          "did not become readable. Then progress told {} records that had been there",
          me_, communicator_, bench_.patience / 2, n);
  read_events();
  reclaim();
  return n;
}

void WalkEndpoint::fall_asleep() {
  if (is_closed() || !wait_ || asleep_) return;
  const tutti_status status = call("arm", false, [&] { return wait_->arm(rank_->endpoint); });
  require(status == TUTTI_OK || status == TUTTI_AGAIN, "W-4", "arm returned {}", status_text(status));
  asleep_ = status == TUTTI_OK;
  stillness_.begin();
}

void WalkEndpoint::rouse() {
  if (std::exchange(asleep_, false)) plain_call("disarm", false, [&] { wait_->disarm(rank_->endpoint); });
}

}  // namespace tutti::conformance::contract
