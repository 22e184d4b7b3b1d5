// SPDX-License-Identifier: Apache-2.0
#include "observe/call.hpp"

#include <fmt/format.h>
#include <tutti/schedule.h>

namespace tutti::core {

std::string call_text(const Call& call) {
  if (call.collective == call_destroy) return "tutti_comm_destroy()";
  if (call.collective == TUTTI_BARRIER) return "barrier()";
  std::string text = fmt::format("{}({} x {}", collective_name(call.collective), call.count, dtype_name(call.dtype));
  if (is_reducing(call.collective)) text += fmt::format(", {}", op_name(call.op));
  if (has_root(call.collective)) text += fmt::format(", root {}", call.root);
  return text + ")";
}

CallDifference difference_of(uint32_t rank, const Call& call, uint32_t other_rank, const Call& other) {
  Call same = other;
  same.plan = call.plan;
  if (same == call)
    return {
        rank,
        fmt::format("carries out {}, operation #{}, otherwise than rank {} (plans {:016x} and {:016x}): do all "
                    "ranks have their buffers on devices or all on the host, at the same places of the same windows or "
                    "in none, the same plugins and TUTTI_ settings?",
                    call_text(call), call.sequence, other_rank, call.plan, other.plan)};
  return {rank, fmt::format("called {} as operation #{}, rank {} called {}: all ranks must make the same calls",
                            call_text(call), call.sequence, other_rank, call_text(other))};
}

}  // namespace tutti::core
