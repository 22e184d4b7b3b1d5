// SPDX-License-Identifier: Apache-2.0
#include "findings.hpp"

#include <tutti/flight_record.h>
#include <tutti/registry.h>
#include <tutti/schedule.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace trace {
namespace {

// The union of some spans, as spans apart.
std::vector<Span> unite(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  std::vector<Span> apart;
  for (const Span& span : spans) {
    if (apart.empty() || span.begin > apart.back().end)
      apart.push_back(span);
    else
      apart.back().end = std::max(apart.back().end, span.end);
  }
  return apart;
}

// Calls `inside` for each part of `whole` that lies in a span, and `outside` for each part between.
template <typename Spans, typename Inside, typename Outside>
void divide(const Spans& spans, Span whole, Inside&& inside, Outside&& outside) {
  auto at = std::partition_point(spans.begin(), spans.end(), [&](const Span& s) { return s.end <= whole.begin; });
  for (; at != spans.end() && at->begin < whole.end; ++at) {
    const Span part{std::max(whole.begin, at->begin), std::min(whole.end, at->end)};
    if (part.begin > whole.begin) outside(Span{whole.begin, part.begin});
    if (part.length() > 0) inside(part, *at);
    whole.begin = std::max(whole.begin, part.end);
  }
  if (whole.length() > 0) outside(whole);
}

int64_t total(const std::vector<Span>& spans) {
  int64_t sum = 0;
  for (const Span& span : spans) sum += span.length();
  return sum;
}

class Blame {
 public:
  Blame(const Group& group, Findings& findings) : findings_(findings) {
    for (const RankTrace& rank : group.ranks) {
      std::vector<Span> inside(rank.calls.begin(), rank.calls.end());
      inside.insert(inside.end(), rank.transfers.begin(), rank.transfers.end());
      ranks_[rank.rank] = {&rank, unite(std::move(inside))};
      RankFindings of;
      of.rank = rank.rank;
      of.calls = rank.calls.size() + rank.transfers.size();
      of.in_calls_ns = total(ranks_[rank.rank].inside);
      findings_.ranks.push_back(of);
    }
    for (uint32_t r = 0; r < group.nranks; ++r)  // others may wait for ranks without a trace
      if (!ranks_.count(r)) absent_[r].rank = r;
  }

  void judge() {
    for (RankFindings& of : findings_.ranks)
      for (const Step& wait : ranks_.at(of.rank).trace->waits) {
        of.waited_ns += wait.length();
        chain_ = {of.rank};
        if (wait.peer != UINT32_MAX) pass(wait.peer, wait);
      }
    for (const auto& [rank, of] : absent_)
      if (of.blamed_ns() > 0) findings_.ranks.push_back(of);
    std::sort(findings_.ranks.begin(), findings_.ranks.end(), [](auto& a, auto& b) { return a.rank < b.rank; });
    name_straggler();
  }

 private:
  struct Side {
    const RankTrace* trace = nullptr;
    std::vector<Span> inside;
  };

  RankFindings* of(uint32_t rank) {
    for (RankFindings& f : findings_.ranks)
      if (f.rank == rank) return &f;
    const auto absent = absent_.find(rank);
    return absent == absent_.end() ? nullptr : &absent->second;
  }

  // A rank of the chain has waited for `rank` during `when`.
  void pass(uint32_t rank, const Span& when) {
    constexpr size_t longest_chain = 64;
    RankFindings* const blamed = of(rank);
    if (!blamed) return;
    const auto side = ranks_.find(rank);
    if (side == ranks_.end()) {
      blamed->slow_ns += when.length();
      return;
    }
    if (std::find(chain_.begin(), chain_.end(), rank) != chain_.end() || chain_.size() > longest_chain) {
      findings_.in_transit_ns += when.length();
      return;
    }
    chain_.push_back(rank);
    const auto own = [&](const Span& part) {
      divide(
          side->second.inside, part, [&](const Span& p, const Span&) { blamed->slow_ns += p.length(); },
          [&](const Span& p) { blamed->late_ns += p.length(); });
    };
    divide(
        side->second.trace->waits, when,
        [&](const Span& part, const Step& wait) { wait.peer == UINT32_MAX ? own(part) : pass(wait.peer, part); }, own);
    chain_.pop_back();
  }

  // The one that stands out: more than a tenth of all waiting, and twice as much as the rank in the middle.
  void name_straggler() {
    std::vector<int64_t> blamed;
    int64_t waited = 0;
    const RankFindings* most = nullptr;
    for (const RankFindings& f : findings_.ranks) {
      blamed.push_back(f.blamed_ns());
      waited += f.waited_ns;
      if (!most || f.blamed_ns() > most->blamed_ns()) most = &f;
    }
    if (!most) return;
    std::sort(blamed.begin(), blamed.end());
    const int64_t middle = blamed[(blamed.size() - 1) / 2];
    if (most->blamed_ns() * 10 > waited && most->blamed_ns() > 2 * middle) findings_.straggler = most->rank;
  }

