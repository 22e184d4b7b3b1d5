// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/control_plane.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bootstrap/rank_list.hpp"
#include "make_failure.hpp"
#include "mesh_frames.hpp"
#include "wire.hpp"

namespace tutti::core {
namespace {

constexpr size_t kMaxReason = 4096;

// After a rank is lost, what was not taken is sent again: so long after one another, and that way. The ranks that
// forward learn of the loss at different times, at the latest when their connections time out; a few dead ranks can
// block one way round the ring, hardly both, and not a flood.
struct Resend {
  std::chrono::milliseconds pause;
  PairWay way;
};
constexpr Resend kResends[] = {{std::chrono::milliseconds(50), PairWay::down},
                               {std::chrono::milliseconds(200), PairWay::up},
                               {std::chrono::milliseconds(800), PairWay::flood},
                               {std::chrono::milliseconds(3200), PairWay::flood},
                               {std::chrono::milliseconds(12800), PairWay::flood}};

void fields(auto& wire, auto& loss) {
  wire(loss.epoch, loss.rank, loss.status, loss.gone, loss.reason, loss.gathers, loss.innocent);
}

std::string encode_loss(Loss loss) {
  loss.reason.resize(std::min(loss.reason.size(), kMaxReason));
  WireWriter writer;
  fields(writer, loss);
  return writer.take();
}

Loss decode_loss(std::string_view bytes, uint32_t nranks) {
  WireReader reader(bytes, "loss");
  Loss loss;
  fields(reader, loss);
  reader.end();
  if (loss.rank >= nranks || loss.status >= 0)
    throw make_failure(TUTTI_MISMATCH, "a loss of rank {} with status {} in a world of {}", loss.rank, loss.status,
                       nranks);
  return loss;
}

}  // namespace

ControlPlane::ControlPlane(uint32_t rank, uint32_t nranks)
    : rank_(rank),
      nranks_(nranks),
      left_(nranks),
      closed_(nranks),
      stopped_(nranks),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw Failure(TUTTI_NO_RESOURCES, me() + "eventfd: " + std::strerror(errno));
}

ControlPlane::~ControlPlane() = default;

std::optional<Loss> ControlPlane::first_cause() const {
  const std::lock_guard lock(state_mutex_);
  const Loss* first = first_loss();
  return first ? std::optional<Loss>(*first) : std::nullopt;
}

