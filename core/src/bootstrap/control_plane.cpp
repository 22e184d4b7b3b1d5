// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/control_plane.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bootstrap/deadline.hpp"
#include "bootstrap/wire.hpp"

namespace tutti::core {
namespace {

constexpr size_t kMaxReason = 4096;

std::string encode_loss(const Loss& loss) {
  return WireWriter()
      .u64(loss.epoch)
      .u32(loss.rank)
      .u32(static_cast<uint32_t>(loss.status))
      .u32(loss.gone)
      .text(std::string_view(loss.reason).substr(0, kMaxReason))
      .take();
}

Loss decode_loss(std::string_view bytes, uint32_t nranks) {
  WireReader reader(bytes, "loss");
  Loss loss;
  loss.epoch = reader.u64();
  loss.rank = reader.u32();
  loss.status = static_cast<tutti_status>(reader.u32());
  loss.gone = reader.u32() != 0;
  loss.reason = reader.text();
  reader.end();
  if (loss.rank >= nranks || loss.status >= 0)
    throw Failure(TUTTI_MISMATCH, "a loss of rank " + std::to_string(loss.rank) + " with status " +
                                      std::to_string(loss.status) + " in a world of " + std::to_string(nranks));
  return loss;
}

}  // namespace

ControlPlane::ControlPlane(uint32_t rank, uint32_t nranks)
    : rank_(rank), nranks_(nranks), left_(nranks), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw Failure(TUTTI_NO_RESOURCES, me() + "eventfd: " + std::strerror(errno));
}

ControlPlane::~ControlPlane() = default;

std::optional<Loss> ControlPlane::first_cause() const {
  const std::lock_guard lock(state_mutex_);
  const Loss* first = nullptr;
  for (const auto& [rank, loss] : lost_)
    if (!first || loss.epoch < first->epoch) first = &loss;
  return first ? std::optional<Loss>(*first) : std::nullopt;
}

std::optional<Loss> ControlPlane::await_cause(std::chrono::nanoseconds limit) {
  {
    const Deadline deadline(limit);
    std::unique_lock lock(state_mutex_);
    while (lost_.empty() && !deadline.passed()) changed_.wait_until(lock, deadline.at());
  }
  return first_cause();
}

std::vector<Loss> ControlPlane::losses() const {
  const std::lock_guard lock(state_mutex_);
  std::vector<Loss> all;
  for (const auto& [rank, loss] : lost_) all.push_back(loss);
  return all;
}

void ControlPlane::announce(uint32_t rank, tutti_status status, std::string reason) noexcept try {
  Loss loss{0, rank, status, false, std::move(reason)};
  {
    const std::lock_guard lock(state_mutex_);
    loss.epoch = lost_.size();
    if (!note(loss)) return;
  }
  spread(NoticeKind::loss, encode_loss(loss));
} catch (...) {  // it is told as well as it can be
}

void ControlPlane::notice_loss(uint32_t rank, std::string reason) {
  Loss loss{0, rank, TUTTI_PEER_FAILED, true, std::move(reason)};
  {
    const std::lock_guard lock(state_mutex_);
    loss.epoch = lost_.size();
    if (left_[rank] || !note(loss)) return;
  }
  spread(NoticeKind::loss, encode_loss(loss));
}

bool ControlPlane::note(const Loss& loss) {
  const auto [place, fresh] = lost_.try_emplace(loss.rank, loss);
  const bool news = fresh || (loss.gone && !place->second.gone);
  if (!fresh && loss.gone) place->second.gone = true;
  if (!fresh && loss.epoch < place->second.epoch) place->second = loss;
  if (!news) return false;
  failed_.store(true, std::memory_order_release);
  wake();
  return true;
}

void ControlPlane::wake() {
  const uint64_t one = 1;
  // A full counter is readable already.
  (void)!::write(wake_.get(), &one, sizeof one);
  changed_.notify_all();
}

void ControlPlane::clear_wait_fd() {
  uint64_t count = 0;
  (void)!::read(wake_.get(), &count, sizeof count);
}

bool ControlPlane::is_gone(uint32_t rank) const {
  const std::lock_guard lock(state_mutex_);
  const auto found = lost_.find(rank);
  return left_[rank] || (found != lost_.end() && found->second.gone);
}

