// SPDX-License-Identifier: Apache-2.0
//
// List simulation: each step starts when happens-before and its lane allow it, messages and local work wait for the
// resource that they need in the order in which they become ready (ties by step, rank and lane), so that every rank
// computes the same figure.
#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>

#include "rank_layout.hpp"
#include "step_graph.hpp"

namespace tutti {
namespace {

// The bytes that a step moves.
double bytes_of(const tutti_step& op, const RankLayout& layout, const std::vector<double>& piece_bytes) {
  const tutti_span& span = op.kind == TUTTI_STEP_SEND ? op.src : op.dst;
  double sum = 0;
  for (uint32_t i = 0; i < span.chunks; ++i) sum += piece_bytes[layout.piece(span.buffer, span.first + i)];
  return sum;
}

class Simulation {
 public:
  Simulation(const StepGraph& graph, const std::vector<double>& piece_bytes, const CostModel& model)
      : graph_(graph),
        piece_bytes_(piece_bytes),
        model_(model),
        times_(graph.nodes().size()),
        pending_(graph.nodes().size(), 0),
        egress_(graph.problem().nranks, 0),
        ingress_(egress_),
        sent_(egress_),
        taken_(egress_),
        compute_(egress_),
        hosts_(graph.problem().hosts.empty() ? 0 : model.hosts.size()),
        round_(model.per_switch > 0 || model.per_turn > 0 ? graph.nodes().size() : 0, 0),
        turns_(round_),
        waits_(graph.problem().nranks) {
    list_successors();
    for (size_t host = 0; host < hosts_.size(); ++host) {
      const auto ranks = double(std::ranges::count(graph.problem().hosts, uint32_t(host)));
      hosts_[host].crowded = ranks > model.hosts[host].processors;
      hosts_[host].wake = model.per_wake * std::max(0.0, ranks / model.hosts[host].processors - 1);
    }
  }

  // The time at which the last step of all ranks is over; a time above `limit` as soon as it is known to be above.
  double run(double limit) {
    std::vector<uint32_t>
        first;  // issuing one lets others follow at once: those that wait for nothing are listed before
    for (uint32_t node = 0; node < pending_.size(); ++node)
      if (pending_[node] == 0) first.push_back(node);
    for (const uint32_t node : first) issue(node);
    double last = 0;
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      if (event.time > limit) return event.time;
      const double end = event.arrived ? work(event) : transfer_or_work(event);
      last = std::max(last, end);
    }
    return last;
  }

  // After run(), the seconds for which the busiest rank sent, or took in.
  double flow() const { return std::max(*std::ranges::max_element(sent_), *std::ranges::max_element(taken_)); }

  // After run(), how many messages without a gap came one after the other, each to a rank that had to have its turn.
  double turns() const { return turns_.empty() ? 0 : double(*std::ranges::max_element(turns_)); }

  // After run(), how often each rank waited: messages of one round come while it does.
  std::vector<double> waits() {
    std::vector<double> counts;
    for (std::vector<uint32_t>& rounds : waits_) {
      std::ranges::sort(rounds);
      counts.push_back(double(std::ranges::unique(rounds).begin() - rounds.begin()));
    }
    return counts;
  }

 private:
  struct StepTime {
    double start = 0, end = 0;
  };
  struct Event {
    double time;
    uint32_t node;
    bool arrived;       // the first bytes of a RECV_REDUCE are there, and wait for their reduction
    uint32_t place;     // in the lane: of equal times the earlier step goes first, so that no rank runs ahead
    double not_before;  // the last bytes of a RECV_REDUCE are there
    bool operator<(const Event& other) const {  // the first is on top of the queue
      return std::tie(time, place, node) > std::tie(other.time, other.place, other.node);
    }
  };
  void push(double time, uint32_t node, bool arrived, double not_before = 0) {
    events_.push({time, node, arrived, node - graph_.lanes()[graph_.nodes()[node].lane].base, not_before});
  }

