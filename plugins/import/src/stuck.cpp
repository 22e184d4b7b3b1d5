// SPDX-License-Identifier: Apache-2.0
#include "stuck.hpp"

namespace tutti::plans {
namespace {

class Search {
 public:
  Search(const Plan& plan, const std::vector<uint32_t>& next, const Memory& memory)
      : plan_(plan), next_(next), memory_(memory) {}

  // From one that waits to whom it waits for, until that is nobody, or one that was seen before.
  void report() const {
    uint32_t t = 0;
    while (t < next_.size() && next_[t] == plan_.threads[t].ops.size()) ++t;
    if (t == next_.size()) return;
    for (std::vector<bool> seen(next_.size(), false); !seen[t];) {
      seen[t] = true;
      t = waits_for(t);
    }
    throw wrong(plan_, plan_.threads[t], op_of(t),
                "waits for ever: it is one of a ring of steps that wait for each other");
  }

 private:
  const Op& op_of(uint32_t t) const { return plan_.threads[t].ops[next_[t]]; }

  // A thread block that has yet to do what `wanted` tells; throws where there is none.
  template <typename Wanted, typename... Args>
  uint32_t find(uint32_t t, Wanted&& wanted, fmt::format_string<const Args&...> otherwise, const Args&... args) const {
    for (uint32_t other = 0; other < next_.size(); ++other)
      for (size_t i = next_[other]; i < plan_.threads[other].ops.size(); ++i)
        if (other != t && wanted(plan_.threads[other], plan_.threads[other].ops[i])) return other;
    throw wrong(plan_, plan_.threads[t], op_of(t), "{}", fmt::format(otherwise, args...));
  }

  uint32_t waits_for(uint32_t t) const {
    const Op& op = op_of(t);
    const uint32_t rank = plan_.threads[t].rank;
    if (op.after_thread != nobody && next_[op.after_thread] <= op.after_op) return op.after_thread;
    const auto same = [&](Kind kind, uint32_t of_rank, const Thread& thread, const Op& other) {
      return other.kind == kind && thread.rank == of_rank && other.object == op.object;
    };
    switch (op.kind) {
      case Kind::wait:
        return find(
            t, [&](const Thread& u, const Op& o) { return same(Kind::signal, op.peer, u, o) && o.peer == rank; },
            "waits for a signal that gpu {} never gives", op.peer);
      case Kind::acquire:
        return find(
            t, [&](const Thread& u, const Op& o) { return same(Kind::release, rank, u, o); },
            "acquires semaphore {}, which nobody releases", op.object);
      case Kind::barrier:
        return find(
            t, [&](const Thread& u, const Op& o) { return same(Kind::barrier, rank, u, o) && &o != &op_of(index(u)); },
            "waits at barrier {} for {} thread blocks, of which not all come", op.object, op.count);
      case Kind::receive:
      case Kind::receive_reduce:
        return find(
            t,
            [&](const Thread& u, const Op& o) {
              return o.kind == Kind::send && u.rank == op.peer && o.peer == rank && o.channel == op.channel;
            },
            "receives from gpu {} on channel {} what gpu {} never sends", op.peer, op.channel, op.peer);
      default:
        return writer_of_packets(t, op);
    }
  }

  uint32_t index(const Thread& thread) const { return static_cast<uint32_t>(&thread - plan_.threads.data()); }

  uint32_t writer_of_packets(uint32_t t, const Op& op) const {
    const uint32_t rank = plan_.threads[t].rank;
    const size_t first = op.kind == Kind::reduce ? 1 : 0, end = op.kind == Kind::reduce ? op.sources.size() : 1;
    for (size_t k = first; k < end; ++k)
      for (uint32_t i = 0; i < op.count; ++i) {
        const Cells cells = op.kind == Kind::reduce ? op.sources[k] : op.src;
        if (memory_.at(rank, cells, i).packets) continue;
        const uint32_t cell = cells.first + i;
        return find(
            t,
            [&](const Thread& u, const Op& o) {
              return o.writes_packets && (o.kind == Kind::put ? o.peer : u.rank) == rank &&
                     o.dst.buffer == cells.buffer && o.dst.first <= cell && cell - o.dst.first < o.count;
            },
            "reads packets in {}[{}], which nobody writes", letter(cells.buffer), cell);
      }
    return t;
  }

  const Plan& plan_;
  const std::vector<uint32_t>& next_;
  const Memory& memory_;
};

}  // namespace

void report_stuck(const Plan& plan, const std::vector<uint32_t>& next, const Memory& memory) {
  Search(plan, next, memory).report();
}

}  // namespace tutti::plans
