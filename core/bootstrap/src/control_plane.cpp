// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/control_plane.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <tutti/base/file_descriptor.hpp>
#include <tutti/base/system_text.hpp>
#include <utility>

#include "base/make_failure.hpp"
#include "base/rank_list.hpp"
#include "net/interrupt.hpp"
#include "packet.hpp"

namespace tutti::core {
namespace {

Packet notice(PacketKind kind, uint32_t origin, uint64_t number, std::string_view bytes) {
  return {kind, Route::flood, origin, origin, number, bytes};
}

void ring(int sleeper) {
  const uint64_t one = 1;
  // A full counter is readable already.
  (void)!::write(sleeper, &one, sizeof one);
}

// Of this thread; -1: there is none left. A communicator may end after the thread's other objects: the number is no
// object that could be gone by then.
int sleeping_descriptor() {
  thread_local int fd = -1;
  struct AtTheThreadsEnd {
    ~AtTheThreadsEnd() {
      if (fd >= 0) ::close(std::exchange(fd, -1));
    }
  };
  thread_local const AtTheThreadsEnd closes;
  (void)closes;
  if (fd < 0) fd = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)).release();
  return fd;
}

}  // namespace

ControlPlane::ControlPlane(uint32_t rank, uint32_t nranks)
    : rank_(rank), nranks_(nranks), peers_(nranks) {}

ControlPlane::~ControlPlane() = default;

std::optional<Loss> ControlPlane::first_cause() const {
  const std::lock_guard lock(state_mutex_);
  const Loss* first = first_loss();
  return first ? std::optional<Loss>(*first) : std::nullopt;
}

const Loss* ControlPlane::first_loss() const {
  const Loss* first = nullptr;
  for (const PeerState& peer : peers_)
    if (peer.loss && (!first || peer.loss->epoch < first->epoch)) first = &*peer.loss;
  return first;
}

std::optional<Loss> ControlPlane::await_cause(std::chrono::nanoseconds limit) {
  {
    const Deadline deadline(limit);
    std::unique_lock lock(state_mutex_);
    while (losses_ == 0 && !deadline.passed()) changed_.wait_until(lock, deadline.at());
  }
  return first_cause();
}

std::vector<Loss> ControlPlane::losses() const {
  const std::lock_guard lock(state_mutex_);
  std::vector<Loss> all;
  for (const PeerState& peer : peers_)
    if (peer.loss) all.push_back(*peer.loss);
  return all;
}

void ControlPlane::announce(uint32_t rank, tutti_status status, std::string reason, bool innocent) noexcept try {
  report({0, rank, status, false, std::move(reason), 0, innocent});
} catch (...) {  // best effort
}

void ControlPlane::notice_loss(uint32_t rank, std::string reason) {
  std::unique_lock lock(state_mutex_);
  const bool left = peers_[rank].left;
  lock.unlock();
  // A thread that waits for this rank must find the loss no later than the closed connection.
  if (!left) report({0, rank, TUTTI_PEER_FAILED, true, std::move(reason), 0, false});
  lock.lock();
  peers_[rank].closed = true;
  changed_.notify_all();
  lock.unlock();
  routes_changed(rank);
}

void ControlPlane::report(Loss loss) {
  {
    const std::lock_guard lock(state_mutex_);
    loss.epoch = losses_;
    loss.gathers = completed_;
    if (!note(loss)) return;
  }
  loss.reason.resize(std::min(loss.reason.size(), longest_message));
  send(notice(PacketKind::loss, rank_, 0, encode(loss)));
  notify_listener(loss);
}

void ControlPlane::notify_listener(const Loss& loss) {
  if (listener_ && loss.gone) listener_->rank_died(loss);
}

void ControlPlane::learn_of_death(uint32_t rank, std::string reason) {
  {
    const std::lock_guard lock(state_mutex_);
    note({losses_, rank, TUTTI_PEER_FAILED, true, std::move(reason), completed_, false});
    peers_[rank].closed = true;
    changed_.notify_all();
  }
  routes_changed(rank);
}

bool ControlPlane::note(const Loss& loss) {
  std::optional<Loss>& known = peers_.at(loss.rank).loss;
  const bool fresh = !known, news = fresh || (loss.gone && !known->gone);
  if (fresh) {
    known = loss;
    ++losses_;
  }
  const bool gone = known->gone || loss.gone, innocent = known->innocent && loss.innocent;
  if (loss.epoch < known->epoch) known = loss;
  known->innocent = innocent;
  known->gone = gone;  // an earlier cause that arrives later does not revive a rank
  if (!news) return false;
  failed_.store(true, std::memory_order_release);
  wake();
  return true;
}

void ControlPlane::wake() {
  {
    const std::lock_guard lock(sleep_mutex_);
    is_news_ = true;
    for (const int sleeper : sleepers_) ring(sleeper);
  }
  changed_.notify_all();
}

