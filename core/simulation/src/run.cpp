// SPDX-License-Identifier: Apache-2.0
//
// The discrete events. A lane starts its steps as the host executor does (Execution::may_start). A message begins when
// both ends have started, and leaves when the sender's own link is free. Each further link works off the bytes of
// messages in the order in which they leave; the message is over when the slowest of its links is done with it, so
// links do not hold each other up. What a rank's processor does, it does in sequence: its ends of messages, reductions
// and copies.
#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <tutti/simulation.hpp>

#include "path.hpp"
#include "steps.hpp"

namespace tutti::simulation {
namespace {

constexpr uint32_t none = no_instance;

enum class Happens : uint8_t { leaves, sent, arrived, first_fragment, done };

struct Event {
  double time;
  uint32_t lane;  // of a message that leaves: its place among those that wait
  uint8_t slot;   // of the step: its position modulo lookahead
  Happens what;
  bool operator<(const Event& other) const {  // the first is on top of the queue; of equal times any fixed order
    if (time != other.time) return time > other.time;
    if (lane != other.lane) return lane > other.lane;
    return slot != other.slot ? slot > other.slot : what > other.what;
  }
};

struct LaneState {
  uint64_t base = 0;  // its first instance
  uint64_t head = 0, end = 0;
  // By slot. `first`: some of its bytes may be sent on.
  uint16_t started = 0, done = 0, matched = 0, first = 0;
};
static_assert(sizeof(LaneState) <= bytes_of_a_lane);

constexpr uint16_t bit(uint64_t position) { return uint16_t(1u << (position % lookahead)); }

class Simulation {
 public:
  Simulation(const Schedules& schedules, const Network& network, const Processor& processor)
      : schedules_(schedules),
        network_(network),
        processor_(processor),
        steps_(schedules.steps().data()),
        lanes_(schedules.lanes().size()),
        processor_free_(schedules.problem().nranks, 0),
        link_free_(network.links(), 0) {
    result_.link_bytes.assign(network.links(), 0);
    result_.rank_seconds.assign(schedules.problem().nranks, 0);
    uint64_t base = 0;
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
      lanes_[lane].base = base;
      base += lanes_[lane].end = schedules.lanes()[lane].length * schedules.slices();
    }
    instances_.ends.assign(base, 0);
    instances_.causes.assign(base, none);
    instances_.slowest.assign(base, Result::no_class);
  }

  void run() {
    for (uint32_t lane = 0; lane < lanes_.size(); ++lane) dirty_.push_back({lane, none});
    std::reverse(dirty_.begin(), dirty_.end());
    settle();
    while (!events_.empty() && result_.error.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      happen(event);
      settle();
    }
    if (result_.error.empty()) result_.error = unfinished();
    result_.steps = instances_.ends.size();
  }
  Result& result() { return result_; }
  const Instances& instances() const { return instances_; }
  uint32_t last() const { return last_; }
  uint64_t base(uint32_t lane) const { return lanes_[lane].base; }

  // Remembers the other end of each message.
  void keep_partners() { instances_.partners.assign(instances_.ends.size(), none); }

 private:
  struct Dirty {
    uint32_t lane, cause;
  };
  // The two ends of a message: lanes and positions.
  struct Meeting {
    uint32_t from, to;
    uint64_t sent, received;
  };

  const CompactStep& step(uint32_t lane, uint64_t position) const {
    const LaneOfRank& of = schedules_.lanes()[lane];
    return steps_[of.first + (schedules_.slices() == 1 ? position : position % of.length)];
  }
  uint64_t bytes(uint32_t lane, uint64_t position, const CompactStep& step) const {
    const uint64_t all = schedules_.sizes()[step.size], slices = schedules_.slices();
    if (slices == 1) return all;
    const uint64_t slice = position / schedules_.lanes()[lane].length;
    return slice_begin(all, slice + 1, slices) - slice_begin(all, slice, slices);
  }
  uint32_t rank(uint32_t lane) const { return schedules_.lanes()[lane].rank; }
  uint32_t instance(uint32_t lane, uint64_t position) const { return uint32_t(lanes_[lane].base + position); }
  uint64_t position_of(const Event& event) const {
    const uint64_t head = lanes_[event.lane].head;
    return head + ((event.slot - head) & (lookahead - 1));
  }
  void push(double time, uint32_t lane, uint64_t position, Happens what) {
    events_.push({time, lane, uint8_t(position % lookahead), what});
  }

