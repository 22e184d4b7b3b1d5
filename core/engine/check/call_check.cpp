// SPDX-License-Identifier: Apache-2.0
#include "engine/check/call_check.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "base/failure.hpp"
#include "record/flight_recorder.hpp"
#include "registry/host.hpp"

namespace tutti::core {
namespace {

// True for the first call with these two communicators.
bool is_news(uint64_t one, uint64_t other) {
  static std::mutex mutex;
  static auto& known = *new std::set<std::pair<uint64_t, uint64_t>>();
  const std::lock_guard lock(mutex);
  return known.insert(std::minmax(one, other)).second;
}

}  // namespace

void CallCheck::place(uint32_t rank, uint32_t nranks, bool checked, std::vector<Link>* links, FlightRecorder* recorder,
                      const std::string& name) {
  rank_ = rank;
  nranks_ = nranks;
  checked_ = checked && nranks > 1;
  links_ = links;
  recorder_ = recorder;
  name_ = name;
  if (checked_) recorder_->note_callers();
  round_count_ = nranks > 1 ? static_cast<uint32_t>(std::bit_width(nranks - 1)) : 0;
}

void CallCheck::Known::add(uint32_t of_rank, const Call& of_call) {
  if (of_rank == UINT32_MAX || of_rank == rank) return;
  if (rank == UINT32_MAX) {
    rank = of_rank;
    call = of_call;
    return;
  }
  if (of_rank < rank) {
    // The new lowest rank: the old one is odd beside it, or else who was odd still is.
    if (!(of_call == call)) {
      odd_rank = rank;
      odd_call = call;
    }
    rank = of_rank;
    call = of_call;
  } else if (!(of_call == call) && of_rank < odd_rank) {
    odd_rank = of_rank;
    odd_call = of_call;
  }
}

bool CallCheck::send(uint32_t round, const std::function<bool(Link&)>& connect) {
  Link& link = (*links_)[(rank_ + distance(round)) % nranks_];
  if (!connect(link)) return false;
  const Known& known = of(sequence_).known;
  const Message message{type_call_check, round,      sequence_,      known.rank,
                        known.odd_rank,  known.call, known.odd_call, earlier_};
  const tutti_status status = link.port->api->send_control(link.handle, &message, sizeof message);
  if (status == TUTTI_AGAIN) return false;
  if (status < 0)
    throw Failure(status, fmt::format("telling rank {} of the call over {}: {}", link.peer, link.port->api->name,
                                      take_plugin_error()));
  return true;
}

bool CallCheck::check(const Call& mine, const std::function<bool(Link&)>& connect) {
  Round& round = of(sequence_);
  if (!begun_) {
    begun_ = true;
    round.known.add(rank_, mine);
    earlier_ = recorder_->earlier_calls(mine.sequence);
  }
  while (round_ < rounds()) {
    if (!sent_) sent_ = send(round_, connect);
    if (!sent_ || !(round.heard >> round_ & 1)) return false;
    sent_ = false;
    if (++round_ == round_count_) known_differs_ = round.known.differs();
  }
  if (const Known& k = round.known; known_differs_)
    throw CallsDiffer(difference_of(k.odd_rank, k.odd_call, k.rank, k.call));
  compare_order(mine, round.earlier);
  round = {};
  round_ = 0;
  begun_ = false;
  ++sequence_;
  return true;
}

void CallCheck::compare_order(const Call& mine, const EarlierCalls& theirs) const {
  const auto later = recorder_->later_call(theirs, mine.sequence);
  if (!later || !is_news(recorder_->communicator(), later->communicator)) return;
  log(TUTTI_LOG_WARN, name_,
      fmt::format("rank {} called {} before {} #{} of {}, rank {} the other way round: where calls block this "
                  "is a deadlock; use the communicators in the same order on every rank (TUTTI_CHECK)",
                  (rank_ + nranks_ - 1) % nranks_, later->text, collective_name(mine.collective), mine.sequence, name_,
                  rank_));
}

std::string CallCheck::where() const {
  if (round_ == rounds()) return "the end of the check of the calls (TUTTI_CHECK)";
  const uint32_t from = (rank_ + nranks_ - distance(round_) % nranks_) % nranks_;
  const uint32_t to = (rank_ + distance(round_)) % nranks_;
  return fmt::format("the check of the calls (TUTTI_CHECK), round {} of {}: {}", round_ + 1, rounds(),
                     sent_ ? fmt::format("rank {} has not told which call it makes", from)
                           : fmt::format("rank {} does not take this rank's call", to));
}

void CallCheck::tell(const Call& mine, const std::vector<Link*>& links) {
  Message message{};
  message.type = type_call_news;
  message.sequence = mine.sequence;
  message.rank = rank_;
  message.odd_rank = UINT32_MAX;
  message.call = mine;
  // A link that is lost is told of by progress; one that has no room goes without.
  for (const Link* link : links)
    if (link->port->api->send_control(link->handle, &message, sizeof message) < 0) take_plugin_error();
}

std::optional<CallDifference> CallCheck::compare_news(const Call& mine) {
  std::optional<CallDifference> difference;
  for (News& news : news_) {
    if (!news.waiting || news.call.sequence > mine.sequence) continue;
    news.waiting = false;
    --news_waiting_;
    if (!difference && news.call.sequence == mine.sequence && !(news.call == mine))
      difference = difference_of(news.peer, news.call, rank_, mine);
  }
  return difference;
}

std::string CallCheck::hear(uint32_t peer, const Message& m) {
  const uint32_t total = 2 * round_count_;
  if (!checked_ || m.round >= total || peer != (rank_ + nranks_ - distance(m.round)) % nranks_ || m.rank >= nranks_ ||
      (m.odd_rank != UINT32_MAX && m.odd_rank >= nranks_))
    return fmt::format("a check of calls that makes no sense (round {}, ranks {} and {})", m.round, m.rank, m.odd_rank);
  if (m.sequence != sequence_ && m.sequence != sequence_ + 1)
    return fmt::format("the check of operation #{}, while this rank is at #{}", m.sequence, sequence_);
  Round& round = of(m.sequence);
  if (round.heard >> m.round & 1) return fmt::format("round {} of a check twice", m.round);
  round.heard |= uint64_t{1} << m.round;
  if (m.round == 0) round.earlier = m.earlier;
  round.known.add(m.rank, m.call);
  round.known.add(m.odd_rank, m.odd_call);
  return {};
}

std::string CallCheck::on_control(uint32_t peer, const std::byte* data, uint64_t bytes, uint64_t next,
                                  const std::function<std::optional<Call>(uint64_t sequence)>& call,
                                  std::optional<CallDifference>* difference) {
  Message m;
  if (bytes != sizeof m) return fmt::format("a control message about calls of {} bytes, expected {}", bytes, sizeof m);
  std::memcpy(&m, data, sizeof m);
  if (m.type == type_call_check) return hear(peer, m);
  if (checked_ || m.rank != peer || m.sequence != m.call.sequence) return "news of a call that makes no sense";
  if (m.sequence >= next) {
    for (News& news : news_)
      if (!news.waiting) {
        news = {peer, true, m.call};
        ++news_waiting_;
        break;
      }
    return {};
  }
  if (const auto mine = call(m.sequence); mine && !(*mine == m.call))
    *difference = difference_of(peer, m.call, rank_, *mine);
  return {};
}

}  // namespace tutti::core