ControlPlane::Sleep::Sleep(ControlPlane& control) : control_(control), fd_(sleeping_descriptor()) {
  const std::lock_guard lock(control_.sleep_mutex_);
  control_.sleepers_.push_back(fd_);
  if (control_.is_news_) ring(fd_);
}

ControlPlane::Sleep::~Sleep() {
  const std::lock_guard lock(control_.sleep_mutex_);
  std::erase(control_.sleepers_, fd_);
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(fd_, &count, sizeof count);
  control_.is_news_ = false;
}

bool ControlPlane::is_gone(uint32_t rank) const {
  const std::lock_guard lock(state_mutex_);
  return peers_[rank].gone();
}

void ControlPlane::send_notice(NoticeKind kind, std::string_view bytes) {
  if (bytes.size() > kMaxNotice)
    throw make_failure(TUTTI_INVALID_ARGUMENT, "{}a notice of {} bytes, at most {} are allowed", me(), bytes.size(),
                       kMaxNotice);
  send(notice(static_cast<PacketKind>(kind), rank_, 0, bytes));
}

std::vector<Notice> ControlPlane::take_notices(NoticeKind kind) {
  const std::lock_guard lock(state_mutex_);
  auto& kept = notices_[kind];
  std::vector<Notice> all(std::make_move_iterator(kept.begin()), std::make_move_iterator(kept.end()));
  kept.clear();
  return all;
}

void ControlPlane::deliver(const Packet& packet) {
  const uint32_t origin = packet.origin;
  switch (packet.kind) {
    case PacketKind::loss:
      return receive_loss(packet);
    case PacketKind::left: {
      std::unique_lock lock(state_mutex_);
      PeerState& peer = peers_[origin];
      if (!peer.last_gather) peer.last_gather = packet.number;
      peer.left = true;
      wake();
      lock.unlock();
      return routes_changed(origin);
    }
    case PacketKind::ask: {
      Answer answer = own_answer();
      answer.state.resize(std::min<size_t>(answer.state.size(), kMaxNotice - 24 - answer.left.size() * sizeof(uint32_t)));
      return send({PacketKind::answer, Route::back, rank_, origin, packet.number, encode(answer)});
    }
    case PacketKind::answer: {
      auto answer = decode<Answer>(packet.bytes, "answer to a roll call");
      const std::lock_guard lock(state_mutex_);
      const auto call = roll_calls_.find(packet.number);
      if (call == roll_calls_.end() || call->second[origin]) return;
      call->second[origin] = std::move(answer);
      changed_.notify_all();
      return;
    }
    case PacketKind::part:
      return keep_part(packet);
    case PacketKind::message:
    case PacketKind::branch:
    case PacketKind::taken:
      if (packet.target == rank_) take_pair(packet);
      return;
    case PacketKind::membership:
    case PacketKind::calls: {
      const std::lock_guard lock(state_mutex_);
      auto& kept = notices_[static_cast<NoticeKind>(packet.kind)];
      if (kept.size() >= kMaxNoticesKept) kept.pop_front();
      kept.push_back({origin, std::string(packet.bytes)});
      wake();
      return;
    }
  }
}

void ControlPlane::receive_loss(const Packet& packet) {
  const Loss loss = decode<Loss>(packet.bytes, "loss");
  if (loss.rank >= nranks_ || loss.status >= 0)
    throw make_failure(TUTTI_MISMATCH, "a loss of rank {} with status {} in a world of {}", loss.rank, loss.status,
                       nranks_);
  bool news = false;
  {
    const std::lock_guard lock(state_mutex_);
    completed_somewhere_ = std::max(completed_somewhere_, loss.gathers);
    std::optional<uint64_t>& last = peers_[packet.origin].last_gather;
    if (loss.rank == packet.origin && !last) last = loss.gathers;
    news = note(loss);
    changed_.notify_all();
  }
  routes_changed(loss.rank);
  if (news) notify_listener(loss);
}

void ControlPlane::deliver_goodbye(uint32_t origin) {
  {
    const std::lock_guard lock(state_mutex_);
    peers_[origin].left = peers_[origin].closed = true;
    wake();
  }
  routes_changed(origin);
}

void ControlPlane::answer_roll_calls(std::function<std::string()> state) {
  const std::lock_guard lock(state_mutex_);
  state_ = std::move(state);
}

std::vector<std::optional<std::string>> ControlPlane::roll_call(std::chrono::nanoseconds limit) {
  std::vector<std::optional<std::string>> states;
  for (auto& answer : ask_all(limit)) states.push_back(answer ? std::optional(std::move(answer->state)) : std::nullopt);
  return states;
}