  void settle() {
    while (!dirty_.empty()) {
      const Dirty next = dirty_.back();
      dirty_.pop_back();
      const uint64_t most = std::min(lanes_[next.lane].head + lookahead, lanes_[next.lane].end);
      for (uint64_t position = lanes_[next.lane].head; position < most; ++position)
        if (!(lanes_[next.lane].started & bit(position)) && may_start(next.lane, position))
          start(next.lane, position, next.cause);
    }
    begin_messages();
  }

  // Messages that can begin now begin in the order of their senders' lanes, whichever end was late.
  void begin_messages() {
    std::ranges::sort(meetings_, [](const Meeting& a, const Meeting& b) {
      return a.from != b.from ? a.from < b.from : a.sent < b.sent;
    });
    for (const Meeting& meeting : meetings_) begin(meeting);
    meetings_.clear();
  }

  bool completed(uint32_t lane, uint64_t position) const {
    const LaneState& state = lanes_[lane];
    return position < state.head || (position < state.head + lookahead && (state.done & bit(position)));
  }

  bool may_start(uint32_t lane, uint64_t position) const {
    const LaneState& state = lanes_[lane];
    if (position < state.head) return false;  // done since this look began
    const CompactStep& step = this->step(lane, position);
    if (step.conflict && step.conflict <= position && state.head <= position - step.conflict) return false;
    if (step.way && step.way <= position && position - step.way >= state.head &&
        !(state.started & bit(position - step.way)))
      return false;
    if ((step.flags & is_forwarded) && !completed(lane, position - 1) && !(state.first & bit(position - 1)))
      return false;
    if (!step.dependency) return true;
    const uint32_t other = schedules_.first_lane()[rank(lane)] + ((step.dependency - 1) >> dependency_step_bits);
    const uint64_t slice = schedules_.slices() == 1 ? 0 : position / schedules_.lanes()[lane].length;
    const uint64_t before = slice * schedules_.lanes()[other].length + ((step.dependency - 1) & dependency_step_mask);
    return completed(other, before);
  }
  static constexpr uint32_t dependency_step_mask = (1u << dependency_step_bits) - 1;

  void start(uint32_t lane, uint64_t position, uint32_t cause) {
    const CompactStep& step = this->step(lane, position);
    const uint32_t id = instance(lane, position);
    lanes_[lane].started |= bit(position);
    instances_.causes[id] = cause;
    instances_.ends[id] = now_;  // until it ends: when it started
    if (step.flags & is_empty) return complete(lane, position);
    if (!(step.flags & (does_send | does_receive))) {
      double& processor = processor_free_[rank(lane)];
      processor = std::max(processor, now_) + work_of(processor_, step, bytes(lane, position, step));
      return push(processor, lane, position, Happens::done);
    }
    meet(lane, position, step);
  }

  // Looks for the other end of a message among what the peer has in flight.
  void meet(uint32_t lane, uint64_t position, const CompactStep& own) {
    const uint32_t me = rank(lane), first = schedules_.first_lane()[own.peer];
    const uint32_t other = first + lane - schedules_.first_lane()[me];
    if (other >= schedules_.first_lane()[own.peer + 1]) return;
    const LaneState& state = lanes_[other];
    const auto waiting = uint16_t(state.started & ~state.matched);
    const uint64_t most = std::min(state.head + lookahead, state.end);
    for (uint64_t there = state.head; waiting && there < most; ++there) {
      if (!(waiting & bit(there))) continue;
      const CompactStep& partner = step(other, there);
      if (partner.peer != me || !(partner.flags & (own.flags & does_send ? does_receive : does_send))) continue;
      lanes_[lane].matched |= bit(position);
      lanes_[other].matched |= bit(there);
      meetings_.push_back(own.flags & does_send ? Meeting{lane, other, position, there}
                                                : Meeting{other, lane, there, position});
      return;
    }
  }