  // Successors by happens-before, and the next step of the lane, which is issued later.
  void list_successors() {
    const auto& nodes = graph_.nodes();
    const auto for_each_edge = [&](auto&& visit) {
      for (uint32_t node = 0; node < nodes.size(); ++node) {
        graph_.for_each_predecessor(node, [&](uint32_t before) {
          if (before != nodes[node].partner) visit(before, node);
        });
        if (node > graph_.lanes()[nodes[node].lane].base) visit(node - 1, node, true);
      }
    };
    begin_.assign(nodes.size() + 1, 0);
    for_each_edge([&](uint32_t before, uint32_t node, bool = false) {
      ++begin_[before + 1];
      ++pending_[node];
    });
    for (size_t i = 0; i < nodes.size(); ++i) begin_[i + 1] += begin_[i];
    successors_.resize(begin_.back());
    std::vector<uint32_t> end(begin_.begin(), begin_.end() - 1);
    for_each_edge([&](uint32_t before, uint32_t node, bool issue_only = false) {
      successors_[end[before]++] = {node, issue_only};
    });
  }

  double bytes(uint32_t node) const {
    return bytes_of(graph_.nodes()[node].op(), graph_.layout(graph_.rank_of(node)), piece_bytes_);
  }
  bool is_dropped(uint32_t node) const { return graph_.nodes()[node].op().kind == TUTTI_STEP_NOP; }

  void release(uint32_t node, bool issued) {
    const double time = issued ? times_[node].start : times_[node].end;
    for (uint32_t i = begin_[node]; i < begin_[node + 1]; ++i) {
      const Successor& next = successors_[i];
      if (next.issue_only != issued) continue;
      times_[next.node].start = std::max(times_[next.node].start, time);
      if (--pending_[next.node] == 0) issue(next.node);
    }
  }

  void issue(uint32_t first) {
    // A stack of its own: lanes are long.
    ready_.push_back(first);
    if (ready_.size() > 1 || issuing_) return;
    issuing_ = true;
    while (!ready_.empty()) {
      const uint32_t node = ready_.back();
      ready_.pop_back();
      const uint32_t partner = graph_.nodes()[node].partner;
      const bool dropped = is_dropped(node);
      if (!dropped) times_[node].start += model_.per_step;
      if (partner == StepGraph::none) {
        push(times_[node].start, node, false);
      } else if (times_[partner].end == waiting) {
        push(std::max(times_[node].start, times_[partner].start), sends(graph_.nodes()[node].op()) ? node : partner,
             false);
      }
      times_[node].end = waiting;
      release(node, true);
    }
    issuing_ = false;
  }

  double transfer_or_work(const Event& event) {
    const StepGraph::Node& node = graph_.nodes()[event.node];
    if (is_dropped(event.node)) return finish(event.node, event.time);
    if (node.partner == StepGraph::none) return work(event);
    const uint32_t from = graph_.rank_of(event.node), to = node.op().peer;
    const LinkCost cost = model_.link(from, to);
    const double size = node.op().kind == TUTTI_STEP_SIGNAL ? 0 : bytes(event.node);
    const double begin = share_hosts(std::max({event.time, egress_[from], ingress_[to]}), from, to, size, cost);
    const double sent = begin + cost.gap + size * cost.per_byte;
    egress_[from] = ingress_[to] = sent;
    const double arrived = sent + cost.latency + wake(from, to, cost);
    sent_[from] += sent - begin;
    taken_[to] += sent - begin;
    finish(event.node, sent);
    if (graph_.nodes()[node.partner].op().kind != TUTTI_STEP_RECV_REDUCE) return finish(node.partner, arrived);
    push(begin + cost.latency, node.partner, true, arrived);
    return arrived;
  }

  // How long the rank to which a message comes waits for a processor.
  double wake(uint32_t from, uint32_t to, const LinkCost& cost) const {
    if (hosts_.empty() || cost.gap == 0) return 0;
    const std::vector<uint32_t>& hosts = graph_.problem().hosts;
    return hosts[from] == hosts[to] ? hosts_[hosts[to]].wake : 0;
  }

  // When a message may begin that could begin at `time`, by what its hosts have to do.
  double share_hosts(double time, uint32_t from, uint32_t to, double size, const LinkCost& cost) {
    if (hosts_.empty()) return time;
    const uint32_t a = graph_.problem().hosts[from], b = graph_.problem().hosts[to];
    const bool leaves = a != b, works = cost.gap > 0;
    if (leaves) time = std::max({time, hosts_[a].egress, hosts_[b].ingress});
    if (works) time = std::max({time, hosts_[a].processor, hosts_[b].processor});
    if (leaves) {
      hosts_[a].egress = time + size * model_.hosts[a].per_byte;
      hosts_[b].ingress = time + size * model_.hosts[b].per_byte;
    }
    for (const uint32_t host : {a, b})
      if (works)
        hosts_[host].processor = std::max(hosts_[host].processor, time) +
                                 (cost.gap + size * cost.processor_per_byte) / model_.hosts[host].processors;
    return time;
  }

