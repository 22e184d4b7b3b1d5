// SPDX-License-Identifier: Apache-2.0
#include "engine/check/count_check.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <cstring>

namespace tutti::core {
namespace {

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

void CountCheck::place(uint32_t rank, uint32_t nranks, std::vector<Link>* links) {
  rank_ = rank;
  nranks_ = nranks;
  links_ = links;
  for (Heard& heard : heard_) heard = {std::vector<uint64_t>(nranks), std::vector<bool>(nranks)};
}

bool CountCheck::tell(const Call& call, const BlockTable& table, const std::function<bool(Link&)>& connect) {
  for (; told_ < nranks_; ++told_) {
    if (!sends(call, rank_, told_)) continue;
    Link& link = (*links_)[told_];
    if (!connect(link)) return false;
    const Message message{type_counts, 0, number_, count_of(table.in, nranks_, told_)};
    const tutti_status status = link.port->api->send_control(link.handle, &message, sizeof message);
    if (status == TUTTI_AGAIN) return false;
    if (status < 0)
      throw Failure(status, fmt::format("telling rank {} its count over {}: {}", link.peer, link.port->api->name,
                                        take_plugin_error()));
  }
  return true;
}

bool CountCheck::has_heard_all(const Call& call) {
  for (uint32_t peer = 0; peer < nranks_; ++peer)
    if (sends(call, peer, rank_) && !of(number_).from[peer]) return false;
  return true;
}

// The call with the first count that is not what this rank expects.
Call CountCheck::compare(const Call& call, const BlockTable& table) {
  Heard& heard = of(number_);
  Call found = call;
  for (uint32_t peer = 0; peer < nranks_ && !found.op; ++peer)
    if (sends(call, peer, rank_))
      if (const uint64_t expected = count_of(table.out, nranks_, peer); heard.counts[peer] != expected)
        found = with_count_difference(call, peer, heard.counts[peer], expected);
  heard.from.assign(nranks_, false);
  ++number_;
  told_ = 0;
  return found;
}

bool CountCheck::check(CallCheck& calls, const Call& mine, const BlockTable& table,
                       const std::function<bool(Link&)>& connect) {
  if (stage_ == Stage::calls) {
    if (!calls.check(mine, connect)) return false;
    if (all_know_blocks(mine.collective)) return true;
    stage_ = Stage::counts;
  }
  if (stage_ == Stage::counts) {
    if (!tell(mine, table, connect) || !has_heard_all(mine)) return false;
    found_ = compare(mine, table);
    stage_ = Stage::findings;
  }
  if (!calls.check(found_, connect)) return false;
  stage_ = Stage::calls;
  return true;
}

std::string CountCheck::on_control(uint32_t peer, const std::byte* data, uint64_t bytes) {
  Message m;
  if (bytes != sizeof m || !links_) return fmt::format("a count of {} bytes, which makes no sense", bytes);
  std::memcpy(&m, data, sizeof m);
  if (m.number != number_ && m.number != number_ + 1)
    return fmt::format("a count for exchange #{}, while this rank is at #{}", m.number, number_);
  Heard& heard = of(m.number);
  if (heard.from[peer]) return fmt::format("two counts for exchange #{}", m.number);
  heard.from[peer] = true;
  heard.counts[peer] = m.count;
  return {};
}

std::string CountCheck::where() const {
  return stage_ == Stage::counts ? "the exchange of counts before the call (TUTTI_CHECK)" : "";
}

}  // namespace tutti::core