  void begin(const Meeting& meeting) {
    const auto& [from, to, sent, received] = meeting;
    const CompactStep &send = step(from, sent), &receive = step(to, received);
    const uint32_t sender = instance(from, sent), receiver = instance(to, received);
    const uint64_t size = bytes(from, sent, send);
    if ((send.kind == TUTTI_STEP_SIGNAL) != (receive.kind == TUTTI_STEP_SIGNAL) || size != bytes(to, received, receive))
      return fail(fmt::format("{} meets {}, and they differ in kind or size", where(from, sent), where(to, received)));
    // The later one of the two is why the message begins now.
    if (instances_.ends[receiver] > instances_.ends[sender]) instances_.causes[sender] = instances_.causes[receiver];
    instances_.causes[receiver] = sender;
    if (!instances_.partners.empty()) instances_.partners[sender] = receiver, instances_.partners[receiver] = sender;
    ++result_.messages;
    result_.bytes += size;

    double begin = now_;
    if (processor_.message > 0) {
      double& processor = processor_free_[rank(from)];
      begin = processor = std::max(processor, now_) + processor_.message;
    }
    // The first link is the sender's own: its messages leave one after the other.
    network_.route(rank(from), rank(to), &route_);
    if (route_.hops) {
      double& free = link_free_[route_.link[0]];
      begin = std::max(begin, free);
      free = begin + double(size) * network_.classes()[route_.link_class[0]].per_byte;
    }
    if (begin <= now_) return leave(meeting);
    if (vacant_.empty()) {
      vacant_.push_back(uint32_t(waiting_.size()));
      waiting_.emplace_back();
    }
    waiting_[vacant_.back()] = meeting;
    events_.push({begin, vacant_.back(), 0, Happens::leaves});
    vacant_.pop_back();
  }

  // A message leaves its sender now.
  void leave(const Meeting& meeting) {
    const auto& [from, to, sent, received] = meeting;
    const CompactStep &send = step(from, sent), &receive = step(to, received);
    const uint32_t sender = instance(from, sent), receiver = instance(to, received);
    const uint64_t size = bytes(from, sent, send);
    network_.route(rank(from), rank(to), &route_);
    const double begin = now_;
    double end = begin;
    for (uint32_t hop = 0; hop < route_.hops; ++hop) {
      double& free = link_free_[route_.link[hop]];
      const double needs = double(size) * network_.classes()[route_.link_class[hop]].per_byte;
      if (hop > 0) free = std::max(free, begin) + needs;
      const double over = hop > 0 ? free : begin + needs;
      if (over > end || hop == 0) instances_.slowest[sender] = route_.link_class[hop];
      end = std::max(end, over);
      result_.link_bytes[route_.link[hop]] += size;
    }
    const uint64_t fragment = processor_.fragment && processor_.fragment < size ? processor_.fragment : size;
    if ((send.flags & is_forwarded) && !completed(from, sent - 1))  // the last fragment follows what is received
      end = std::max(end, instances_.ends[instance(from, sent - 1)] + double(fragment) * route_.per_byte);
    instances_.ends[receiver] = end + route_.latency;
    push(end, from, sent, Happens::sent);
    if (fragment < size && (receive.kind == TUTTI_STEP_RECV_REDUCE || (receive.flags & does_forward)))
      push(begin + route_.latency + (end - begin) * double(fragment) / double(size), to, received,
           Happens::first_fragment);
    else
      push(end + route_.latency, to, received, Happens::arrived);
  }