  // Local work on the rank's processor.
  double work(const Event& event) {
    const uint32_t kind = graph_.nodes()[event.node].op().kind;
    const double operands = std::max<double>(2, double(graph_.nodes()[event.node].step->sources.size())) - 1;
    const double per_byte = kind == TUTTI_STEP_COPY ? model_.copy_per_byte : model_.reduce_per_byte * operands;
    double& processor = compute_[graph_.rank_of(event.node)];
    processor = std::max(processor, event.time) + bytes(event.node) * per_byte;
    return finish(event.node, std::max(processor, event.not_before));
  }

  double finish(uint32_t node, double time) {
    if (!round_.empty()) count_round(node);
    times_[node].end = time;
    release(node, false);
    return time;
  }

  void count_round(uint32_t node) {
    const uint32_t partner = graph_.nodes()[node].partner;
    bool receiving = false;
    graph_.for_each_predecessor(node, [&](uint32_t before) {
      round_[node] = std::max(round_[node], round_[before] + (before == partner));
      turns_[node] = std::max(turns_[node], turns_[before] + (before == partner && needs_turn(before, node)));
      receiving |= before == partner;
    });
    if (receiving && !is_dropped(node)) waits_[graph_.rank_of(node)].push_back(round_[node]);
  }

  bool needs_turn(uint32_t sends, uint32_t receives) const {
    if (hosts_.empty()) return false;
    const uint32_t from = graph_.rank_of(sends), to = graph_.rank_of(receives);
    const std::vector<uint32_t>& hosts = graph_.problem().hosts;
    return hosts[from] == hosts[to] && hosts_[hosts[to]].crowded && model_.link(from, to).gap == 0;
  }

