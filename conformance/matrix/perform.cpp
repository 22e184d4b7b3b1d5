// SPDX-License-Identifier: Apache-2.0
#include "matrix/perform.hpp"

#include <fmt/format.h>
#include <tutti/schedule.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <thread>

#include "matrix/area.hpp"
#include "matrix/attest.hpp"
#include "matrix/blame.hpp"

namespace tutti::conformance {
namespace {

// Up to so many bytes the expected output is kept, so that it need not be computed twice.
constexpr uint64_t most_kept = 256 << 20;
// Beyond so many bytes ranks meet before the call and after judging: making and checking the data takes each its own
// time, longer than an operation waits for a rank that does not come.
constexpr uint64_t most_unmet = 1 << 30;
constexpr char poison = static_cast<char>(0xd7);

// The buffers of one operation at one rank.
class Buffers {
 public:
  // `seat`: of cells on a device. `stream` is the one of its streams that the operation is put into.
  Buffers(const Cell& cell, uint32_t rank, const Data& data, Seat* seat, uint32_t stream)
      : cell_(cell), rank_(rank), data_(data), seat_(seat), stream_(stream) {
    const Operation& o = cell.operation;
    in_elements_ = o.count * blocks_in(o, rank);
    out_elements_ = o.count * blocks_out(o, rank);
    in_place_ = cell.in_place_at(rank) && in_elements_ && out_elements_;
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

  // What the call gets.
  const void* in() const { return in_at(&Area::address); }
  void* out() const { return out_at(&Area::address); }
  void* stream() const { return seat_ ? seat_->stream(stream_) : nullptr; }

  // On a device what the call finds is put there by its own stream just before it, and what it leaves is fetched just
  // behind it: whoever works in another stream, or too early, or late, is found out.
  void upload() const {
    for (const auto* area : {&in_, &out_})
      if (*area) (*area)->upload(stream_);
  }
  void download() const {
    for (const auto* area : {&in_, &out_})
      if (*area) (*area)->download(stream_);
  }
  void finish() const {
    if (seat_) seat_->finish(stream_);
  }

  // "" when all is right. `slices` of the plan that ran.
  std::string judge(const Mix& mix, uint64_t slices) const {
    for (const auto* area : {&in_, &out_})
      if (*area)
        if (const std::string damage = (*area)->damage(); !damage.empty())
          return fmt::format("{} {} of {} bytes: {}", collective_name(cell_.operation.collective),
                             area == &in_ ? "in" : "out", (*area)->bytes(), damage);
    if (std::string wrong = judge_output(mix, slices); !wrong.empty()) return wrong;
    return judge_input();
  }

 private:
  using At = char* (Area::*)() const;
  char* in_at(At at) const {
    if (in_) return ((*in_).*at)();
    if (!in_place_) return nullptr;
    const bool is_block = overlay_of(cell_.operation.collective) == Overlay::in_is_block;
    return ((*out_).*at)() + (is_block ? block_offset() : 0);
  }
  char* out_at(At at) const {
    if (out_) return ((*out_).*at)();
    return in_place_ ? ((*in_).*at)() + block_offset() : nullptr;
  }
  // The suite's own view of them.
  char* in_bytes() const { return in_at(&Area::data); }
  char* out_bytes() const { return out_at(&Area::data); }

  uint64_t block_offset() const { return rank_ * cell_.operation.count * cell_.type->bytes; }

  uint64_t expected(uint64_t i) const {
    return kept_.empty() ? expected_output(cell_.operation, data_, rank_, i) : load(*cell_.type, kept_.data(), i);
  }

  void fill() {
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

  std::string judge_output(const Mix& mix, uint64_t slices) const {
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
    return text + "\n  it lies in " + blame(cell_, mix, rank_, first, slices);
  }

  std::string looks_like(uint64_t first, uint64_t got, uint64_t right) const {
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

  // What was handed in, out of place, is still there.
  std::string judge_input() const {
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

  const Cell& cell_;
  uint32_t rank_;
  Data data_;
  Seat* seat_;
  uint32_t stream_;
  uint64_t in_elements_, out_elements_;
  bool in_place_;
  std::optional<Area> in_, out_;
  std::vector<char> kept_;
};

tutti_status call(const Cell& cell, tutti_comm* comm, const Buffers& buffers, tutti_request** request) {
  const Operation& o = cell.operation;
  const void* in = buffers.in();
  void* out = buffers.out();
  tutti_options on_stream{};
  on_stream.struct_size = sizeof on_stream;
  on_stream.stream = buffers.stream();
  // Of no elements there is nothing on a device: such a call takes no stream.
  const bool streams = on_stream.stream && (o.count || o.collective == TUTTI_BARRIER);
  const tutti_options* options = streams ? &on_stream : nullptr;
  const uint32_t dtype = dtype_from_name(cell.type->name);
  switch (o.collective) {
    case TUTTI_BROADCAST:
      return tutti_broadcast(comm, in, out, o.count, dtype, o.root, options, request);
    case TUTTI_REDUCE:
      return tutti_reduce(comm, in, out, o.count, dtype, cell.op, o.root, options, request);
    case TUTTI_ALL_REDUCE:
      return tutti_all_reduce(comm, in, out, o.count, dtype, cell.op, options, request);
    case TUTTI_GATHER:
      return tutti_gather(comm, in, out, o.count, dtype, o.root, options, request);
    case TUTTI_ALL_GATHER:
      return tutti_all_gather(comm, in, out, o.count, dtype, options, request);
    case TUTTI_SCATTER:
      return tutti_scatter(comm, in, out, o.count, dtype, o.root, options, request);
    case TUTTI_REDUCE_SCATTER:
      return tutti_reduce_scatter(comm, in, out, o.count, dtype, cell.op, options, request);
    case TUTTI_ALL_TO_ALL:
      return tutti_all_to_all(comm, in, out, o.count, dtype, options, request);
    default:
      return tutti_barrier(comm, options, request);
  }
}

// Issues as many operations as there are buffers, in the cell's form of calling, and waits for them. A blocking call on
// a device returns when the work is in the stream, so there the stream is what is waited for.
void issue(const Cell& cell, const Communicator& comm, const std::vector<std::unique_ptr<Buffers>>& all) {
  std::vector<Request> requests;
  for (const auto& buffers : all) {
    const auto run = [&](tutti_comm* c, tutti_request** r) { return call(cell, c, *buffers, r); };
    buffers->upload();
    if (cell.calls == Calls::block)
      comm.run(run);
    else
      requests.push_back(comm.async().run(run));
    buffers->download();
  }
  for (size_t i = requests.size(); i-- > 0;) requests[i].wait();
  for (const auto& buffers : all) buffers->finish();
}

// One rank after the other comes late: nobody may leave before it has come.
Outcome perform_barriers(const Cell& cell, const Communicator& comm, Members& members, uint32_t rank) {
  const uint32_t n = cell.operation.nranks;
  const uint32_t rounds = std::max(3u, std::min(n, 5u));
  std::vector<std::unique_ptr<Buffers>> one;
  const Pattern pattern{cell.type, cell.op, n, 0, 0, 0};
  one.push_back(std::make_unique<Buffers>(cell, rank, Data(pattern), members.seat(rank), 0));
  for (uint32_t round = 0; round < rounds; ++round) {
    if (rank == (round * 7 + n - 1) % n) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    members.enter_barrier(rank);
    issue(cell, comm, one);
    if (const uint32_t missing = members.missing_at_barrier(rank); missing < n)
      return Outcome::fail(fmt::format("barrier: it let this rank go before rank {} had entered it", missing));
  }
  return Outcome::pass();
}

}  // namespace

Outcome perform(const Cell& cell, const Mix& mix, Members& members, uint32_t rank, uint64_t seed,
                Attestation& attestation) {
  Communicator& comm = members.communicator(rank, cell.algorithm);
  const Operation& o = cell.operation;
  const Witness witness(cell, mix, comm, rank);
  Outcome outcome;
  if (o.collective == TUTTI_BARRIER) {
    outcome = perform_barriers(cell, comm, members, rank);
  } else {
    Pattern pattern{cell.type, cell.op, o.nranks, data_length(o), seed, 0};
    const uint32_t trials = trials_of(pattern);
    const uint32_t at_once = cell.calls == Calls::overlap ? 3 : 1;
    for (uint32_t trial = 0; trial < trials && !is_bad(outcome.verdict); trial += at_once) {
      std::vector<std::unique_ptr<Buffers>> all;
      for (uint32_t k = 0; k < at_once; ++k) {
        pattern.trial = trial + k;
        all.push_back(std::make_unique<Buffers>(cell, rank, Data(pattern), members.seat(rank), k % Seat::streams));
      }
      if (cell.bytes() > most_unmet) members.meet(rank);
      issue(cell, comm, all);
      for (const auto& buffers : all)
        if (const std::string wrong = buffers->judge(mix, witness.slices()); !wrong.empty()) {
          outcome = Outcome::fail(wrong);
          break;
        }
      if (cell.bytes() > most_unmet) members.meet(rank);
    }
  }
  const std::string lie = witness.judge(attestation);
  return is_bad(outcome.verdict) || lie.empty() ? outcome : Outcome::fail(lie);
}

}  // namespace tutti::conformance