  void happen(const Event& event) {
    if (event.what == Happens::leaves) {
      vacant_.push_back(event.lane);
      return leave(waiting_[event.lane]);
    }
    const uint64_t position = position_of(event);
    const CompactStep& step = this->step(event.lane, position);
    const uint32_t id = instance(event.lane, position);
    if (event.what == Happens::sent || event.what == Happens::done) return complete(event.lane, position);
    double& processor = processor_free_[rank(event.lane)];
    const uint64_t size = bytes(event.lane, position, step);
    const double work = step.kind == TUTTI_STEP_RECV_REDUCE ? double(size) * processor_.reduce_per_byte : 0;
    if (event.what == Happens::arrived) {
      if (processor_.message + work == 0) return complete(event.lane, position);
      processor = std::max(processor, now_) + processor_.message + work;
      return push(processor, event.lane, position, Happens::done);
    }
    double end = instances_.ends[id];  // when all of it has come
    if (processor_.message + work > 0) {
      processor = std::max(processor, now_) + processor_.message + work;
      end = std::max(processor, end + work * double(processor_.fragment) / double(size));
    }
    instances_.ends[id] = end;
    lanes_[event.lane].first |= bit(position);
    push(end, event.lane, position, Happens::done);
    dirty_.push_back({event.lane, id});
  }

  void complete(uint32_t lane, uint64_t position) {
    LaneState& state = lanes_[lane];
    const uint32_t id = instance(lane, position);
    instances_.ends[id] = now_;
    state.done |= bit(position);
    while (state.head < state.end && (state.done & bit(state.head))) {
      const auto clear = uint16_t(~bit(state.head));
      state.done &= clear;
      state.started &= clear;
      state.matched &= clear;
      state.first &= clear;
      ++state.head;
    }
    const uint32_t of = rank(lane);
    result_.rank_seconds[of] = std::max(result_.rank_seconds[of], now_);
    if (now_ > result_.seconds || last_ == none) last_ = id;
    result_.seconds = std::max(result_.seconds, now_);
    if (schedules_.has_dependencies(of))
      for (uint32_t other = schedules_.first_lane()[of]; other < schedules_.first_lane()[of + 1]; ++other)
        if (other != lane) dirty_.push_back({other, id});
    if (state.head < state.end) dirty_.push_back({lane, id});
  }

  std::string where(uint32_t lane, uint64_t position) const {
    const LaneOfRank& of = schedules_.lanes()[lane];
    return fmt::format("rank {} lane {} step {} ({})", of.rank, lane - schedules_.first_lane()[of.rank],
                       position % of.length, step_name(step(lane, position).kind));
  }
  void fail(std::string text) {
    if (result_.error.empty()) result_.error = std::move(text);
  }
  std::string unfinished() const {
    for (uint32_t lane = 0; lane < lanes_.size(); ++lane)
      if (lanes_[lane].head < lanes_[lane].end)
        return fmt::format("{} never ends: its rank and others wait for each other, or nothing meets its message",
                           where(lane, lanes_[lane].head));
    return {};
  }

  const Schedules& schedules_;
  const Network& network_;
  const Processor& processor_;
  const CompactStep* steps_;
  std::vector<LaneState> lanes_;
  std::vector<double> processor_free_;  // by rank
  std::vector<double> link_free_;
  Instances instances_;
  std::priority_queue<Event> events_;
  std::vector<Dirty> dirty_;
  std::vector<Meeting> meetings_;  // that begin now
  std::vector<Meeting> waiting_;   // for their sender's processor or link
  std::vector<uint32_t> vacant_;   // places in waiting_
  Route route_;
  Result result_;
  double now_ = 0;
  uint32_t last_ = none;
};

}  // namespace

Result run(const Schedules& schedules, const Network& network, const Processor& processor, StepTimes* times) {
  Simulation simulation(schedules, network, processor);
  if (times) simulation.keep_partners();
  simulation.run();
  Result result = std::move(simulation.result());
  if (!result.error.empty()) return result;
  result.path = critical_path(schedules, network, processor, simulation.instances(), simulation.last());
  if (times) *times = times_of(schedules, simulation.instances());
  return result;
}

}  // namespace tutti::simulation
