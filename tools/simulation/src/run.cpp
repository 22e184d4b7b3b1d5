// SPDX-License-Identifier: Apache-2.0
//
// The discrete events. A lane starts its steps as the host executor does (Execution::may_start). A message begins when
// both ends have started, and leaves when the sender's own link is free. Each further link works off the bytes of
// messages in the order in which they leave; the message is over when the slowest of its links is done with it, so
// links do not hold each other up. A rank's processor does one thing after another: its ends of messages, reductions
// and copies.
#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "path.hpp"
#include "shared_link.hpp"
#include "simulation/simulation.hpp"
#include "steps.hpp"

namespace tutti::simulation {
namespace {

constexpr uint32_t none = no_instance;

enum class Happens : uint8_t { leaves, passed, sent, arrived, first_fragment, done };

struct Event {
  double time;
  uint32_t lane;  // leaves, sent: the flight; passed: the link
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
        link_free_(network.links(), 0),
        links_(network.links()) {
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
  // A message that has begun.
  struct Flight {
    Meeting meeting;
    double own_link;  // when the sender's own link is done with it
    uint32_t links;   // how many of the others are not
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
    const uint32_t flight = new_flight(meeting);
    if (begin > now_) return events_.push({begin, flight, 0, Happens::leaves});
    leave(flight);
  }

  uint32_t new_flight(const Meeting& meeting) {
    if (vacant_.empty()) {
      vacant_.push_back(uint32_t(flights_.size()));
      flights_.emplace_back();
    }
    const uint32_t flight = vacant_.back();
    vacant_.pop_back();
    flights_[flight] = {meeting, 0, 0};
    return flight;
  }

  // A message leaves its sender now.
  void leave(uint32_t flight) {
    const auto& [from, to, sent, received] = flights_[flight].meeting;
    const CompactStep &send = step(from, sent), &receive = step(to, received);
    const uint64_t size = bytes(from, sent, send);
    network_.route(rank(from), rank(to), &route_);
    for (uint32_t hop = 0; hop < route_.hops; ++hop) {
      const uint32_t link = route_.link[hop];
      const double per_byte = network_.classes()[route_.link_class[hop]].per_byte;
      result_.link_bytes[link] += size;
      if (hop == 0) {
        instances_.slowest[instance(from, sent)] = route_.link_class[0];
        flights_[flight].own_link = now_ + double(size) * per_byte;
      } else if (size > 0) {
        ++flights_[flight].links;
        events_.push(
            {links_[link].join(now_, flight, double(size), per_byte), link, route_.link_class[hop], Happens::passed});
      }
    }
    const uint64_t fragment = fragment_of(size);
    if (fragment < size && (receive.kind == TUTTI_STEP_RECV_REDUCE || (receive.flags & does_forward)))
      push(now_ + route_.latency + double(fragment) * route_.per_byte, to, received, Happens::first_fragment);
    if (flights_[flight].links == 0)
      events_.push({std::max(now_, flights_[flight].own_link), flight, 0, Happens::sent});
  }
  uint64_t fragment_of(uint64_t size) const {
    return processor_.fragment && processor_.fragment < size ? processor_.fragment : size;
  }

  // Messages are over at a shared link.
  void pass(uint32_t link, uint8_t link_class) {
    const auto over = [&](uint32_t flight) {
      Flight& of = flights_[flight];
      if (--of.links > 0) return;
      if (of.own_link > now_) return events_.push({of.own_link, flight, 0, Happens::sent});
      if (of.own_link < now_) instances_.slowest[instance(of.meeting.from, of.meeting.sent)] = link_class;
      send_over(flight);
    };
    const double next = links_[link].depart(now_, network_.classes()[link_class].per_byte, over);
    if (next >= 0) events_.push({next, link, link_class, Happens::passed});
  }

  // The last byte of a message has left. A message that is sent on as it comes ends a fragment after its receive.
  void send_over(uint32_t flight) {
    const auto [from, to, sent, received] = flights_[flight].meeting;
    const CompactStep& send = step(from, sent);
    if ((send.flags & is_forwarded) && !completed(from, sent - 1)) {
      held_[instance(from, sent - 1)] = flight;
      return;
    }
    network_.route(rank(from), rank(to), &route_);
    vacant_.push_back(flight);
    push(now_ + route_.latency, to, received, Happens::arrived);
    complete(from, sent);
  }
  void release_held(uint32_t received) {
    const auto held = held_.find(received);
    if (held == held_.end()) return;
    const uint32_t flight = held->second;
    const auto& [from, to, sent, position] = flights_[flight].meeting;
    network_.route(rank(from), rank(to), &route_);
    const uint64_t fragment = fragment_of(bytes(from, sent, step(from, sent)));
    events_.push({now_ + double(fragment) * route_.per_byte, flight, 0, Happens::sent});
    held_.erase(held);
  }

  void happen(const Event& event) {
    switch (event.what) {
      case Happens::leaves:
        return leave(event.lane);
      case Happens::sent:
        return send_over(event.lane);
      case Happens::passed:
        return links_[event.lane].is_next(event.time) ? pass(event.lane, event.slot) : void();
      case Happens::done:
        return complete(event.lane, position_of(event));
      default:
        return receive(event.lane, position_of(event), event.what == Happens::first_fragment);
    }
  }

  // The first fragment of a message is there, or all of it.
  void receive(uint32_t lane, uint64_t position, bool first) {
    const CompactStep& step = this->step(lane, position);
    const uint32_t id = instance(lane, position);
    double& processor = processor_free_[rank(lane)];
    const uint64_t size = bytes(lane, position, step);
    const double work = step.kind == TUTTI_STEP_RECV_REDUCE ? double(size) * processor_.reduce_per_byte : 0;
    const bool began = (lanes_[lane].first & bit(position)) != 0;
    if (!began && processor_.message + work > 0) processor = std::max(processor, now_) + processor_.message + work;
    if (first) {
      instances_.ends[id] = processor_.message + work > 0 ? processor : now_;  // not before this
      lanes_[lane].first |= bit(position);
      return dirty_.push_back({lane, id});
    }
    double end = processor_.message + work > 0 ? processor : now_;
    if (began) end = std::max(instances_.ends[id], now_ + work * double(fragment_of(size)) / double(size));
    if (end <= now_) return complete(lane, position);
    push(end, lane, position, Happens::done);
  }

  void complete(uint32_t lane, uint64_t position) {
    LaneState& state = lanes_[lane];
    const uint32_t id = instance(lane, position);
    instances_.ends[id] = now_;
    state.done |= bit(position);
    if (!held_.empty()) release_held(id);
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
  std::vector<Flight> flights_;
  std::vector<uint32_t> vacant_;                 // of flights_
  std::unordered_map<uint32_t, uint32_t> held_;  // flights that wait for the end of this instance
  std::vector<SharedLink> links_;
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
