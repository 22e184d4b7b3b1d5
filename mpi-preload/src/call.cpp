// SPDX-License-Identifier: Apache-2.0
#include "call.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "serve.hpp"

namespace tutti::mpi {

void advance_mpi() {
  // MPI advances all that is pending when it is asked about a request that is not complete.
  static const MPI_Request never = [] {
    MPI_Request request;
    const auto say = [](void*, MPI_Status*) { return MPI_SUCCESS; };
    const auto forget = [](void*) { return MPI_SUCCESS; };
    const auto cancel = [](void*, int) { return MPI_SUCCESS; };
    pmpi::Grequest_start(say, forget, cancel, nullptr, &request);
    return request;
  }();
  int complete = 0;
  pmpi::Request_get_status(never, &complete, MPI_STATUS_IGNORE);
}

void advance_mpi_in_waits() {
  static thread_local const bool set = [] {
    const auto advance = [](void*) {
      if (is_running()) advance_mpi();
    };
    tutti_set_idle(advance, nullptr);
    return true;
  }();
  static_cast<void>(set);
}

Call::~Call() {
  if (request_) tutti_request_free(request_);
  if (operator_) operator_->is_taken = false;
  for (MPI_Datatype& type : kept_) pmpi::Type_free(&type);
}

std::byte* Call::memory(uint64_t bytes) {
  memory_.push_back(std::make_unique_for_overwrite<std::byte[]>(std::max<uint64_t>(bytes, 1)));
  return memory_.back().get();
}

Layout Call::kept(const Layout& layout) {
  if (is_blocking() || layout.basic) return layout;
  Layout own = layout;
  pmpi::Type_dup(layout.type, &own.type);
  kept_.push_back(own.type);
  return own;
}

void Call::pack_into(std::byte* to, const void* from, uint64_t count, const Layout& layout) {
  if (const int code = pack(layout, from, count, to); code != MPI_SUCCESS) code_ = code;
}

std::byte* Call::input(const void* buffer, uint64_t count, const Layout& layout) {
  if (layout.dense) return static_cast<std::byte*>(const_cast<void*>(buffer));
  std::byte* to = memory(count * layout.size);
  pack_into(to, buffer, count, layout);
  return to;
}

std::byte* Call::output(void* buffer, uint64_t count, const Layout& layout) {
  if (layout.dense) return static_cast<std::byte*>(buffer);
  std::byte* from = memory(count * layout.size);
  unpackings_.push_back({from, buffer, count, kept(layout)});
  return from;
}

namespace {

// Do Tutti's own counts and displacements describe the blocks?
bool is_plain(const Shape& shape) {
  return std::all_of(shape.layouts.begin(), shape.layouts.end(), [](const Layout& one) { return one.dense; }) &&
         std::all_of(shape.displacements.begin(), shape.displacements.end(), [](int64_t at) { return at >= 0; });
}

// MPI forbids blocks of an output that overlap, but its libraries take them. Tutti does not.
bool overlap(const Shape& shape) {
  std::vector<std::pair<int64_t, int64_t>> ranges;  // begin and end
  for (size_t b = 0; b < shape.counts.size(); ++b)
    if (const auto bytes = static_cast<int64_t>(shape.counts[b] * shape.layout(b).size))
      ranges.emplace_back(shape.displacements[b], shape.displacements[b] + bytes);
  std::sort(ranges.begin(), ranges.end());
  return std::adjacent_find(ranges.begin(), ranges.end(),
                            [](const auto& one, const auto& next) { return next.first < one.second; }) != ranges.end();
}

Blocks plain_blocks(void* buffer, const Shape& shape) {
  Blocks blocks{static_cast<std::byte*>(buffer), {}, {}};
  for (size_t b = 0; b < shape.counts.size(); ++b) {
    blocks.counts.push_back(shape.counts[b] * shape.layout(b).size);
    blocks.displacements.push_back(static_cast<uint64_t>(shape.displacements[b]));
  }
  return blocks;
}

// One after another.
Blocks packed_blocks(const Shape& shape, uint64_t& bytes) {
  Blocks blocks;
  bytes = 0;
  for (size_t b = 0; b < shape.counts.size(); ++b) {
    blocks.counts.push_back(shape.counts[b] * shape.layout(b).size);
    blocks.displacements.push_back(bytes);
    bytes += blocks.counts.back();
  }
  return blocks;
}

}  // namespace

Blocks Call::input_blocks(const void* buffer, const Shape& shape) {
  return is_plain(shape) ? plain_blocks(const_cast<void*>(buffer), shape) : packed_copy(buffer, shape);
}

Blocks Call::packed_copy(const void* buffer, const Shape& shape) {
  uint64_t bytes;
  Blocks blocks = packed_blocks(shape, bytes);
  blocks.base = memory(bytes);
  for (size_t b = 0; b < shape.counts.size(); ++b)
    pack_into(blocks.base + blocks.displacements[b], static_cast<const std::byte*>(buffer) + shape.displacements[b],
              shape.counts[b], shape.layout(b));
  return blocks;
}

Blocks Call::output_blocks(void* buffer, const Shape& shape) {
  if (is_plain(shape) && !overlap(shape)) return plain_blocks(buffer, shape);
  uint64_t bytes;
  Blocks blocks = packed_blocks(shape, bytes);
  blocks.base = memory(bytes);
  for (size_t b = 0; b < shape.counts.size(); ++b)
    unpackings_.push_back({blocks.base + blocks.displacements[b],
                           static_cast<std::byte*>(buffer) + shape.displacements[b], shape.counts[b],
                           kept(shape.layout(b))});
  return blocks;
}

void Call::reduces_locally(const LocalReduction& reduction) {
  reduction_ = reduction;
  reduction_->layout = kept(reduction.layout);
}

Verdict Call::has_started(tutti_status status) {
  status_ = status == TUTTI_OK && request_ ? TUTTI_AGAIN : status;
  return Verdict::served;
}

tutti_status Call::test() {
  if (status_ == TUTTI_AGAIN) status_ = tutti_request_test(request_);
  return status_;
}

void Call::wait_for(uint64_t timeout_ns) {
  if (status_ == TUTTI_AGAIN) status_ = tutti_request_wait_for(request_, timeout_ns);
}

int Call::finish() {
  if (status_ != TUTTI_OK) {
    std::string text = request_ ? tutti_request_error(request_) : "";
    if (text.empty()) text = tutti_comm_error(comm());
    return raise(communicator_.mpi(), function_, text.c_str());
  }
  if (code_ == MPI_SUCCESS) code_ = unpack_all();
  if (code_ == MPI_SUCCESS && reduction_) code_ = reduce();
  if (code_ != MPI_SUCCESS) pmpi::Comm_call_errhandler(communicator_.mpi(), code_);
  return code_;
}

int Call::unpack_all() {
  int code = MPI_SUCCESS;
  for (const Unpacking& one : unpackings_)
    if (const int failed = unpack(one.layout, one.from, one.count, one.to); failed != MPI_SUCCESS) code = failed;
  return code;
}

// x[0] op (x[1] op (... x[n-1])): inout = in op inout, from the last rank to the first.
int Call::reduce() {
  const LocalReduction& it = *reduction_;
  const uint64_t bytes = it.count * it.layout.size;
  if (!it.count) return MPI_SUCCESS;
  int code = unpack(it.layout, it.parts + (it.n - 1) * bytes, it.count, it.out);
  std::byte* typed = nullptr;
  if (!it.layout.dense) {
    MPI_Aint lowest = 0, true_extent = 0;
    pmpi::Type_get_true_extent(it.layout.type, &lowest, &true_extent);
    const int64_t span = it.layout.extent * static_cast<int64_t>(it.count - 1);
    typed = memory(static_cast<uint64_t>(std::abs(span) + true_extent)) - lowest - std::min<int64_t>(span, 0);
  }
  constexpr uint64_t most = uint64_t{1} << 30;
  for (uint64_t r = it.n - 1; r-- > 0 && code == MPI_SUCCESS;) {
    const std::byte* part = it.parts + r * bytes;
    if (typed) code = unpack(it.layout, part, it.count, typed);
    for (uint64_t done = 0; done < it.count && code == MPI_SUCCESS; done += most) {
      const int64_t at = static_cast<int64_t>(done) * it.layout.extent;
      code = pmpi::Reduce_local((typed ? typed : part) + at, static_cast<std::byte*>(it.out) + at,
                                static_cast<int>(std::min(most, it.count - done)), it.layout.type, it.op);
    }
  }
  return code;
}

}  // namespace tutti::mpi
