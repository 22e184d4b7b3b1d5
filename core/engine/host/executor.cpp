// SPDX-License-Identifier: Apache-2.0
#include "engine/host/executor.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "base/failure.hpp"
#include "engine/fabric/scratch.hpp"
#include "kernels/codec.hpp"

namespace tutti::core {
namespace {

// Calls below this are never sent by reference: looking the memory up would cost more than it saves.
constexpr uint64_t registered_call_bytes = 8192;

}  // namespace

// A ring only grows when its slot's step begins: nothing of an earlier step is under way in it then.
std::byte* Staging::at(const Link& link, uint32_t slot, uint64_t number) {
  const uint64_t bytes = link.fragment * depth;
  if (Ring& ring = rings_[slot]; bytes > ring.bytes) {
    ring = Ring();
    if (TUTTI_HAS(tutti_transport, link.port->api, register_memory))
      ring.registrable.reset(Scratch::process().take(bytes));
    else
      ring.ordinary = std::make_unique_for_overwrite<std::byte[]>(bytes);
    ring.bytes = bytes;
  }
  std::byte* base = rings_[slot].registrable ? rings_[slot].registrable.get() : rings_[slot].ordinary.get();
  return base + number % depth * link.fragment;
}

void Staging::RingDeleter::operator()(std::byte* ring) const { Scratch::process().give_back(ring, lent); }

Execution::~Execution() {
  if (scratch_) Scratch::process().give_back(scratch_, scratch_lent_);
}

// This rank's contribution to a premul_sum: in OUT, where the sum will be, or in memory of its own.
const void* Execution::multiplied(const void* in, void* out, const Factor& factor) {
  const Plan& plan = *plan_;
  if (plan.in_bytes == 0) return in;
  if (!plan.shape.in_place) contribution_.resize(plan.in_bytes);
  auto* const to = plan.shape.in_place ? static_cast<std::byte*>(out) : contribution_.data();
  const auto part = [&](uint64_t first, uint64_t count) {
    const uint64_t offset = first * plan.element_bytes;
    multiply(to + offset, static_cast<const std::byte*>(in) + offset, count, plan.shape.dtype, factor);
  };
  const BlockList& blocks = plan.unequal.table.in;
  for (size_t b = 0; b < blocks.counts.size(); ++b) part(blocks.begins[b], blocks.counts[b]);
  if (blocks.counts.empty()) part(0, plan.in_bytes / plan.element_bytes);
  return to;
}

// Calls body(first number, first unit, numbers) for each block of IN or OUT.
template <typename Body>
void Execution::for_each_block(uint32_t buffer, Body&& body) const {
  const Plan& plan = *plan_;
  const bool is_in = buffer == TUTTI_BUFFER_IN;
  const BlockTable &table = plan.unequal.table, &units = plan.unequal.units;
  const BlockList &numbers = is_in ? table.in : table.out, &coded = is_in ? units.in : units.out;
  for (size_t b = 0; b < numbers.counts.size(); ++b) body(numbers.begins[b], coded.begins[b], numbers.counts[b]);
  if (!numbers.counts.empty()) return;
  const uint64_t all = (is_in ? plan.in_bytes : plan.out_bytes) / sizeof(float), count = plan.shape.count;
  for (uint64_t at = 0, unit = 0; at < all; at += count, unit += plan.shape.units()) body(at, unit, count);
}

// The contribution, as it travels.
void Execution::encode(const void* in) {
  const Codec codec(plan_->shape.wire);
  std::byte* const codes = scratch_ + plan_->codes.in;
  for_each_block(TUTTI_BUFFER_IN, [&](uint64_t first, uint64_t unit, uint64_t count) {
    codec.encode({static_cast<const float*>(in) + first, count}, codes + unit * plan_->element_bytes);
  });
}

// The result, as all ranks have it.
void Execution::decode() const {
  const Codec codec(plan_->shape.wire);
  const std::byte* const codes = scratch_ + plan_->codes.out;
  for_each_block(TUTTI_BUFFER_OUT, [&](uint64_t first, uint64_t unit, uint64_t count) {
    codec.decode(codes + unit * plan_->element_bytes, {static_cast<float*>(result_) + first, count});
  });
}

void Execution::launch(const Plan& plan, uint32_t mark, const void* in, void* out, size_t ports, Moves moves,
                       const WindowList& windows, const Factor& factor) {
  plan_ = &plan;
  brief_ = nullptr;
  mark_ = mark;
  moves_ = moves;
  lanes_ = 0;  // until all is there: what follows may lack memory
  if (plan.native) {
    native_ = plan.native->start(plan.shape, in, out);
    return;
  }
  while (runs_.size() < plan.lanes.size()) runs_.push_back(std::make_unique<LaneRun>());
  if (plan.scratch.bytes > scratch_capacity_) take_scratch(plan.scratch.bytes);
  if (sources_.size() < plan.most_sources) sources_.resize(plan.most_sources);
  if (plan.shape.op == op_premul_sum) in = multiplied(in, out, factor);
  if (plan.shape.wire) {
    encode(in);
    in = scratch_ + plan.codes.in;
    result_ = std::exchange(out, scratch_ + plan.codes.out);
  }
  buffers_[TUTTI_BUFFER_IN].base = static_cast<std::byte*>(const_cast<void*>(in));
  buffers_[TUTTI_BUFFER_OUT].base = static_cast<std::byte*>(out);
  buffers_[TUTTI_BUFFER_SCRATCH].base = scratch_;
  find_registrations(ports, windows);
  lanes_ = plan.lanes.size();
  for (size_t lane = 0; lane < lanes_; ++lane) {
    LaneRun& run = *runs_[lane];
    run.head = run.tail = run.next_slice = 0;
    run.next_step = 0;
    run.end = plan.lanes[lane].size() * plan.slices;
    if (plan.most_parts)
      for (Active& active : run.active) active.ends.reserve(plan.most_parts);
  }
}

void Execution::take_scratch(uint64_t bytes) {
  if (scratch_) Scratch::process().give_back(std::exchange(scratch_, nullptr));
  scratch_capacity_ = 0;
  scratch_ = Scratch::process().take(bytes);
  scratch_capacity_ = bytes;
}

void Execution::find_registrations(size_t ports, const WindowList& windows) {
  const bool large = plan_->call_bytes >= registered_call_bytes;
  for (BufferBase& buffer : buffers_) buffer.registered = false;
  if (!large) return;
  if (registrations_.size() < ports) registrations_.resize(ports);
  for (auto& of_port : registrations_) of_port.fill({});
  const bool coded = plan_->shape.wire != TUTTI_WIRE_PLAIN;
  const std::array<uint64_t, 4> sizes{0, coded ? plan_->codes.in_bytes : plan_->in_bytes,
                                      coded ? plan_->codes.out_bytes : plan_->out_bytes, plan_->scratch.bytes};
  std::array<const tutti_window*, 4> in_windows{};
  for (const uint32_t b : {TUTTI_BUFFER_IN, TUTTI_BUFFER_OUT})
    if (sizes[b] && !windows.empty()) in_windows[b] = find_window(windows, buffers_[b].base, sizes[b]);
  for (const Link* link : plan_->links) {
    auto& of_port = registrations_[link->port->index];
    for (uint32_t b = TUTTI_BUFFER_IN; b <= TUTTI_BUFFER_SCRATCH; ++b) {
      if (of_port[b].region || !sizes[b] || !buffers_[b].base) continue;
      if (const tutti_window* window = in_windows[b]) {
        of_port[b] = window->registrations[link->port->index];
        of_port[b].offset += static_cast<uint64_t>(buffers_[b].base - window->address);
      } else {
        of_port[b] = link->port->find(buffers_[b].base, sizes[b]);
      }
      if (!of_port[b].region && moves_.zero_copy)
        of_port[b] = {link->port->all_memory, reinterpret_cast<uint64_t>(buffers_[b].base)};
      if (of_port[b].region) buffers_[b].registered = true;
    }
  }
}

std::byte* Execution::address(const Operand& operand, uint64_t slice, uint64_t* bytes) const {
  const Piece piece = piece_of(*plan_, operand, slice);
  *bytes = piece.bytes;
  return buffers_[operand.buffer].base + piece.offset;
}

RegisteredSpan Execution::registered_span(const Operand& operand, const std::byte* address, const Link& link) const {
  if (!buffers_[operand.buffer].registered) return {};
  const Registration& r = registrations_[link.port->index][operand.buffer];
  if (!r.region) return {};
  return {r.region, r.offset + static_cast<uint64_t>(address - buffers_[operand.buffer].base)};
}

void Execution::abandon() {
  if (lent()) {
    scratch_lent_ = true;
    for (const auto& run : runs_) run->staging.set_lent();
  }
  try {
    if (native_) plan_->native->test(std::exchange(native_, nullptr));
  } catch (const Failure&) {  // that it was aborted
  }
}

bool Execution::advance() {
  if (brief_) return advance_brief();
  if (native_) {
    tutti_native_operation* const operation = std::exchange(native_, nullptr);  // over where test throws, too
    if (!plan_->native->test(operation)) return native_ = operation, false;
    note_progress();
    return true;
  }
  bool all = true;
  for (size_t lane = 0; lane < lanes_; ++lane) {
    LaneRun& run = *runs_[lane];
    if (run.head != run.end && !advance_lane(lane, run)) all = false;
  }
  if (all && plan_->shape.wire && !plan_->shape.keeps_sums()) decode();
  return all;
}

bool Execution::advance_lane(size_t lane, LaneRun& run) {
  const auto& steps = plan_->lanes[lane];
  for (;;) {
    admit(steps, run);
    for (uint64_t p = run.head; p != run.tail; ++p) start_if_ready(p, lane, run);
    for (uint64_t p = run.head; p != run.tail; ++p) {
      Active& active = run.at(p);
      if (!active.started || active.done) continue;
      if (active.step->forwards && p + 1 != run.tail) start_if_ready(p + 1, lane, run);  // to take what arrives now
      move(active, p, run);
      if (trace_ && active.done) record(active, lane);
    }
    const uint64_t before = run.head;
    while (run.head != run.tail && run.at(run.head).done) ++run.head;
    if (run.head == run.end) {
      note_progress();
      return true;
    }
    if (run.head == before) return false;
    note_progress();
  }
}

void Execution::admit(const std::vector<BoundStep>& steps, LaneRun& run) {
  while (run.tail != run.end && run.tail - run.head < lookahead) {
    Active& active = run.at(run.tail);
    active.step = &steps[run.next_step];
    active.slice = run.next_slice;
    active.started = active.done = false;
    ++run.tail;
    if (++run.next_step == steps.size()) {
      run.next_step = 0;
      ++run.next_slice;
    }
  }
}

bool Execution::completed(size_t lane, uint64_t position) {
  LaneRun& run = *runs_[lane];
  return position < run.head || (position < run.tail && run.at(position).done);
}

bool Execution::may_start(const BoundStep& step, uint64_t position, uint64_t slice, LaneRun& run) {
  if (step.after_conflict && step.after_conflict <= position && run.head <= position - step.after_conflict)
    return false;
  if (step.dependency_lane != TUTTI_NO_DEPENDENCY) {
    const uint64_t length = plan_->lanes[step.dependency_lane].size();
    if (!completed(step.dependency_lane, slice * length + step.dependency_step)) return false;
  }
  if (step.forwarded && position > run.head && !run.at(position - 1).started) return false;
  // Earlier messages on the same way: in flight ones must have been handed over (asked for, where receives are posted).
  if (step.after_out && step.after_out <= position) {
    const uint64_t earlier = position - step.after_out;
    if (earlier >= run.head && !(run.at(earlier).done || (run.at(earlier).started && run.at(earlier).out.all_handed())))
      return false;
  }
  if (step.after_in && step.after_in <= position) {
    const uint64_t earlier = position - step.after_in;
    if (earlier >= run.head) {
      const Active& e = run.at(earlier);
      const bool asked = e.in.link && !e.in.link->view && e.started && e.in.bytes && e.in.handed == e.in.bytes;
      if (!e.done && !asked) return false;
    }
  }
  return true;
}

void Execution::start_if_ready(uint64_t position, size_t lane, LaneRun& run) {
  Active& active = run.at(position);
  if (active.started || !may_start(*active.step, position, active.slice, run)) return;
  if (trace_) active.begin_ticks = ticks();
  start(active, lane);
  if (trace_ && active.done) record(active, lane);
}

void Execution::start(Active& active, size_t lane) {
  const BoundStep& step = *active.step;
  find_bytes(active);
  active.asked = active.folded = active.reduced = 0;
  active.started = true;
  const uint32_t transport_lane = first_lane_ + static_cast<uint32_t>(lane);
  active.in.link = nullptr;
  active.out.link = nullptr;
  if (step.kind == TUTTI_STEP_NOP || (step.kind != TUTTI_STEP_SIGNAL && active.bytes == 0)) {
    // Nothing to move: an empty step is dropped alike at both ends. All bytes have been handed over already.
    active.out.bytes = active.in.bytes = 0;
    active.out.signalled = active.in.signalled = true;
    active.done = true;
    note_progress();
    return;
  }
  const std::vector<uint64_t>* ends = active.ends.empty() ? nullptr : &active.ends;
  if (step.out) active.out.open(step.out, transport_lane, active.bytes, mark_, moves_.stream_slots, ends);
  if (step.in) active.in.open(step.in, transport_lane, active.bytes, mark_, ends);
  if (step.kind == TUTTI_STEP_COPY || step.kind == TUTTI_STEP_REDUCE) {
    for (uint32_t part = 0; part < std::max(1u, step.dst.parts); ++part) reduce_locally(active, part);
    active.done = true;
    note_progress();
  }
}

// How many bytes the step moves, and where they lie.
void Execution::find_bytes(Active& active) const {
  const BoundStep& step = *active.step;
  active.bytes = 0;
  active.ends.clear();
  const Operand& any = step.dst.buffer ? step.dst : step.src;
  for (uint32_t part = 0; part < any.parts; ++part)
    active.ends.push_back(active.bytes += piece_of(*plan_, part_of(*plan_, any, part), active.slice).bytes);
  if (any.parts) return;
  if (step.dst.buffer) active.dst = address(step.dst, active.slice, &active.bytes);
  if (step.src.buffer) active.src = address(step.src, active.slice, &active.bytes);
}

// The memory of the part that holds byte `offset` of a step.
Execution::StepMemory Execution::memory_at(const Active& active, uint64_t offset) const {
  if (active.ends.empty()) return {0, UINT64_MAX, active.dst, active.src};
  const auto end = std::upper_bound(active.ends.begin(), active.ends.end(), offset);
  const auto part = static_cast<uint32_t>(end - active.ends.begin());
  const BoundStep& step = *active.step;
  StepMemory memory{part ? active.ends[part - 1] : 0, *end};
  uint64_t bytes = 0;
  if (step.dst.buffer) memory.dst = address(part_of(*plan_, step.dst, part), active.slice, &bytes);
  if (step.src.buffer) memory.src = address(part_of(*plan_, step.src, part), active.slice, &bytes);
  return memory;
}

void Execution::reduce_locally(const Active& active, uint32_t part) {
  const BoundStep& step = *active.step;
  const bool streaming = moves_.stream_results;
  uint64_t bytes = 0;
  const auto at = [&](const Operand& operand) { return address(part_of(*plan_, operand, part), active.slice, &bytes); };
  std::byte* const dst = at(step.dst);
  if (!bytes) return;
  if (step.kind == TUTTI_STEP_COPY && step.divisor == 0) {
    const std::byte* src = at(step.src);
    if (dst != src) copy(dst, src, bytes, streaming);
    return;
  }
  const uint32_t n = step.kind == TUTTI_STEP_COPY ? 1 : step.sources;
  for (uint32_t i = 0; i < n; ++i)
    sources_[i] = at(step.kind == TUTTI_STEP_COPY ? step.src : plan_->sources[step.first_source + i]);
  const Reduction reduction{
      {dst, nullptr},     1,           sources_.data(),   n, bytes / plan_->element_bytes, step.divisor,
      {streaming, false}, plan_->user, plan_->shape.dtype};
  if (plan_->shape.keeps_sums() && step.dst.buffer == TUTTI_BUFFER_OUT) return keep_sum(reduction);
  plan_->reduce(reduction);
}

// The sum goes to OUT as float32. `codes` is its reduction into the codes of OUT.
void Execution::keep_sum(const Reduction& codes) const {
  const uint32_t wire = plan_->shape.wire;
  const std::byte* const begin = buffers_[TUTTI_BUFFER_OUT].base;
  const auto bytes = static_cast<uint64_t>(static_cast<const std::byte*>(codes.dsts[0]) - begin);
  const uint64_t first = bytes / plan_->element_bytes * unit_numbers(wire);
  const uint64_t count = std::min(codes.count * unit_numbers(wire), plan_->out_bytes / sizeof(float) - first);
  sum_codes(wire, codes, {static_cast<float*>(result_) + first, count});
}

void Execution::move(Active& active, uint64_t position, LaneRun& run) {
  const BoundStep& step = *active.step;
  if (step.in) {
    Active* next = nullptr;
    if (step.forwards && position + 1 < run.tail && run.at(position + 1).started) next = &run.at(position + 1);
    receive(active, next, position, run);
    if (active.in.status < 0) fail(step, *active.in.link, active.in.status, true, active.in.foreign);
    active.done = active.in.done();
    if (std::exchange(active.in.seen, active.in.completed) != active.in.completed || active.done) note_progress();
  } else if (step.out) {
    const uint64_t before = active.out.handed;
    send(active, step.forwarded && position > run.head ? &run.at(position - 1) : nullptr);
    if (active.out.status < 0) fail(step, *active.out.link, active.out.status, false, active.out.foreign);
    active.done = active.out.done();
    if (active.out.handed != before || active.done) note_progress();
  }
}

void Execution::send(Active& active, const Active* previous) {
  if (active.out.all_handed()) return;
  const uint64_t available = previous && !previous->done ? previous->in.completed : active.bytes;
  for (bool whole = true; whole && !active.out.all_handed();) {
    const StepMemory part = memory_at(active, active.out.handed);
    active.out.advance(part.src, std::min(available, part.end),
                       registered_span(active.step->src, part.src, *active.out.link), part.begin);
    whole = active.out.handed == part.end;
  }
}

void Execution::receive(Active& active, Active* next, uint64_t position, LaneRun& run) {
  const BoundStep& step = *active.step;
  const bool reduces = step.kind == TUTTI_STEP_RECV_REDUCE;
  if (!active.in.link->view) {
    if (reduces)
      reduce_arrivals(active, next, position, run);
    else
      receive_plainly(active);
    return;
  }
  if (!reduces && !next) return receive_plainly(active);
  while (!active.in.all_arrived()) {
    const StepMemory part = memory_at(active, active.in.completed);
    const std::byte* fragment = active.in.peek(reduces ? nullptr : part.dst + (active.in.completed - part.begin));
    if (!fragment) return;
    finish_fragment(active, next, fragment, active.in.completed);
    active.in.take();
    if (next) send(*next, &active);
  }
}

void Execution::receive_plainly(Active& active) {
  Inflow& in = active.in;
  const uint64_t& at = in.link->view ? in.completed : in.handed;
  for (bool whole = true; whole && (!in.bytes || at < in.bytes);) {
    const StepMemory part = memory_at(active, at);
    tutti_region* region = in.link->view ? nullptr : registered_span(active.step->dst, part.dst, *in.link).region;
    in.advance(part.dst, moves_.stream_results, region, part.begin, part.end);
    whole = at == part.end;
  }
}

// The registration of staging room, where the transport makes use of one.
static tutti_region* registered_room(const Link& link, const std::byte* room, uint64_t bytes) {
  if (bytes < registered_call_bytes || !TUTTI_HAS(tutti_transport, link.port->api, register_memory)) return nullptr;
  return link.port->find(room, bytes).region;
}

// Posted receives of a reducing step land in staging, a few fragments ahead.
void Execution::reduce_arrivals(Active& active, Active* next, uint64_t position, LaneRun& run) {
  Inflow& in = active.in;
  const auto slot = static_cast<uint32_t>(position & (lookahead - 1));
  for (;;) {
    while (in.handed < in.bytes && active.asked - active.folded < Staging::depth) {
      std::byte* room = run.staging.at(*in.link, slot, active.asked);
      const uint64_t size = in.fragment_at(in.handed);
      if (!in.ask(room, size, registered_room(*in.link, room, size))) break;
      ++active.asked;
    }
    if (active.reduced == in.completed) return;
    while (active.reduced < in.completed) {
      finish_fragment(active, next, run.staging.at(*in.link, slot, active.folded), active.reduced);
      active.reduced += in.fragment_at(active.reduced);
      ++active.folded;
    }
  }
}

// Combines the fragment that is the message's from byte `at` on with the local operand, into dst and, where the next
// step's turn has come, into its slot.
void Execution::finish_fragment(Active& active, Active* next, const std::byte* fragment, uint64_t at) {
  const BoundStep& step = *active.step;
  const uint64_t bytes = active.in.fragment_at(at);
  const StepMemory part = memory_at(active, at);
  std::byte* const dst = part.dst + (at - part.begin);
  void* slot = nullptr;
  if (next && next->out.handed == at && next->out.link->view && next->out.link->fragment == active.in.link->fragment &&
      !registered_span(next->step->src, dst, *next->out.link).region)
    slot = next->out.link->view->try_reserve(next->out.link->handle, next->out.lane, bytes);
  const bool streaming = moves_.stream_results, slot_streaming = moves_.stream_slots;
  if (step.kind == TUTTI_STEP_RECV_REDUCE) {
    const void* sources[2] = {part.src + (at - part.begin), fragment};
    if (step.incoming_left) std::swap(sources[0], sources[1]);
    const Reduction reduction{{dst, slot},
                              slot ? 2u : 1u,
                              sources,
                              2,
                              bytes / plan_->element_bytes,
                              step.divisor,
                              {streaming, slot_streaming},
                              plan_->user,
                              plan_->shape.dtype};
    plan_->reduce(reduction);
  } else if (slot && fragment != dst) {
    copy(dst, streaming, slot, slot_streaming, fragment, bytes);
  } else if (slot) {
    copy(slot, dst, bytes, slot_streaming);
  } else if (fragment != dst) {
    copy(dst, fragment, bytes, streaming);
  }
  if (slot) {
    next->out.link->view->commit(next->out.link->handle, next->out.lane, bytes);
    next->out.handed += bytes;
    next->out.link->sent += bytes;
    note_progress();
  }
}

bool Execution::lent() const {
  for (size_t lane = 0; lane < lanes_; ++lane) {
    LaneRun& run = *runs_[lane];
    for (uint64_t p = run.head; p != run.tail; ++p) {
      Active& active = run.at(p);
      if (active.started && active.out.link && active.out.referenced && !active.out.done()) return true;
    }
  }
  return false;
}

void Execution::fail(const BoundStep& step, const Link& link, tutti_status status, bool incoming,
                     bool foreign) const {
  const std::string why = take_plugin_error();
  const bool same_call = link.port->marks && !foreign;
  const char* text = status != TUTTI_MISMATCH ? tutti_status_text(status)
                     : foreign                ? "the message belongs to another call than this rank's"
                     : same_call ? "the message's size differs from what this rank expects, in the same call: do both "
                                   "ends of each block have the same count?"
                                 : "the message's size differs from what this rank expects: do all ranks call the same "
                                   "collective with the same count and type?";
  const std::string whole =
      fmt::format("{} {} rank {} over {}: {}{}{}", step_name(step.kind), step.out ? "to" : "from", link.peer,
                  link.port->api->name, text, why.empty() ? "" : ": ", why);
  if (incoming && status == TUTTI_MISMATCH) throw MessageDiffers(whole, link.peer, same_call);
  throw Failure(status, whole);
}

}  // namespace tutti::core