  struct Successor {
    uint32_t node;
    bool issue_only;  // it waits for the issue, not for the end
  };
  static constexpr double waiting = -1;
  const StepGraph& graph_;
  const std::vector<double>& piece_bytes_;
  const CostModel& model_;
  std::vector<StepTime> times_;  // end: 0 before it is issued, `waiting` until it is over
  std::vector<uint32_t> pending_, begin_;
  std::vector<Successor> successors_;
  std::vector<double> egress_, ingress_;  // per rank: when it is free
  std::vector<double> sent_, taken_;      // the seconds that it has sent, and taken in
  std::vector<double> compute_;           // when its processor is free
  struct Host {
    double egress = 0, ingress = 0, processor = 0;
    double wake = 0;       // the seconds until a rank gets a processor that the others want
    bool crowded = false;  // it has more ranks than processors
  };
  std::vector<Host> hosts_;                   // the same; empty: they share nothing
  std::vector<uint32_t> round_;               // messages one after the other that came before a step is over
  std::vector<uint32_t> turns_;               // those of them that needed a turn
  std::vector<std::vector<uint32_t>> waits_;  // the rounds in which each rank received
  std::priority_queue<Event> events_;
  std::vector<uint32_t> ready_;
  bool issuing_ = false;
};

// Bytes of each piece in one of `slices` slices.
std::vector<double> bytes_of_pieces(const Schedule& schedule, uint64_t block_bytes, uint32_t element_bytes,
                                    uint64_t slices) {
  const std::vector<uint64_t> bounds = piece_bounds(schedule, block_bytes / std::max(element_bytes, 1u));
  std::vector<double> bytes;
  for (size_t i = 0; i + 1 < bounds.size(); ++i)
    bytes.push_back(double(bounds[i + 1] - bounds[i]) * element_bytes / double(slices));
  return bytes;
}

// The schedules without the data steps of empty extent, which are dropped before an operation runs (SEMANTICS A8). One
// that others depend on becomes a NOP. Where blocks are small most steps of some algorithms are empty.
std::vector<Schedule> without_empty_steps(const Problem& problem, const std::vector<Schedule>& schedules,
                                          const std::vector<double>& piece_bytes) {
  std::vector<Schedule> made;
  for (uint32_t rank = 0; rank < schedules.size(); ++rank) {
    const Schedule& all = schedules[rank];
    Schedule& fewer = made.emplace_back(Schedule{all.cuts, all.scratch, all.scratch_copies, all.flags, {}});
    const RankLayout layout(problem, all, rank, 1);
    std::vector<std::vector<bool>> awaited;
    for (const auto& lane : all.lanes) awaited.emplace_back(lane.size(), false);
    for (const auto& lane : all.lanes)
      for (const Step& step : lane)
        if (step.op.dependency_lane != TUTTI_NO_DEPENDENCY)
          awaited[step.op.dependency_lane][step.op.dependency_step] = true;
    std::vector<std::vector<uint32_t>> places;  // where a step comes to be
    for (size_t number = 0; number < all.lanes.size(); ++number) {
      auto& kept = fewer.lanes.emplace_back();
      auto& place = places.emplace_back();
      for (const Step& step : all.lanes[number]) {
        const bool empty = step.op.kind != TUTTI_STEP_SIGNAL && bytes_of(step.op, layout, piece_bytes) == 0;
        const bool stays = !empty || awaited[number][place.size()];
        place.push_back(uint32_t(kept.size()));
        if (!stays) continue;
        kept.push_back(empty ? Step{step.op, {}} : step);
        if (empty) kept.back().op.kind = TUTTI_STEP_NOP;
      }
    }
    for (auto& lane : fewer.lanes)
      for (Step& step : lane)
        if (step.op.dependency_lane != TUTTI_NO_DEPENDENCY)
          step.op.dependency_step = places[step.op.dependency_lane][step.op.dependency_step];
  }
  return made;
}

// The least time in which processors do the work of all ranks, and go from one that waits to another that does not.
// `waits`: how often each rank waits; empty: not known.
double least_time(const Problem& problem, const std::vector<double>& work, const std::vector<double>& waits,
                  const CostModel& model) {
  double busiest = *std::ranges::max_element(work);
  const size_t hosts = problem.hosts.empty() ? 0 : model.hosts.size();
  std::vector<double> of_host(hosts, 0), waits_of_host(hosts, 0), ranks_of_host(hosts, 0);
  for (uint32_t rank = 0; hosts > 0 && rank < work.size(); ++rank) {
    of_host[problem.hosts[rank]] += work[rank];
    if (!waits.empty()) waits_of_host[problem.hosts[rank]] += waits[rank];
    ranks_of_host[problem.hosts[rank]] += 1;
  }
  for (size_t host = 0; host < hosts; ++host) {
    const double processors = model.hosts[host].processors;
    const double switches = ranks_of_host[host] > processors ? waits_of_host[host] : 0;
    busiest = std::max(busiest, (of_host[host] + switches * model.per_switch) / processors);
  }
  return busiest;
}

// Does no rank wait, by way of others, for what depends on itself? Ranks to which nobody sends do not wait, and behind
// these those to which only they send.
bool has_no_circle(const std::vector<Schedule>& schedules) {
  const auto nranks = uint32_t(schedules.size());
  std::vector<std::vector<uint32_t>> receivers(nranks);
  std::vector<uint32_t> senders(nranks, 0);
  for (uint32_t rank = 0; rank < nranks; ++rank)
    for (const auto& lane : schedules[rank].lanes)
      for (const Step& step : lane) {
        if (!sends(step.op)) continue;
        receivers[rank].push_back(step.op.peer);
        ++senders[step.op.peer];
      }
  std::vector<uint32_t> free;
  for (uint32_t rank = 0; rank < nranks; ++rank)
    if (senders[rank] == 0) free.push_back(rank);
  for (size_t i = 0; i < free.size(); ++i)
    for (const uint32_t to : receivers[free[i]])
      if (--senders[to] == 0) free.push_back(to);
  return free.size() == nranks;
}

// Do all messages wait at their receivers?
bool is_buffered(const std::vector<Schedule>& schedules, const CostModel& model) {
  for (uint32_t rank = 0; rank < schedules.size(); ++rank)
    for (const auto& lane : schedules[rank].lanes)
      for (const Step& step : lane)
        if (sends(step.op) && model.link(rank, step.op.peer).gap == 0) return false;
  return true;
}

}  // namespace