const Loss* ControlPlane::first_loss() const {
  const Loss* first = nullptr;
  for (const auto& [rank, loss] : lost_)
    if (!first || loss.epoch < first->epoch) first = &loss;
  return first;
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

void ControlPlane::announce(uint32_t rank, tutti_status status, std::string reason, bool innocent) noexcept try {
  Loss loss{0, rank, status, false, std::move(reason), 0, innocent};
  {
    const std::lock_guard lock(state_mutex_);
    loss.epoch = lost_.size();
    loss.gathers = completed_;
    if (!note(loss)) return;
  }
  spread(NoticeKind::loss, encode_loss(loss));
} catch (...) {  // it is told as well as it can be
}

void ControlPlane::notice_loss(uint32_t rank, std::string reason) {
  Loss loss{0, rank, TUTTI_PEER_FAILED, true, std::move(reason), 0, false};
  {
    const std::lock_guard lock(state_mutex_);
    closed_[rank] = 1;
    changed_.notify_all();
    loss.epoch = lost_.size();
    loss.gathers = completed_;
    if (left_[rank] || !note(loss)) loss.rank = nranks_;
  }
  routes_changed(rank);
  if (loss.rank == rank) spread(NoticeKind::loss, encode_loss(loss));
}

bool ControlPlane::note(const Loss& loss) {
  const auto [place, fresh] = lost_.try_emplace(loss.rank, loss);
  Loss& known = place->second;
  const bool news = fresh || (loss.gone && !known.gone);
  const bool gone = known.gone || loss.gone, innocent = known.innocent && loss.innocent;
  if (loss.epoch < known.epoch) known = loss;
  known.innocent = innocent;
  known.gone = gone;  // an earlier cause that comes later brings nobody back to life
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
    throw make_failure(TUTTI_INVALID_ARGUMENT, "{}a notice of {} bytes, at most {} are allowed", me(), bytes.size(),
                       kMaxNotice);
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
      {
        const std::lock_guard lock(state_mutex_);
        completed_somewhere_ = std::max(completed_somewhere_, loss.gathers);
        if (loss.rank == origin && !stopped_[origin]) stopped_[origin] = loss.gathers;
        note(loss);
        changed_.notify_all();
      }
      return routes_changed(loss.rank);
    }
    case NoticeKind::left: {
      WireReader reader(bytes, "farewell");
      const uint64_t entered = reader.u64();
      reader.end();
      {
        const std::lock_guard lock(state_mutex_);
        if (!stopped_[origin]) stopped_[origin] = entered;
        left_[origin] = 1;
        wake();
      }
      return routes_changed(origin);
    }
    case NoticeKind::ask: {
      WireReader reader(bytes, "roll call");
      const uint64_t number = reader.u64();
      reader.end();
      std::function<std::string()> state;
      uint64_t gathers = 0;
      {
        const std::lock_guard lock(state_mutex_);
        state = state_;
        gathers = gathers_;
      }
      const std::string answer = WireWriter().u64(gathers).raw(state ? state() : std::string()).take();
      reply(origin, number, std::string_view(answer).substr(0, kMaxNotice));
      return;
    }
    case NoticeKind::pair: {
      const PairFrame frame = decode_pair(bytes, nranks_);
      if (frame.target == rank_) deliver_pair(frame);
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
  throw make_failure(TUTTI_MISMATCH, "a notice of unknown kind {} came", static_cast<uint32_t>(kind));
}

void ControlPlane::deliver_goodbye(uint32_t origin) {
  {
    const std::lock_guard lock(state_mutex_);
    left_[origin] = closed_[origin] = 1;
    wake();
  }
  routes_changed(origin);
}

void ControlPlane::deliver_reply(uint32_t origin, uint64_t number, std::string_view bytes) {
  WireReader reader(bytes, "answer to a roll call");
  Answer answer;
  answer.gathers = reader.u64();
  answer.state = reader.rest();
  const std::lock_guard lock(state_mutex_);
  const auto found = roll_calls_.find(number);
  if (found == roll_calls_.end() || found->second.answers[origin]) return;
  found->second.answers[origin] = std::move(answer);
  if (--found->second.missing == 0) changed_.notify_all();
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

std::vector<std::optional<ControlPlane::Answer>> ControlPlane::ask_all(std::chrono::nanoseconds limit) {
  const Deadline deadline(limit);
  uint64_t number = 0;
  Answer mine;
  std::function<std::string()> state;
  {
    const std::lock_guard lock(state_mutex_);
    number = next_roll_call_++;
    roll_calls_[number] = {std::vector<std::optional<Answer>>(nranks_), nranks_ - 1};
    state = state_;
    mine.gathers = gathers_;
  }
  spread(NoticeKind::ask, WireWriter().u64(number).take());
  if (state) mine.state = state();
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
  answers[rank_] = std::move(mine);
  return answers;
}

// ---- Pair messages -----------------------------------------------------------------------------------------

void ControlPlane::send_pair(uint32_t peer, std::string_view bytes) {
  if (bytes.size() > kMaxPairMessage || peer >= nranks_ || peer == rank_)
    throw make_failure(TUTTI_INVALID_ARGUMENT,
                       "{}a pair message of {} bytes to rank {}; at most {} to another of the {} ranks are allowed",
                       me(), bytes.size(), peer, kMaxPairMessage, nranks_);
  if (is_gone(peer)) return;
  std::unique_lock lock(pair_mutex_);
  const uint64_t number = pairs_.send(peer, bytes);
  lock.unlock();
  if (number == 0)
    throw make_failure(TUTTI_NO_RESOURCES, "{}rank {} has not taken {} pair messages from this rank", me(), peer,
                       kMaxPairsUntaken);
  carry({PairFrame::What::message, rank_, peer, PairWay::up, number, bytes});
}

std::vector<PairMessage> ControlPlane::take_pair_messages() {
  std::vector<PairMessage> all;
  std::map<uint32_t, uint64_t> taken;
  {
    const std::lock_guard lock(pair_mutex_);
    all = pairs_.take();
    has_pairs_.store(false, std::memory_order_release);
    for (const PairMessage& message : all) taken[message.from] = pairs_.taken_from(message.from);
  }
  for (const auto& [from, number] : taken) carry({PairFrame::What::taken, rank_, from, PairWay::up, number, {}});
  return all;
}

void ControlPlane::deliver_pair(const PairFrame& frame) {
  uint64_t missed = 0;
  bool news = false;
  {
    const std::lock_guard lock(pair_mutex_);
    if (frame.what == PairFrame::What::taken) return pairs_.taken(frame.origin, frame.number);
    if (!pairs_.receive(frame.origin, frame.number, frame.bytes)) missed = pairs_.taken_from(frame.origin);
    news = pairs_.has_messages();
    has_pairs_.store(news, std::memory_order_release);
  }
  // The sender's copy came another way than the one that was taken: so may the word of it.
  if (missed) carry({PairFrame::What::taken, rank_, frame.origin, frame.way, missed, {}});
  if (!news) return;
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
  std::vector<PairFrame> frames;
  std::deque<std::string> kept;
  {
    const std::lock_guard lock(pair_mutex_);
    if (!resend_at_ || *resend_at_ > Deadline::Clock::now()) return resend_at_;
    pairs_.for_each_untaken([&](uint32_t peer, uint64_t number, std::string_view bytes) {
      const PairWay way = kResends[resends_].way;
      frames.push_back({PairFrame::What::message, rank_, peer, way, number, kept.emplace_back(bytes)});
    });
    resend_at_.reset();
    if (++resends_ < std::size(kResends)) resend_at_ = Deadline::Clock::now() + kResends[resends_].pause;
  }
  for (const PairFrame& frame : frames) carry(frame);
  const std::lock_guard lock(pair_mutex_);
  return resend_at_;
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

std::vector<std::string> ControlPlane::all_gather(const std::string& mine, std::chrono::nanoseconds timeout) {
  const Deadline deadline(timeout);
  uint64_t gather = 0;
  {
    const std::lock_guard lock(state_mutex_);
    gather = ++gathers_;
  }
  try {
    auto all = disseminate(gather, mine, deadline);
    const std::lock_guard lock(state_mutex_);
    completed_ = gather;
    return all;
  } catch (const std::exception& problem) {
    const Failure failure = failure_of(problem);
    // Each rank hears by itself of one that has left.
    const auto left = [&](const std::optional<uint64_t>& last) { return last && *last < gather; };
    std::unique_lock lock(state_mutex_);
    const bool all_hear = lost_.empty() && std::ranges::any_of(stopped_, left);
    lock.unlock();
    if (!all_hear) announce(rank_, failure.status, "gave up: " + failure.text);
    throw failure;
  }
}

std::vector<std::string> ControlPlane::disseminate(uint64_t gather, const std::string& mine, const Deadline& deadline) {
  std::vector<std::string> all(nranks_);
  all[rank_] = mine;
  uint32_t round = 0;
  for (const auto [to, from, blocks] : gather_rounds(rank_, nranks_)) {
    WireWriter part;
    for (uint64_t i = 0; i < blocks; ++i) part.text(all[(rank_ + nranks_ - i) % nranks_]);
    pass(to, gather, round, part.take());
    const std::string theirs = await_part(gather, round++, from, deadline);
    WireReader reader(theirs, "part of an all_gather");
    for (uint64_t i = 0; i < blocks; ++i) all[(from + nranks_ - i) % nranks_] = reader.text();
    reader.end();
  }
  return all;
}

std::string ControlPlane::await_part(uint64_t gather, uint32_t round, uint32_t from, const Deadline& deadline) {
  if (auto part = part_by(gather, round, from, deadline)) return std::move(*part);
  const std::vector<uint32_t> missing = absent_from(gather);
  // It may have come meanwhile; where all ranks have, it is on its way.
  constexpr std::chrono::seconds on_its_way(5);
  const Deadline limit(missing.empty() ? on_its_way : std::chrono::seconds(0));
  if (auto part = part_by(gather, round, from, limit)) return std::move(*part);
  const std::string what = missing.empty()
                               ? fmt::format("all ranks have come, but rank {} has not passed on their bytes", from)
                               : rank_list(missing) + " did not arrive";
  throw make_failure(TUTTI_TIMEOUT, "all_gather timed out after {}: {}", deadline.text(), what);
}

// Nothing: it has not come by the deadline.
std::optional<std::string> ControlPlane::part_by(uint64_t gather, uint32_t round, uint32_t from,
                                                 const Deadline& deadline) {
  std::unique_lock lock(state_mutex_);
  while (true) {
    if (const auto found = parts_.find({gather, round}); found != parts_.end()) {
      std::string part = std::move(found->second);
      parts_.erase(found);
      return part;
    }
    if (const auto why = hopeless(gather, from)) throw *why;
    if (deadline.passed()) return std::nullopt;
    changed_.wait_until(lock, deadline.at());
  }
}

std::optional<Failure> ControlPlane::hopeless(uint64_t gather, uint32_t from) const {
  uint32_t absent = 0;
  while (absent < nranks_ && !(stopped_[absent] && *stopped_[absent] < gather)) ++absent;
  if (absent == nranks_ && closed_[from]) absent = from;
  const Loss* cause = first_loss();
  if (cause && (absent < nranks_ || completed_somewhere_ < gather)) return Failure(cause->status, cause->text());
  if (absent == nranks_) return std::nullopt;
  return make_failure(TUTTI_PEER_FAILED, "rank {} has left while others wait for it in all_gather", absent);
}

// The ranks that have not entered it, as far as they answer.
std::vector<uint32_t> ControlPlane::absent_from(uint64_t gather) {
  constexpr std::chrono::seconds patience(1);
  const auto answers = ask_all(patience);
  std::vector<uint32_t> missing;
  for (uint32_t r = 0; r < nranks_; ++r)
    if (!answers[r] || answers[r]->gathers < gather) missing.push_back(r);
  return missing;
}

void ControlPlane::deliver_part(uint32_t origin, uint64_t gather, uint32_t round, std::string_view bytes) {
  const std::lock_guard lock(state_mutex_);
  const bool awaited = round < 32 && (origin + (uint64_t{1} << round)) % nranks_ == rank_;
  // No rank begins the gather after next before this rank is in the next one.
  if (!awaited || gather < gathers_ || gather > gathers_ + 1 || !parts_.try_emplace({gather, round}, bytes).second)
    throw make_failure(TUTTI_MISMATCH, "a part of all_gather {}, round {}, came, which nobody awaits", gather, round);
  changed_.notify_all();
}

void ControlPlane::leave(bool all_know) noexcept try {
  if (leaving_.exchange(true)) return;
  uint64_t entered = 0;
  {
    const std::lock_guard lock(state_mutex_);
    entered = gathers_;
  }
  if (!all_know) spread(NoticeKind::left, WireWriter().u64(entered).take());
  say_goodbye();
} catch (...) {  // the others then see an end without a goodbye
}

}  // namespace tutti::core
