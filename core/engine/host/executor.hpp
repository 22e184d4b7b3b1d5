// SPDX-License-Identifier: Apache-2.0
//
// The host executor: carries out a plan in one window of the communicator's lanes. It never blocks: advance() does what
// can be done now. It allocates only when a window meets a larger plan than ever before.
//
// Each lane keeps up to `lookahead` consecutive steps in flight. A step starts when its dependency has completed, every
// step that it conflicts with has completed, and every earlier message on the same way has been handed over. A SEND
// that follows the receive of the same bytes sends them as they arrive, and where the outgoing transport can be viewed
// the reduction writes its result to both places in one pass.
#pragma once

#include <tutti/flight_record.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/failure.hpp"
#include "engine/fabric/link.hpp"
#include "engine/fabric/window.hpp"
#include "engine/plan/plan.hpp"
#include "record/trace.hpp"

namespace tutti::core {

constexpr uint32_t lookahead = 16;
static_assert((lookahead & (lookahead - 1)) == 0);

// A step of one slice in flight.
struct Active {
  const BoundStep* step = nullptr;
  uint64_t slice = 0;
  uint64_t bytes = 0;
  std::byte* dst = nullptr;  // of a run in slices: see Execution::stretch_at
  const std::byte* src = nullptr;
  std::vector<uint64_t> ends;  // of a run in slices: where each chunk's bytes end in those of the step; else empty
  bool started = false;
  bool done = false;
  uint64_t begin_ticks = 0;  // of a trace
  // For a posted RECV_REDUCE: fragments requested and reduced, and bytes reduced.
  uint64_t asked = 0, folded = 0, reduced = 0;
  Inflow in;
  Outflow out;
};

// A message has come that this rank's call does not expect: one of another call, or of another size.
struct MessageDiffers : Failure {
  MessageDiffers(std::string text_, uint32_t from, bool of_this_call)
      : Failure(TUTTI_MISMATCH, std::move(text_)), peer(from), same_call(of_this_call) {}
  uint32_t peer;
  bool same_call;  // its mark says so: the ranks have made the same calls
};

// Bytes that a posted RECV_REDUCE lands in before it is reduced: a ring of fragments, one set for each step in flight.
class Staging {
 public:
  static constexpr uint32_t depth = 4;
  std::byte* at(const Link& link, uint32_t slot, uint64_t number);
  // Another rank may still read the rings.
  void set_lent() {
    for (Ring& ring : rings_) ring.registrable.get_deleter().lent = true;
  }

 private:
  struct RingDeleter {
    RingDeleter() : lent(false) {}
    bool lent;
    void operator()(std::byte* ring) const;
  };
  struct Ring {
    uint64_t bytes = 0;
    std::unique_ptr<std::byte[]> ordinary;
    std::unique_ptr<std::byte, RingDeleter> registrable;  // of Scratch: for transports that register
  };
  std::array<Ring, lookahead> rings_;
};

struct LaneRun {
  uint64_t head = 0;  // steps before this one have completed
  uint64_t tail = 0;  // steps before this one are in flight or completed
  uint64_t end = 0;
  uint64_t next_slice = 0;  // of step `tail`
  uint32_t next_step = 0;
  std::array<Active, lookahead> active;
  Staging staging;
  Active& at(uint64_t position) { return active[position & (lookahead - 1)]; }
};

// One launch of a plan, in one window.
class Execution {
 public:
  Execution() = default;
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;
  ~Execution();

  // The window's first transport lane. Once.
  void init(uint32_t first_lane) { first_lane_ = first_lane; }
  // The trace of the launches from the next one on; nullptr: none.
  void record_into(Trace* trace, uint64_t sequence) {
    trace_ = trace;
    sequence_ = sequence;
  }
  // Begins a launch; the previous one has ended and nothing of it is pending.
  // `mark`: of the call's messages. `windows`: what the communicator's ranks have registered. `factor`: of a
  // premul_sum; where its plan is in place `in` may lie apart from `out`.
  void launch(const Plan& plan, uint32_t mark, const void* in, void* out, size_t ports, Moves moves,
              const WindowList& windows, const Factor& factor = {});
  // The same for a plan in its brief form, of which no step is traced.
  void launch_brief(const Plan& plan, uint32_t mark, const void* in, void* out);
  // Carries out what can be carried out now; true: complete. Throws Failure when a transfer failed.
  bool advance();
  // The communicator is broken, and its native groups have been told: ends what a plugin carries out.
  void abandon();
  // Anything moved since the last call? Two readers: deadlines, and how a wait passes its time.
  bool take_progress() { return std::exchange(progressed_, false); }
  bool take_moved() { return std::exchange(moved_, false); }
  // A launch in the brief form that waits: only for ranks that may run while this one polls (Link::is_beyond)?
  bool waits_beyond() const;
  // Has memory been sent by reference that the receiver has not given back?
  bool lent() const;
  // Its position, in words: "step 3 of lane 0, slice 2 of 8: recv_reduce from rank 1".
  std::string where() const;
  // The same for the flight recorder: what each incomplete lane waits for. Returns how many of `to` it has filled.
  size_t waits(uint64_t sequence, std::span<tutti_flight_wait> to) const;
  // The same for a trace, of the first such lane.
  tutti_trace_step waited_for(uint64_t sequence) const;