double work_of_rank(const Problem& problem, uint32_t rank, const Schedule& schedule, uint64_t block_bytes,
                    uint32_t element_bytes, const CostModel& model) {
  const std::vector<double> piece_bytes = bytes_of_pieces(schedule, block_bytes, element_bytes, 1);
  const RankLayout layout(problem, schedule, rank, 1);
  std::vector<bool> is_peer(problem.nranks, false);
  double seconds = 0;
  for (const auto& lane : schedule.lanes)
    for (const Step& step : lane) {
      const double bytes = bytes_of(step.op, layout, piece_bytes);
      const double folds = std::max<double>(2, double(step.sources.size())) - 1;
      const bool moves =
          step.op.kind == TUTTI_STEP_SEND || step.op.kind == TUTTI_STEP_RECV || step.op.kind == TUTTI_STEP_RECV_REDUCE;
      const LinkCost link = moves || step.op.kind == TUTTI_STEP_SIGNAL ? model.link(rank, step.op.peer) : LinkCost();
      const double more = link.processor_per_byte;  // than a byte over memory
      seconds += bytes * (step.op.kind == TUTTI_STEP_SEND   ? std::max(model.send_per_byte, more)
                          : step.op.kind == TUTTI_STEP_RECV ? std::max(model.receive_per_byte, more)
                          : step.op.kind == TUTTI_STEP_COPY ? model.copy_per_byte
                                                            : model.reduce_per_byte * folds + more);
      if (step.op.kind != TUTTI_STEP_SIGNAL && !(moves && bytes > 0)) continue;
      seconds += std::max(model.per_message, link.gap);
      if (!is_peer[step.op.peer]) seconds += model.per_peer;
      is_peer[step.op.peer] = true;
    }
  return seconds;
}

double simulate(const Problem& problem, const std::vector<Schedule>& given, uint64_t block_bytes,
                uint32_t element_bytes, uint64_t slices, const CostModel& model, double limit) {
  if (given.empty()) return 0;
  constexpr double never = std::numeric_limits<double>::infinity();
  if (check_alike(given)) return never;
  const uint64_t count = std::max<uint64_t>(slices, 1);
  const std::vector<double> piece_bytes = bytes_of_pieces(given[0], block_bytes, element_bytes, count);
  const bool all_move = std::ranges::none_of(piece_bytes, [](double bytes) { return bytes == 0; });
  const std::vector<Schedule> fewer =
      all_move ? std::vector<Schedule>() : without_empty_steps(problem, given, piece_bytes);
  const std::vector<Schedule>& schedules = all_move ? given : fewer;
  std::vector<double> work;
  for (uint32_t rank = 0; rank < schedules.size(); ++rank)
    work.push_back(work_of_rank(problem, rank, schedules[rank], block_bytes, element_bytes, model));
  double busiest = least_time(problem, work, {}, model);
  if (busiest > limit) return busiest;
  const bool runs_ahead = has_no_circle(schedules);
  const double calls = runs_ahead && is_buffered(schedules, model) ? model.calls_in_a_row : 1;
  const double longest = limit * calls;  // of the way from the first step to the last one
  std::vector<double> waits;
  double flow = 0, turns = 0;
  const auto time_of = [&](uint32_t unrolled, double most) {
    StepGraph graph(problem, schedules, unrolled);
    if (graph.match()) return never;
    Simulation simulation(graph, piece_bytes, model);
    const double time = simulation.run(most);
    if (unrolled > 1) return time;
    waits = simulation.waits();
    turns = runs_ahead ? 0 : simulation.turns();
    flow = simulation.flow() * double(count);
    return time;
  };
  double way = time_of(1, longest);
  if (way > longest || way == never) return way;
  for (double& of_rank : waits) of_rank /= calls;
  busiest = least_time(problem, work, waits, model);
  if (busiest > limit) return busiest;
  if (const double more = double(count - 1); more > 0)
    way += more * (time_of(2, way + (longest - way) / more) - way);
  way = std::max(busiest, way + turns * model.per_turn);
  return (way + (calls - 1) * std::max(busiest, flow)) / calls;
}

}  // namespace tutti
