// SPDX-License-Identifier: Apache-2.0
//
// The pair messages of a control plane.
#include <algorithm>
#include <deque>
#include <map>
#include <thread>

#include "base/make_failure.hpp"
#include "bootstrap/control_plane.hpp"
#include "packet.hpp"

namespace tutti::core {
namespace {

// After a rank is lost, what was not taken is sent again: so long after one another, and by that route. The ranks that
// forward learn of the loss at different times, at the latest when their connections time out; a few dead ranks can
// block one way round the ring, hardly both, and not a flood.
struct Resend {
  std::chrono::milliseconds pause;
  Route route;
};
constexpr Resend kResends[] = {{std::chrono::milliseconds(50), Route::down},
                               {std::chrono::milliseconds(200), Route::up},
                               {std::chrono::milliseconds(800), Route::flood},
                               {std::chrono::milliseconds(3200), Route::flood},
                               {std::chrono::milliseconds(12800), Route::flood}};

}  // namespace

void ControlPlane::send_pair(uint32_t peer, std::string_view bytes) {
  if (bytes.size() > pairs_.max_bytes() || peer >= nranks_ || peer == rank_)
    throw make_failure(TUTTI_INVALID_ARGUMENT,
                       "{}a pair message of {} bytes to rank {}; at most {} to another of the {} ranks are allowed",
                       me(), bytes.size(), peer, pairs_.max_bytes(), nranks_);
  if (is_gone(peer)) return;
  std::unique_lock lock(pair_mutex_);
  const uint64_t number = pairs_.send(peer, bytes);
  if (number == 0)
    throw make_failure(TUTTI_NO_RESOURCES, "{}rank {} has not taken {} pair messages from this rank", me(), peer,
                       pairs_.max_untaken());
  lock.unlock();
  try {
    if (listener_ && has_unsent_.exchange(false))
      send_unsent();
    else
      send({listener_ ? PacketKind::branch : PacketKind::message, Route::up, rank_, peer, number, bytes});
  } catch (const std::bad_alloc&) {  // others wait behind it, and it may be half-way: it must come
    has_unsent_.store(true, std::memory_order_release);
    if (listener_) throw;  // to a branch, which tries again
  }
}

// The messages that have not been taken: a rank that has one already leaves the copy alone. With the pair mutex.
struct ControlPlane::Untaken {
  std::vector<Packet> packets;
  std::deque<std::string> bytes;
};

ControlPlane::Untaken ControlPlane::untaken(Route route) const {
  Untaken all;
  pairs_.for_each_untaken([&](uint32_t peer, uint64_t number, std::string_view bytes) {
    all.packets.push_back({listener_ ? PacketKind::branch : PacketKind::message, route, rank_, peer, number,
                           all.bytes.emplace_back(bytes)});
  });
  return all;
}

void ControlPlane::send_unsent() {
  std::unique_lock lock(pair_mutex_);
  Untaken all = untaken(Route::up);
  pairs_.for_each_taken([&](uint32_t from, uint64_t number) {
    all.packets.push_back({PacketKind::taken, Route::up, rank_, from, number, {}});
  });
  lock.unlock();
  for (const Packet& packet : all.packets) send(packet);
}

void ControlPlane::carry_branches(ControlListener& listener) {
  const std::lock_guard lock(pair_mutex_);
  pairs_.allow(max_packet(nranks_), kMaxBranchPacketsUntaken);
  listener_ = &listener;
}

void ControlPlane::await_taken(uint32_t peer, std::chrono::nanoseconds limit) const {
  const Deadline deadline(limit);
  const auto taken = [&] {
    const std::lock_guard lock(pair_mutex_);
    return pairs_.all_taken(peer);
  };
  while (!taken() && !is_gone(peer) && !deadline.passed()) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

std::vector<PairMessage> ControlPlane::take_pair_messages() {
  if (has_unsent_.exchange(false)) try {
      send_unsent();
    } catch (const std::bad_alloc&) {
      has_unsent_.store(true, std::memory_order_release);
    }
  std::unique_lock lock(pair_mutex_);
  std::vector<PairMessage> all = pairs_.take();
  has_pairs_.store(false, std::memory_order_release);
  try {
    std::map<uint32_t, uint64_t> taken;
    for (const PairMessage& message : all) taken[message.from] = pairs_.taken_from(message.from);
    lock.unlock();
    for (const auto& [from, number] : taken) send({PacketKind::taken, Route::up, rank_, from, number, {}});
  } catch (const std::bad_alloc&) {  // the senders are told later
    has_unsent_.store(true, std::memory_order_release);
  }
  return all;
}

void ControlPlane::take_pair(const Packet& packet) {
  uint64_t missed = 0;
  bool news = false;
  {
    const std::lock_guard lock(pair_mutex_);
    if (packet.kind == PacketKind::taken) return pairs_.taken(packet.origin, packet.number);
    if ((packet.kind == PacketKind::branch) != (listener_ != nullptr))
      throw Failure(TUTTI_MISMATCH, "a packet came of a branch that is not here, or to a trunk itself");
    if (!pairs_.receive(packet.origin, packet.number, packet.bytes)) missed = pairs_.taken_from(packet.origin);
    news = pairs_.has_messages();
    has_pairs_.store(news, std::memory_order_release);
  }
  // The sender's copy came by another route than the one that was taken: so may the word of it.
  if (missed) send({PacketKind::taken, packet.route, rank_, packet.origin, missed, {}});
  if (!news) return;
  if (listener_) return listener_->pair_messages_came();
  const std::lock_guard lock(state_mutex_);
  wake();
}

void ControlPlane::routes_changed(uint32_t rank) {
  const std::lock_guard lock(pair_mutex_);
  if (is_gone(rank)) pairs_.forget(rank);
  if (resend_at_ && resends_ == 0) return;
  resends_ = 0;
  resend_at_ = Deadline::Clock::now() + kResends[0].pause;
}

std::optional<Deadline::Clock::time_point> ControlPlane::send_pairs_again() {
  Untaken all;
  {
    const std::lock_guard lock(pair_mutex_);
    if (!resend_at_ || *resend_at_ > Deadline::Clock::now()) return resend_at_;
    all = untaken(kResends[resends_].route);
    resend_at_.reset();
    if (++resends_ < std::size(kResends)) resend_at_ = Deadline::Clock::now() + kResends[resends_].pause;
  }
  for (const Packet& packet : all.packets) send(packet);
  const std::lock_guard lock(pair_mutex_);
  return resend_at_;
}

}  // namespace tutti::core