 private:
  struct BufferBase {
    std::byte* base = nullptr;
    bool registered = false;
  };
  // Memory that holds a step's bytes from `begin` on, up to `end`.
  struct StepMemory {
    uint64_t begin = 0, end = UINT64_MAX;
    std::byte* dst = nullptr;
    const std::byte* src = nullptr;
  };
  bool advance_lane(size_t lane, LaneRun& run);
  tutti_trace_step trace_step(const Active& active, size_t lane) const;
  tutti_trace_step trace_step(const BoundStep& step, size_t lane, uint64_t slice, uint64_t bytes) const;
  tutti_flight_wait wait_of(uint64_t sequence, const BoundStep& step, size_t lane, uint64_t slice, uint64_t bytes,
                            uint64_t done) const;
  std::string step_text(const BoundStep& step, size_t lane, uint64_t slice) const;
  void record(const Active& active, size_t lane);
  void admit(const std::vector<BoundStep>& steps, LaneRun& run);
  bool may_start(const BoundStep& step, uint64_t position, uint64_t slice, LaneRun& run);
  void start_if_ready(uint64_t position, size_t lane, LaneRun& run);
  void start(Active& active, size_t lane);
  void find_bytes(Active& active) const;
  StepMemory memory_at(const Active& active, uint64_t offset) const;
  bool completed(size_t lane, uint64_t position);
  void move(Active& active, uint64_t position, LaneRun& run);
  void receive(Active& active, Active* next, uint64_t position, LaneRun& run);
  void receive_plainly(Active& active);
  void reduce_arrivals(Active& active, Active* next, uint64_t position, LaneRun& run);
  void finish_fragment(Active& active, Active* next, const std::byte* fragment, uint64_t at);
  void send(Active& active, const Active* previous);
  void reduce_locally(const Active& active, uint32_t part);
  std::byte* address(const Operand& operand, uint64_t slice, uint64_t* bytes) const;
  RegisteredSpan registered_span(const Operand& operand, const std::byte* address, const Link& link) const;
  void find_registrations(size_t ports, const WindowList& windows);
  template <typename Body>
  void for_each_block(uint32_t buffer, Body&& body) const;
  void encode(const void* in);
  void decode() const;
  void keep_sum(const Reduction& codes) const;
  const void* multiplied(const void* in, void* out, const Factor& factor);
  void note_progress() { progressed_ = moved_ = true; }
  [[noreturn]] void fail(const BoundStep& step, const Link& link, tutti_status status, bool incoming,
                         bool foreign) const;
  void take_scratch(uint64_t bytes);

  // A lane in the brief form.
  struct BriefLane {
    uint32_t begin = 0, at = 0;  // its first step, and the first that is not done
    uint32_t done = 0;           // bit i: step `begin + i` is done, whether `at` has passed it or not
    bool has_done(uint32_t number) const { return number == 0 || (done >> (number - 1) & 1); }  // counted from 1
  };
  static_assert(BriefPlan::most_steps <= 32);
  std::byte* at(const BriefPlace& place) const { return buffers_[place.buffer].base + place.offset; }
  bool advance_brief();
  void overtake(BriefLane& run, uint32_t lane);
  bool carry_out(const BriefStep& step, uint32_t lane);
  bool send_brief(const BriefStep& step, uint32_t lane);
  bool receive_brief(const BriefStep& step, uint32_t lane);
  void reduce_brief(const BriefStep& step);
  const BriefStep* waiting_brief(size_t& lane) const;

  const Plan* plan_ = nullptr;
  const BriefPlan* brief_ = nullptr;  // of plan_; nullptr: the launch is not brief
  Trace* trace_ = nullptr;
  uint64_t sequence_ = 0;                     // for it
  tutti_native_operation* native_ = nullptr;  // under way
  uint32_t mark_ = 0;
  uint32_t first_lane_ = 0;
  size_t lanes_ = 0;
  bool progressed_ = false;
  bool moved_ = false;
  Moves moves_;
  std::array<BriefLane, BriefPlan::most_lanes> brief_lanes_;
  std::array<BufferBase, 4> buffers_;                       // by TUTTI_BUFFER_*
  std::vector<std::array<Registration, 4>> registrations_;  // by port, then buffer
  std::vector<std::unique_ptr<LaneRun>> runs_;
  std::byte* scratch_ = nullptr;
  uint64_t scratch_capacity_ = 0;
  bool scratch_lent_ = false;  // for ever
  void* result_ = nullptr;     // of a wire format: OUT, for the numbers
  std::vector<std::byte> contribution_;  // of a premul_sum, where it cannot lie in OUT
  std::vector<const void*> sources_;     // of the step that is reduced
};

}  // namespace tutti::core