void ControlPlane::send_notice(NoticeKind kind, std::string_view bytes) {
  if (bytes.size() > kMaxNotice)
    throw Failure(TUTTI_INVALID_ARGUMENT, me() + "a notice of " + std::to_string(bytes.size()) + " bytes, at most " +
                                              std::to_string(kMaxNotice) + " are allowed");
  spread(kind, bytes);
}

std::vector<Notice> ControlPlane::take_notices(NoticeKind kind) {
  const std::lock_guard lock(state_mutex_);
  auto& kept = notices_[kind];
  std::vector<Notice> all(std::make_move_iterator(kept.begin()), std::make_move_iterator(kept.end()));
  kept.clear();
  return all;
}

void ControlPlane::deliver(uint32_t origin, NoticeKind kind, std::string_view bytes) {
  switch (kind) {
    case NoticeKind::loss: {
      const Loss loss = decode_loss(bytes, nranks_);
      const std::lock_guard lock(state_mutex_);
      note(loss);
      return;
    }
    case NoticeKind::left: {
      const std::lock_guard lock(state_mutex_);
      left_[origin] = 1;
      wake();
      return;
    }
    case NoticeKind::ask: {
      WireReader reader(bytes, "roll call");
      const uint64_t number = reader.u64();
      reader.end();
      std::function<std::string()> state;
      {
        const std::lock_guard lock(state_mutex_);
        state = state_;
      }
      const std::string answer = state ? state() : std::string();
      reply(origin, number, std::string_view(answer).substr(0, kMaxNotice));
      return;
    }
    case NoticeKind::membership:
    case NoticeKind::calls: {
      const std::lock_guard lock(state_mutex_);
      auto& kept = notices_[kind];
      if (kept.size() >= kMaxNoticesKept) kept.pop_front();
      kept.push_back({origin, std::string(bytes)});
      wake();
      return;
    }
  }
  throw Failure(TUTTI_MISMATCH, "a notice of unknown kind " + std::to_string(static_cast<uint32_t>(kind)) + " came");
}

void ControlPlane::deliver_reply(uint32_t origin, uint64_t number, std::string_view bytes) {
  const std::lock_guard lock(state_mutex_);
  const auto found = roll_calls_.find(number);
  if (found == roll_calls_.end() || found->second.answers[origin]) return;
  found->second.answers[origin] = bytes;
  if (--found->second.missing == 0) changed_.notify_all();
}

void ControlPlane::answer_roll_calls(std::function<std::string()> state) {
  const std::lock_guard lock(state_mutex_);
  state_ = std::move(state);
}

std::vector<std::optional<std::string>> ControlPlane::roll_call(std::chrono::nanoseconds limit) {
  const Deadline deadline(limit);
  uint64_t number = 0;
  std::function<std::string()> state;
  {
    const std::lock_guard lock(state_mutex_);
    number = next_roll_call_++;
    roll_calls_[number] = {std::vector<std::optional<std::string>>(nranks_), nranks_ - 1};
    state = state_;
  }
  spread(NoticeKind::ask, WireWriter().u64(number).take());
  const std::string mine = state ? state() : std::string();
  std::unique_lock lock(state_mutex_);
  RollCall& call = roll_calls_[number];
  // The dead need not be waited for.
  const auto everybody = [&] {
    if (call.missing == 0) return true;
    for (uint32_t r = 0; r < nranks_; ++r) {
      if (r == rank_ || call.answers[r] || left_[r]) continue;
      const auto found = lost_.find(r);
      if (found == lost_.end() || !found->second.gone) return false;
    }
    return true;
  };
  while (!everybody() && !deadline.passed()) changed_.wait_until(lock, deadline.at());
  auto answers = std::move(call.answers);
  roll_calls_.erase(number);
  answers[rank_] = mine;
  return answers;
}

void ControlPlane::leave(bool all_know) noexcept try {
  if (leaving_.exchange(true)) return;
  if (!all_know) spread(NoticeKind::left, "");
  say_goodbye();
} catch (...) {  // the others then see an end without a goodbye
}

}  // namespace tutti::core