  Findings& findings_;
  std::map<uint32_t, Side> ranks_;
  std::map<uint32_t, RankFindings> absent_;
  std::vector<uint32_t> chain_;
};

void judge_links(const Group& group, Findings& findings) {
  constexpr uint64_t least_bytes = 65536, least_messages = 4;
  struct Times {
    std::vector<Span> direct, forwarded;
    uint64_t direct_bytes = 0, forwarded_bytes = 0;
    std::string transport;
  };
  std::map<std::pair<uint32_t, uint32_t>, Times> links;
  for (const Message& message : match_messages(group)) {
    Times& times = links[{message.from, message.to}];
    times.transport = message.send->transport;
    const bool forwarded = message.send->flags & TUTTI_TRACE_FORWARDED;
    const Span both{std::max(message.send->begin, message.receive->begin), message.receive->end};
    if (both.length() <= 0) continue;
    (forwarded ? times.forwarded : times.direct).push_back(both);
    (forwarded ? times.forwarded_bytes : times.direct_bytes) += message.receive->bytes;
  }
  for (auto& [ends, times] : links) {
    // A forwarded message takes as long as the one that it forwards: others are better witnesses.
    const bool direct = !times.direct.empty();
    std::vector<Span>& spans = direct ? times.direct : times.forwarded;
    LinkFindings link{
        ends.first, ends.second, times.transport, spans.size(), direct ? times.direct_bytes : times.forwarded_bytes, 0};
    if (link.bytes < least_bytes || link.messages < least_messages) continue;
    link.busy_ns = total(unite(std::move(spans)));
    findings.links.push_back(link);
  }
  std::stable_sort(findings.links.begin(), findings.links.end(), [](const LinkFindings& a, const LinkFindings& b) {
    return a.gigabytes_per_second() < b.gigabytes_per_second();
  });
}

void judge_calls(const Group& group, Findings& findings) {
  std::map<std::pair<std::string, std::string>, CallFindings> kinds;
  for (const RankTrace& rank : group.ranks)
    for (const Call& call : rank.calls) {
      const std::string by = call.algorithm + (call.transports.empty() ? "" : " over " + call.transports) +
                             (call.slices > 1 ? ", " + std::to_string(call.slices) + " slices" : "");
      CallFindings& kind = kinds[{call_text(call), by}];
      kind.text = call_text(call);
      kind.served_by = by;
      ++kind.calls;
      kind.total_ns += call.length();
      if (call.length() > kind.longest_ns) kind.longest_ns = call.length(), kind.longest = number_text(call);
    }
  const auto ranks = std::max<size_t>(1, group.ranks.size());
  for (auto& [key, kind] : kinds) {
    kind.calls = (kind.calls + ranks - 1) / ranks;
    kind.total_ns /= static_cast<int64_t>(ranks);
    findings.calls.push_back(kind);
  }
  std::stable_sort(findings.calls.begin(), findings.calls.end(),
                   [](const CallFindings& a, const CallFindings& b) { return a.total_ns > b.total_ns; });
}

}  // namespace

const RankFindings* Findings::find(uint32_t rank) const {
  for (const RankFindings& f : ranks)
    if (f.rank == rank) return &f;
  return nullptr;
}

std::string number_text(const Call& call) {
  return "#" + std::to_string(call.sequence) + (call.tag ? ", tag " + std::to_string(call.tag) : "");
}

std::string call_text(const Call& call) {
  const bool known = call.collective >= TUTTI_BROADCAST && call.collective <= tutti::last_collective;
  std::string text = known ? tutti::collective_name(call.collective) : "collective " + std::to_string(call.collective);
  if (call.count == 0 && call.op == 0) return text + "()";
  text += "(" + std::to_string(call.count) + " x " + tutti::dtype_name(call.dtype);
  if (call.op >= TUTTI_FLIGHT_PREMUL_SUM)
    text += ", own operator";
  else if (call.op)
    text += std::string(", ") + tutti::op_name(call.op);
  return text + ")";
}

std::vector<Message> match_messages(const Group& group) {
  // The k-th message of a call from one rank to another, in a lane, is the k-th that the other receives there.
  using Way = std::tuple<uint64_t, uint32_t, uint32_t, uint32_t>;
  struct Ends {
    std::vector<const Step*> sends, receives;
  };
  std::map<Way, Ends> ways;
  for (const RankTrace& rank : group.ranks)
    for (const Step& step : rank.steps) {
      if (step.peer == UINT32_MAX || step.bytes == 0 || step.kind == TUTTI_STEP_SIGNAL) continue;
      if (step.flags & TUTTI_TRACE_SENDING)
        ways[{step.sequence, step.lane, rank.rank, step.peer}].sends.push_back(&step);
      else
        ways[{step.sequence, step.lane, step.peer, rank.rank}].receives.push_back(&step);
    }
  std::vector<Message> messages;
  for (auto& [way, ends] : ways) {
    if (ends.sends.size() != ends.receives.size()) continue;  // a file is absent, or records were dropped
    const auto by_position = [](const Step* a, const Step* b) {
      return std::pair(a->slice, a->step) < std::pair(b->slice, b->step);
    };
    std::sort(ends.sends.begin(), ends.sends.end(), by_position);
    std::sort(ends.receives.begin(), ends.receives.end(), by_position);
    for (size_t i = 0; i < ends.sends.size(); ++i) {
      Message message;
      message.begin = ends.sends[i]->begin;
      message.end = ends.receives[i]->end;
      message.from = std::get<2>(way);
      message.to = std::get<3>(way);
      message.send = ends.sends[i];
      message.receive = ends.receives[i];
      messages.push_back(message);
    }
  }
  return messages;
}

Findings find(const Group& group) {
  Findings findings;
  Blame(group, findings).judge();
  judge_links(group, findings);
  judge_calls(group, findings);
  return findings;
}

}  // namespace trace
