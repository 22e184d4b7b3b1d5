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

#include "record/flight_recorder.hpp"
#include "registry/host.hpp"

namespace tutti::core {
namespace {

// True for the first call with these two communicators.
bool is_first_time(uint64_t one, uint64_t other) {
  static std::mutex mutex;
  static auto& known = *new std::set<std::pair<uint64_t, uint64_t>>();
  const std::lock_guard lock(mutex);
  return known.insert(std::minmax(one, other)).second;
}

// Does a block go from one rank to another?
bool sends(const Call& call, uint32_t from, uint32_t to) {
  if (from == to) return false;
  if (call.collective == TUTTI_GATHER_V) return to == call.root;
  return call.collective != TUTTI_SCATTER_V || from == call.root;
}

// This rank's count for a peer, or of a peer: where it has one block only that is it.
uint64_t count_of(const BlockList& list, uint32_t nranks, uint32_t peer) {
  return list.counts[list.counts.size() == nranks ? peer : 0];
}

}  // namespace

CallCheck::CallCheck(uint32_t rank, uint32_t nranks, bool checked, std::vector<Link>& links, FlightRecorder& recorder,
                     const std::string& name)
    : rank_(rank),
      nranks_(nranks),
      round_count_(nranks > 1 ? static_cast<uint32_t>(std::bit_width(nranks - 1)) : 0),
      checked_(checked && nranks > 1),
      links_(links),
      recorder_(recorder),
      name_(name) {
  if (!checked_) return;
  recorder_.note_callers();
  for (Heard& heard : heard_) heard.counts.resize(nranks);
}

// ---- Checked mode ------------------------------------------------------------------------------------------

void CallCheck::KnownCalls::add(uint32_t of_rank, const Call& of_call) {
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

CallCheck::CheckMessage CallCheck::own_message(uint32_t type, const Call& call) const {
  return {type, 0, number_, rank_, UINT32_MAX, call, {}, {}};
}

bool CallCheck::send(const CheckMessage& message, uint32_t peer, const char* what) {
  Link& link = links_[peer];
  if (!connect(link)) return false;
  const tutti_status status = link.port->api->send_control(link.handle, &message, sizeof message);
  if (status == TUTTI_AGAIN) return false;
  if (status < 0)
    throw Failure(status, fmt::format("telling rank {} {} over {}: {}", link.peer, what, link.port->api->name,
                                      take_plugin_error()));
  return true;
}

bool CallCheck::check(const Call& mine, const BlockTable& table) {
  if (stage_ == CheckStage::none) begin(mine, CheckStage::calls);
  if (stage_ == CheckStage::calls) {
    if (!disseminate(mine)) return false;
    stage_ = all_know_blocks(mine.collective) ? CheckStage::none : CheckStage::counts;
  }
  if (stage_ == CheckStage::counts) {
    if (!exchange_counts(mine, table)) return false;
    begin(compare_counts(mine, table), CheckStage::findings);
  }
  if (stage_ == CheckStage::findings) {
    if (!disseminate(mine)) return false;
    stage_ = CheckStage::none;
  }
  return true;
}

void CallCheck::begin(const Call& mine, CheckStage stage) {
  stage_ = stage;
  told_ = 0;
  of(number_).known.add(rank_, mine);
  earlier_ = recorder_.earlier_calls(mine.sequence);
}

bool CallCheck::disseminate(const Call& mine) {
  Heard& heard = of(number_);
  for (; round_ < rounds(); ++round_) {
    if (told_ == round_) {
      const auto& [rank, odd_rank, call, odd_call] = heard.known;
      if (!send({type_call, round_, number_, rank, odd_rank, call, odd_call, earlier_}, after(round_), "of the call"))
        return false;
      ++told_;
    }
    if (!(heard.rounds >> round_ & 1)) return false;
  }
  if (const KnownCalls& k = heard.known; k.differs())
    throw CallsDiffer(difference_of(k.odd_rank, k.odd_call, k.rank, k.call));
  compare_order(mine, heard.earlier);
  heard.rounds = 0;
  heard.known = {};
  std::ranges::fill(heard.counts, std::nullopt);
  round_ = told_ = 0;
  ++number_;
  return true;
}

bool CallCheck::exchange_counts(const Call& mine, const BlockTable& table) {
  for (; told_ < nranks_; ++told_) {
    if (!sends(mine, rank_, told_)) continue;
    CheckMessage message = own_message(type_count, mine);
    message.call.count = count_of(table.in, nranks_, told_);
    if (!send(message, told_, "its count")) return false;
  }
  for (uint32_t peer = 0; peer < nranks_; ++peer)
    if (sends(mine, peer, rank_) && !now().counts[peer]) return false;
  return true;
}

// The call with the first count that is not what this rank expects.
Call CallCheck::compare_counts(const Call& mine, const BlockTable& table) const {
  for (uint32_t peer = 0; peer < nranks_; ++peer) {
    if (!sends(mine, peer, rank_)) continue;
    const uint64_t expected = count_of(table.out, nranks_, peer), sent = *now().counts[peer];
    if (sent != expected) return with_count_difference(mine, peer, sent, expected);
  }
  return mine;
}

void CallCheck::compare_order(const Call& mine, const EarlierCalls& theirs) const {
  const auto later = recorder_.later_call(theirs, mine.sequence);
  if (!later || !is_first_time(recorder_.communicator(), later->communicator)) return;
  log(TUTTI_LOG_WARN, name_,
      fmt::format("rank {} called {} before {} #{} of {}, rank {} the other way round: where calls block this "
                  "is a deadlock; use the communicators in the same order on every rank (TUTTI_CHECK)",
                  before(0), later->text, collective_name(mine.collective), mine.sequence, name_, rank_));
}

std::string CallCheck::where() const {
  if (stage_ == CheckStage::none) return {};
  if (stage_ == CheckStage::counts) return "the exchange of counts before the call (TUTTI_CHECK)";
  if (round_ == rounds()) return "the end of the check of the calls (TUTTI_CHECK)";
  return fmt::format("the check of the calls (TUTTI_CHECK), round {} of {}: {}", round_ + 1, rounds(),
                     told_ > round_ ? fmt::format("rank {} has not told which call it makes", before(round_))
                                    : fmt::format("rank {} does not take this rank's call", after(round_)));
}

// ---- Otherwise ---------------------------------------------------------------------------------------------

void CallCheck::notify(const Call& mine, const std::vector<Link*>& links) const {
  const CheckMessage message = own_message(type_notice, mine);
  // A link that is lost is told of by progress; one that has no room goes without.
  for (const Link* link : links)
    if (link->port->api->send_control(link->handle, &message, sizeof message) < 0) take_plugin_error();
}

std::optional<CallDifference> CallCheck::compare_notices(const Call& mine) {
  std::optional<CallDifference> difference;
  for (CallNotice& notice : notices_) {
    if (!notice.waiting || notice.call.sequence > mine.sequence) continue;
    notice.waiting = false;
    --notices_waiting_;
    if (!difference && notice.call.sequence == mine.sequence && !(notice.call == mine))
      difference = difference_of(notice.peer, notice.call, rank_, mine);
  }
  return difference;
}

// ---- Messages ----------------------------------------------------------------------------------------------

// A message of checked mode.
std::string CallCheck::receive(uint32_t peer, const CheckMessage& m) {
  const bool is_count = m.type == type_count;
  if (!checked_ || (is_count ? m.rank != peer : m.round >= 2 * round_count_ || peer != before(m.round)) ||
      m.rank >= nranks_ || (m.odd_rank != UINT32_MAX && m.odd_rank >= nranks_))
    return fmt::format("an invalid check of calls (round {}, ranks {} and {})", m.round, m.rank, m.odd_rank);
  if (m.number != number_ && m.number != number_ + 1)
    return fmt::format("check #{} of the calls, while this rank is at #{}", m.number, number_);
  Heard& heard = of(m.number);
  if (is_count) {
    if (std::exchange(heard.counts[peer], m.call.count)) return fmt::format("two counts for check #{}", m.number);
    return {};
  }
  if (heard.rounds >> m.round & 1) return fmt::format("round {} of a check twice", m.round);
  heard.rounds |= uint64_t{1} << m.round;
  if (m.round == 0) heard.earlier = m.earlier;
  heard.known.add(m.rank, m.call);
  heard.known.add(m.odd_rank, m.odd_call);
  return {};
}

std::string CallCheck::on_control(uint32_t peer, const std::byte* data, uint64_t bytes, uint64_t next,
                                  std::optional<CallDifference>* difference) {
  CheckMessage m;
  if (bytes != sizeof m) return fmt::format("a control message about calls of {} bytes, expected {}", bytes, sizeof m);
  std::memcpy(&m, data, sizeof m);
  if (m.type != type_notice) return receive(peer, m);
  if (checked_ || m.rank != peer) return "an invalid report of a call";
  if (m.call.sequence >= next) {
    const auto free = std::ranges::find(notices_, false, &CallNotice::waiting);
    if (free == notices_.end()) return {};
    *free = {peer, true, m.call};
    ++notices_waiting_;
    return {};
  }
  if (const auto mine = recorder_.call(m.call.sequence); mine && !(*mine == m.call))
    *difference = difference_of(peer, m.call, rank_, *mine);
  return {};
}

}  // namespace tutti::core
