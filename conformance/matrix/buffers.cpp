// SPDX-License-Identifier: Apache-2.0
#include "matrix/buffers.hpp"

#include <fmt/format.h>
#include <tutti/schedule.h>

#include <algorithm>

#include "matrix/blame.hpp"

namespace tutti::conformance {
namespace {

// Up to so many bytes the expected output is kept, so that it need not be computed twice.
constexpr uint64_t most_kept = 256 << 20;
constexpr char poison = static_cast<char>(0xd7);

}  // namespace

Buffers::Buffers(const Cell& cell, uint32_t rank, const Data& data, Seat* seat, uint32_t stream)
    : cell_(cell), rank_(rank), data_(data), seat_(seat), stream_(stream) {
  const Operation& o = cell.operation;
  in_elements_ = elements_in(o, rank);
  out_elements_ = elements_out(o, rank);
  in_place_ = cell.in_place_at(rank) && has_both(o, rank);
  Memory kind = cell.memory;
  if (kind == Memory::some) kind = rank % 2 ? Memory::alloc : Memory::heap;
  const uint64_t size = cell.type->bytes;
  const uint64_t in_offset = cell.alignment == Alignment::aligned ? 0 : size;
  const uint64_t out_offset = cell.alignment == Alignment::odd ? size : 0;
  const bool out_holds_in = in_place_ && overlay_of(o.collective) != Overlay::out_is_block;
  const auto make = [&](std::optional<Area>& area, uint64_t elements, uint64_t offset) {
    seat ? area.emplace(*seat, elements * size, offset) : area.emplace(kind, elements * size, offset);
  };
  if (blocks_in(o, rank) && !out_holds_in) make(in_, in_elements_, in_offset);
  if (blocks_out(o, rank) && (!in_place_ || out_holds_in)) make(out_, out_elements_, out_offset);
  fill();
}

// The rule of windows in tutti.h.
void Buffers::register_with(const Communicator& comm) {
  if (cell_.memory != Memory::window || !cell_.operation.count) return;
  const bool in_place = cell_.place == InPlace::in;
  bool ins = false, outs = false;
  switch (cell_.operation.collective) {
    case TUTTI_ALL_REDUCE:
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_ALL_TO_ALL:
      ins = true;
      outs = !in_place;
      break;
    case TUTTI_ALL_GATHER:
      ins = !in_place;
      outs = true;
      break;
    case TUTTI_BROADCAST:
      outs = true;
      break;
    case TUTTI_REDUCE:
    case TUTTI_GATHER:
      ins = true;
      break;
    default:  // no buffer that all ranks have decides
      return;
  }
  if (ins) windows_.emplace_back(comm, const_cast<void*>(in()), in_elements_ * cell_.type->bytes);
  if (outs) windows_.emplace_back(comm, out(), out_elements_ * cell_.type->bytes);
}

void Buffers::upload() const {
  for (const auto* area : {&in_, &out_})
    if (*area) (*area)->upload(stream_);
}

void Buffers::download() const {
  for (const auto* area : {&in_, &out_})
    if (*area) (*area)->download(stream_);
}

void Buffers::finish() const {
  if (seat_) seat_->finish(stream_);
}

std::string Buffers::judge(const Origin& origin) const {
  for (const auto* area : {&in_, &out_})
    if (*area)
      if (const std::string damage = (*area)->damage(); !damage.empty())
        return fmt::format("{} {} of {} bytes: {}", collective_name(cell_.operation.collective),
                           area == &in_ ? "in" : "out", (*area)->bytes(), damage);
  if (std::string wrong = judge_output(origin); !wrong.empty()) return wrong;
  return judge_input();
}

char* Buffers::in_at(At at) const {
  if (in_) return ((*in_).*at)();
  if (!in_place_) return nullptr;
  const bool is_block = overlay_of(cell_.operation.collective) == Overlay::in_is_block;
  return ((*out_).*at)() + (is_block ? block_offset() : 0);
}

char* Buffers::out_at(At at) const {
  if (out_) return ((*out_).*at)();
  return in_place_ ? ((*in_).*at)() + block_offset() : nullptr;
}

uint64_t Buffers::expected(uint64_t i) const {
  return kept_.empty() ? expected_output(cell_.operation, data_, rank_, i) : load(*cell_.type, kept_.data(), i);
}

void Buffers::fill() {
  const ElementType& t = *cell_.type;
  if (out_elements_ * t.bytes <= most_kept) {
    std::vector<char> all(out_elements_ * t.bytes);
    for (uint64_t i = 0; i < out_elements_; ++i)
      store(t, all.data(), i, expected_output(cell_.operation, data_, rank_, i));
    kept_ = std::move(all);
  }
  if (out_)
    for (uint64_t i = 0; i < out_elements_; ++i)
      store(t, out_->data(), i, kept_.empty() ? poison * 0x0101010101010101u : ~expected(i));
  if (in_elements_)
    for (uint64_t i = 0; i < in_elements_; ++i) store(t, in_bytes(), i, truncated(t, data_.input(rank_, i)));
}

std::string Buffers::judge_output(const Origin& origin) const {
  const ElementType& t = *cell_.type;
  uint64_t wrong = 0, first = 0, last = 0;
  for (uint64_t i = 0; i < out_elements_; ++i) {
    if (data_.accepts(expected(i), load(t, out_bytes(), i))) continue;
    if (wrong++ == 0) first = i;
    last = i;
  }
  if (!wrong) return {};
  const uint64_t right = expected(first), got = load(t, out_bytes(), first);
  std::string text = fmt::format("{}: out[{}] is {}, expected {}", collective_name(cell_.operation.collective), first,
                                 to_text(t, got), to_text(t, right));
  if (t.floating() && !is_nan(t, got) && !is_nan(t, right)) {
    const int64_t distance = ordinal(t, right) - ordinal(t, got);
    text += fmt::format(", {} ulp apart", distance < 0 ? -distance : distance);
  }
  text += fmt::format("; {} of {} elements are wrong, the last is out[{}] (trial {})", wrong, out_elements_, last,
                      data_.pattern().trial);
  const std::string looks = looks_like(first, got, right);
  if (!looks.empty()) text += "\n  " + looks;
  return origin ? text + "\n  it lies in " + origin(first) : text;
}

std::string Buffers::looks_like(uint64_t first, uint64_t got, uint64_t right) const {
  const ElementType& t = *cell_.type;
  if (out_ && !in_place_ && !kept_.empty() && got == truncated(t, ~right))
    return "it was never written: it is still the poison";
  std::vector<uint64_t> run;
  constexpr uint64_t most = 4;
  for (uint64_t i = first; i < out_elements_ && run.size() < most; ++i) {
    const uint64_t value = load(t, out_bytes(), i);
    if (data_.accepts(expected(i), value)) break;
    run.push_back(value);
  }
  return diagnose(cell_, data_, rank_, first, run);
}

// Checks that an input which is not in place is unchanged.
std::string Buffers::judge_input() const {
  if (in_place_ || !in_) return {};
  const ElementType& t = *cell_.type;
  for (uint64_t i = 0; i < in_elements_; ++i) {
    const uint64_t right = data_.input(rank_, i), got = load(t, in_->data(), i);
    if (got != right)
      return fmt::format("{} out of place changed its input: in[{}] was {} and is {}",
                         collective_name(cell_.operation.collective), i, to_text(t, right), to_text(t, got));
  }
  return {};
}

namespace {

tutti_status call_unequal(const Cell& cell, uint32_t op, uint32_t rank, tutti_comm* comm, const Buffers& buffers,
                          const tutti_options* options, tutti_request** request) {
  const Operation& o = cell.operation;
  const void* in = buffers.in();
  void* out = buffers.out();
  const uint32_t dtype = dtype_from_name(cell.type->name);
  const Arrays given = arrays_of(o, rank, true), got = arrays_of(o, rank, false);
  const uint64_t *gives = given.counts.data(), *gets = got.counts.data();
  switch (o.collective) {
    case TUTTI_GATHER_V:
      return tutti_gather_v(comm, in, gives[0], out, gets, got.places(), dtype, o.root, options, request);
    case TUTTI_ALL_GATHER_V:
      return tutti_all_gather_v(comm, in, out, gets, got.places(), dtype, options, request);
    case TUTTI_SCATTER_V:
      return tutti_scatter_v(comm, in, gives, given.places(), out, gets[0], dtype, o.root, options, request);
    case TUTTI_REDUCE_SCATTER_V:
      return tutti_reduce_scatter_v(comm, in, out, gives, given.places(), dtype, op, options, request);
    default:
      return tutti_all_to_all_v(comm, in, gives, given.places(), out, gets, got.places(), dtype, options, request);
  }
}

}  // namespace

tutti_status call(const Cell& cell, uint32_t op, tutti_comm* comm, const Buffers& buffers, tutti_request** request) {
  const Operation& o = cell.operation;
  const void* in = buffers.in();
  void* out = buffers.out();
  tutti_options given{};
  given.struct_size = sizeof given;
  if (is_exact(cell.op)) given.order = TUTTI_ORDER_EXACT;
  // A call without elements has no device memory, so it takes no stream.
  if (unequal(o.collective) || o.count || o.collective == TUTTI_BARRIER) given.stream = buffers.stream();
  const tutti_options* options = given.stream || given.order ? &given : nullptr;
  if (unequal(o.collective)) return call_unequal(cell, op, tutti_comm_rank(comm), comm, buffers, options, request);
  const uint32_t dtype = dtype_from_name(cell.type->name);
  switch (o.collective) {
    case TUTTI_BROADCAST:
      return tutti_broadcast(comm, in, out, o.count, dtype, o.root, options, request);
    case TUTTI_REDUCE:
      return tutti_reduce(comm, in, out, o.count, dtype, op, o.root, options, request);
    case TUTTI_ALL_REDUCE:
      return tutti_all_reduce(comm, in, out, o.count, dtype, op, options, request);
    case TUTTI_GATHER:
      return tutti_gather(comm, in, out, o.count, dtype, o.root, options, request);
    case TUTTI_ALL_GATHER:
      return tutti_all_gather(comm, in, out, o.count, dtype, options, request);
    case TUTTI_SCATTER:
      return tutti_scatter(comm, in, out, o.count, dtype, o.root, options, request);
    case TUTTI_REDUCE_SCATTER:
      return tutti_reduce_scatter(comm, in, out, o.count, dtype, op, options, request);
    case TUTTI_ALL_TO_ALL:
      return tutti_all_to_all(comm, in, out, o.count, dtype, options, request);
    case TUTTI_SCAN:
      return tutti_scan(comm, in, out, o.count, dtype, op, options, request);
    case TUTTI_EXCLUSIVE_SCAN:
      return tutti_exclusive_scan(comm, in, out, o.count, dtype, op, options, request);
    default:
      return tutti_barrier(comm, options, request);
  }
}

}  // namespace tutti::conformance