ControlPlane::Answer ControlPlane::own_answer() {
  std::unique_lock lock(state_mutex_);
  const auto state = state_;
  Answer answer{gathers_, completed_, {}, ""};
  for (uint32_t r = 0; r < nranks_; ++r)
    if (peers_[r].left && !peers_[r].last_gather) answer.left.push_back(r);
  lock.unlock();
  if (state) answer.state = state();
  return answer;
}

ControlPlane::Answers ControlPlane::ask_all(std::chrono::nanoseconds limit) {
  const Deadline deadline(limit);
  std::unique_lock lock(state_mutex_);
  const uint64_t number = next_roll_call_++;
  Answers& answers = roll_calls_[number];
  answers.resize(nranks_);
  lock.unlock();
  send(notice(PacketKind::ask, rank_, number, {}));
  Answer mine = own_answer();
  lock.lock();
  answers[rank_] = std::move(mine);
  // The dead need not be waited for.
  const auto all_answered = [&] {
    for (uint32_t r = 0; r < nranks_; ++r)
      if (!answers[r] && !peers_[r].gone()) return false;
    return true;
  };
  while (!all_answered() && !deadline.passed()) changed_.wait_until(lock, deadline.at());
  return std::move(roll_calls_.extract(number).mapped());
}

// ---- All-gathers -------------------------------------------------------------------------------------------
//
// In round k a rank holds the bytes of the 2^k ranks up to itself, and hands them to the rank 2^k after it.

std::vector<GatherRound> gather_rounds(uint32_t rank, uint32_t nranks) {
  std::vector<GatherRound> rounds;
  for (uint64_t distance = 1; distance < nranks; distance *= 2)
    rounds.push_back({static_cast<uint32_t>((rank + distance) % nranks),
                      static_cast<uint32_t>((rank + nranks - distance) % nranks),
                      std::min<uint64_t>(distance, nranks - distance)});
  return rounds;
}

std::vector<std::string> ControlPlane::all_gather(const std::string& mine, const Deadline& deadline) {
  if (!broken_.empty()) throw Failure(TUTTI_INVALID_USAGE, me() + "all_gather after one that failed: " + broken_);
  if (mine.size() > kMaxContribution)
    throw make_failure(TUTTI_INVALID_ARGUMENT, "{}all_gather of {} bytes from this rank; at most {} are allowed", me(),
                       mine.size(), kMaxContribution);
  std::unique_lock state(state_mutex_);
  const uint64_t gather = ++gathers_;
  awaited_.store(false, std::memory_order_release);
  state.unlock();
  try {
    auto all = disseminate(gather, mine, deadline);
    const std::lock_guard lock(state_mutex_);
    completed_ = gather;
    return all;
  } catch (const std::exception& problem) {
    const Failure failure = failure_of(problem);
    broken_ = failure.text;
    // Each rank hears by itself of one that has left.
    const auto stopped = [&](const PeerState& peer) { return peer.last_gather && *peer.last_gather < gather; };
    std::unique_lock lock(state_mutex_);
    const bool all_hear = losses_ == 0 && std::ranges::any_of(peers_, stopped);
    lock.unlock();
    if (!all_hear) announce(rank_, failure.status, "gave up: " + failure.text);
    throw failure;
  }
}

std::vector<std::string> ControlPlane::disseminate(uint64_t gather, const std::string& mine, const Deadline& deadline) {
  std::vector<std::string> all(nranks_);
  all[rank_] = mine;
  uint32_t held = 1;
  for (const auto [to, from, blocks] : gather_rounds(rank_, nranks_)) {
    WireWriter part;
    for (uint64_t i = 0; i < blocks; ++i) part.text(all[(rank_ + nranks_ - i) % nranks_]);
    send({PacketKind::part, Route::neighbour, rank_, to, gather, part.take()});
    const std::string theirs = await_part(gather, from, held, deadline);
    held += static_cast<uint32_t>(blocks);
    WireReader reader(theirs, "part of an all_gather");
    for (uint64_t i = 0; i < blocks; ++i) all[(from + nranks_ - i) % nranks_] = reader.counted();
    reader.end();
  }
  return all;
}

std::string ControlPlane::await_part(uint64_t gather, uint32_t from, uint32_t held, const Deadline& deadline) {
  if (auto part = part_by(gather, from, deadline)) return std::move(*part);
  const std::vector<uint32_t> missing = absent_from(gather, held);
  // It may have come meanwhile; where all ranks have, it is on its way.
  constexpr std::chrono::seconds on_its_way(5);
  const Deadline limit(missing.empty() ? on_its_way : std::chrono::seconds(0));
  if (auto part = part_by(gather, from, limit)) return std::move(*part);
  const std::string what = missing.empty()
                               ? fmt::format("all ranks have come, but rank {} has not passed on their bytes", from)
                               : rank_list(missing) + " did not arrive";
  throw make_failure(TUTTI_TIMEOUT, "all_gather timed out after {}: {}", deadline.text(), what);
}

