// SPDX-License-Identifier: Apache-2.0
#include "record/call.hpp"

#include <fmt/format.h>
#include <tutti/schedule.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <string_view>
#include <tuple>

#include "kernels/codec.hpp"
#include "kernels/kernels.hpp"

namespace tutti::core {

static_assert(op_premul_sum == TUTTI_FLIGHT_PREMUL_SUM);

void name_user_op(Call& call, const std::string& name, bool commutative) {
  call.op = commutative ? call_user_op : call_ordered_user_op;
  std::copy_n(name.begin(), std::min(name.size(), most_op_name), call.op_name_text.begin());
}

std::string call_text(const Call& call) {
  if (call.collective == call_destroy) return "tutti_comm_destroy()";
  const std::string tag = call.tag ? fmt::format("tag {}", call.tag) : "";
  if (call.collective == TUTTI_BARRIER) return fmt::format("barrier({})", tag);
  const bool counted = all_know_blocks(call.collective);
  std::string text = fmt::format("{}({}{}", collective_name(call.collective),
                                 counted ? fmt::format("{} x ", call.count) : "", dtype_name(call.dtype));
  if (call.op >= call_user_op && is_reducing(call.collective))
    text += fmt::format(", operator \"{}\"{}",
                        printable({call.op_name_text.begin(), std::ranges::find(call.op_name_text, '\0')}),
                        call.op == call_ordered_user_op ? " that does not commute" : "");
  else if (call.op == op_premul_sum && is_reducing(call.collective))
    text += ", premul_sum";
  else if (is_reducing(call.collective))
    text += fmt::format(", {}", op_name(call.op));
  if (call.order) text += call.order == TUTTI_ORDER_EXACT ? ", exact order" : ", canonical order";
  if (call.wire) text += fmt::format(", wire {}", wire_name(call.wire));
  if (has_root(call.collective)) text += fmt::format(", root {}", call.root);
  if (call.tag) text += ", " + tag;
  return text + ")";
}

const char* other_algorithms(const Call& call, const Call& other) {
  return call.algorithms == other.algorithms ? "" : " with other algorithms (tutti_options.algorithms)";
}

std::string call_name(const Call& call) {
  return fmt::format("{} #{}{}", collective_name(call.collective), call.sequence,
                     call.tag ? fmt::format(", tag {}", call.tag) : "");
}

// These collectives have no operator: the field tells that there is a difference.
Call with_count_difference(const Call& call, uint32_t peer, uint64_t sent, uint64_t expected) {
  Call found = call;
  found.op = peer + 1;
  found.count = sent;
  found.plan = expected;
  return found;
}

CallDifference difference_of(uint32_t rank, const Call& call, uint32_t other_rank, const Call& other) {
  if (!all_know_blocks(call.collective) && call.collective == other.collective && (call.op || other.op)) {
    const auto& [at, found] = call.op ? std::tie(rank, call) : std::tie(other_rank, other);
    return {at,
            fmt::format("expects {} elements from rank {} in {}, operation #{}, but rank {} sends {}: the two ends of "
                        "a block must have the same count",
                        found.plan, found.op - 1, call_text(found), found.sequence, found.op - 1, found.count)};
  }
  Call same = other;
  same.plan = call.plan;
  if (same == call && has_unequal_blocks(call.collective) && all_know_blocks(call.collective))
    return {rank,
            fmt::format("called {} as operation #{} with other counts than rank {} did (or other plugins or TUTTI_ "
                        "settings): all ranks must pass the same counts",
                        call_text(call), call.sequence, other_rank)};
  if (same == call)
    return {
        rank,
        fmt::format("carries out {}, operation #{}, differently from rank {} (plans {:016x} and {:016x}): do all ranks "
                    "have their buffers on devices or all on the host, at the same places of the same windows or in "
                    "none, the same plugins and TUTTI_ settings?",
                    call_text(call), call.sequence, other_rank, call.plan, other.plan)};
  return {rank,
          fmt::format("called {} as operation #{}, rank {} called {}{}: all ranks must make the same calls",
                      call_text(call), call.sequence, other_rank, call_text(other), other_algorithms(call, other))};
}

RecordedCall::RecordedCall(const Call& call, bool in_place, uint32_t service, uint64_t slices)
    : identity(identity_without_tag(call)), op_name(std::bit_cast<OpName>(call.op_name_text)) {
  operation.count = call.count;
  operation.collective = static_cast<uint8_t>(call.collective);
  operation.dtype = static_cast<uint8_t>(call.dtype);
  operation.op = static_cast<uint16_t>(call.op);
  operation.root = call.root;
  operation.service = static_cast<uint16_t>(service);
  operation.in_place = in_place;
  operation.order = call.order;
  operation.status = TUTTI_OK;
  operation.plan = call.plan;
  operation.slices = slices;
  operation.algorithms = call.algorithms;
  operation.wire = call.wire;
}

}  // namespace tutti::core