// Nothing: it has not come by the deadline.
std::optional<std::string> ControlPlane::part_by(uint64_t gather, uint32_t from, const Deadline& deadline) {
  std::unique_lock lock(state_mutex_);
  while (true) {
    if (auto part = parts_.extract({gather, from})) return std::move(part.mapped());
    if (const auto why = part_is_lost(gather, from)) throw *why;
    if (deadline.passed()) return std::nullopt;
    Interrupt::wait_until(changed_, lock, deadline.at());
  }
}

std::optional<Failure> ControlPlane::part_is_lost(uint64_t gather, uint32_t from) const {
  const auto stopped = [&](const PeerState& peer) { return peer.last_gather && *peer.last_gather < gather; };
  auto absent = static_cast<uint32_t>(std::ranges::find_if(peers_, stopped) - peers_.begin());
  if (absent == nranks_ && peers_[from].closed) absent = from;
  const Loss* cause = first_loss();
  if (cause && (absent < nranks_ || completed_somewhere_ < gather)) return Failure(cause->status, cause->text());
  if (absent == nranks_) return std::nullopt;
  return make_failure(TUTTI_PEER_FAILED, "rank {} has left while others wait for it in all_gather", absent);
}

std::vector<uint32_t> ControlPlane::absent_from(uint64_t gather, uint32_t held) {
  constexpr std::chrono::seconds patience(1);
  const auto answers = ask_all(patience);
  // One that has left answers no more. It had come, unless it has said that it had not.
  std::vector<bool> came(nranks_), waits(nranks_);
  for (uint32_t i = 0; i < held; ++i) came[(rank_ + nranks_ - i) % nranks_] = true;
  for (uint32_t r = 0; r < nranks_; ++r) {
    waits[r] = answers[r] && answers[r]->completed < answers[r]->gathers;
    if (!answers[r] || answers[r]->gathers < gather) continue;
    came[r] = true;
    for (const uint32_t left : answers[r]->left)
      if (left < nranks_) came[left] = true;
  }
  std::vector<uint32_t> missing;
  const std::lock_guard lock(state_mutex_);
  for (uint32_t r = 0; r < nranks_; ++r)
    if (!came[r] && !(peers_[r].left && peers_[r].last_gather.value_or(gather) >= gather)) missing.push_back(r);
  const auto is_waiting = [&](uint32_t r) { return waits[r]; };
  if (!std::ranges::all_of(missing, is_waiting)) std::erase_if(missing, is_waiting);
  return missing;
}

void ControlPlane::keep_part(const Packet& packet) {
  const uint64_t gather = packet.number;
  const std::lock_guard lock(state_mutex_);
  const bool awaited = std::has_single_bit(ring_distance(packet.origin, rank_, nranks_, Route::up));
  // No rank begins the gather after next before this rank is in the next one.
  if (!awaited || gather < gathers_ || gather > gathers_ + 1 ||
      !parts_.try_emplace({gather, packet.origin}, packet.bytes).second)
    throw make_failure(TUTTI_MISMATCH, "a part of all_gather {} came from rank {}, which nobody awaits", gather,
                       packet.origin);
  if (gather > gathers_ && !awaited_.exchange(true)) wake();
  changed_.notify_all();
}

std::optional<ControlPlane::Contribution> ControlPlane::awaited_by() const try {
  const std::lock_guard lock(state_mutex_);
  const auto part = parts_.lower_bound({gathers_ + 1, 0});
  if (part == parts_.end()) return std::nullopt;
  return Contribution{part->first.second, std::string(WireReader(part->second, "part of an all_gather").counted())};
} catch (const Failure&) {  // which the gather itself will tell
  return std::nullopt;
}

void ControlPlane::leave(bool all_know) noexcept try {
  if (leaving_.exchange(true)) return;
  if (!all_know) announce_left();
  say_goodbye();
} catch (...) {  // the others then see an end without a goodbye
}

void ControlPlane::announce_left() noexcept try {
  std::unique_lock lock(state_mutex_);
  const uint64_t entered = gathers_;
  lock.unlock();
  send(notice(PacketKind::left, rank_, entered, {}));
} catch (...) {  // as above
}

bool ControlPlane::others_gone() const {
  for (uint32_t r = 0; r < nranks_; ++r)
    if (r != rank_ && !peers_[r].gone()) return false;
  return true;
}

void ControlPlane::await_others_gone() {
  std::unique_lock lock(state_mutex_);
  changed_.wait(lock, [this] { return abandoned_ || others_gone(); });
}

void ControlPlane::abandon() {
  const std::lock_guard lock(state_mutex_);
  abandoned_ = true;
  changed_.notify_all();
}

}  // namespace tutti::core
