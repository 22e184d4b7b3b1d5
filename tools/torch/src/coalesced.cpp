// SPDX-License-Identifier: Apache-2.0
//
// Lists of tensors that travel together: one call of Tutti's for each tensor, all of them in one group. Tutti sends
// small ones as one, and each large one from where it lies.
#include <utility>

#include "process_group.hpp"

namespace tutti::torch {

// Calls that go on together must not write what another one reads. own: the place at which each would be in place.
void ProcessGroup::keep_apart(Calls& calls, const std::vector<Place>& own) {
  std::vector<const Buffer*> outs;
  for (const Call& call : calls) outs.push_back(&call.out);
  const Written written(outs);
  for (size_t n = 0; n < calls.size(); ++n) calls[n].in.keep_apart_from(written, 0, own[n]);
}

// Where this rank's part lies in a tensor of all ranks' parts, which has no gaps.
Place ProcessGroup::own_part(const at::Tensor& whole, const at::Tensor& part) const {
  const Place all = place_without_gaps(whole);
  if (all.begin == all.end) return {};
  const uintptr_t begin = all.begin + static_cast<uintptr_t>(getRank()) * part.nbytes();
  return {begin, begin + part.nbytes()};
}

// Lists of tensors of all ranks' parts, and of one rank's.
void ProcessGroup::check_parts(const char* name, const Tensors& whole, const Tensors& parts) const {
  TORCH_CHECK(!whole.empty() && whole.size() == parts.size(), name, ": got ", whole.size(),
              " tensors of all ranks and ", parts.size(), " of one, expected as many, at least one");
  for (size_t n = 0; n < whole.size(); ++n) {
    TORCH_CHECK(whole[n].defined() && parts[n].defined(), name, ": an undefined tensor");
    TORCH_CHECK(whole[n].is_contiguous() && whole[n].numel() == parts[n].numel() * getSize(), name, ": tensor ", n,
                " of all ranks has ", whole[n].numel(), " elements", whole[n].is_contiguous() ? "" : " with gaps",
                ", expected ", parts[n].numel() * getSize(), " without");
    TORCH_CHECK(whole[n].scalar_type() == parts[n].scalar_type(), name, ": tensor ", n, " of all ranks is of ",
                whole[n].scalar_type(), ", that of one of ", parts[n].scalar_type(), ", expected one type");
  }
}

WorkPtr ProcessGroup::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  constexpr auto name = "tutti:all_reduce";
  check_list(name, tensors, true);
  Calls calls;
  for (const at::Tensor& tensor : tensors) {
    const Buffer data(name, {tensor}, Buffer::Use::change);
    calls.push_back({name, c10d::OpType::ALLREDUCE_COALESCED, data, data, options.timeout});
  }
  return all_reduce(std::move(calls), options.reduceOp, tensors);
}

WorkPtr ProcessGroup::allgather_into_tensor_coalesced(Tensors& out, Tensors& in,
                                                      const c10d::AllgatherOptions& options) {
  constexpr auto name = "tutti:all_gather_into_tensor_coalesced";
  check_parts(name, out, in);
  check_list(name, in, false);
  check_list(name, out, true);
  Calls calls;
  std::vector<Place> own;
  for (size_t n = 0; n < in.size(); ++n) {
    calls.push_back({name, c10d::OpType::ALLGATHER_COALESCED, Buffer(name, {in[n]}, Buffer::Use::read),
                     Buffer(name, {out[n]}, Buffer::Use::write), options.timeout});
    own.push_back(own_part(out[n], in[n]));
  }
  keep_apart(calls, own);
  return all_gather(std::move(calls), out);
}

WorkPtr ProcessGroup::allgather_coalesced(std::vector<Tensors>& out, Tensors& in,
                                          const c10d::AllgatherOptions& options) {
  constexpr auto name = "tutti:all_gather";
  Tensors all;
  TORCH_CHECK(out.size() == static_cast<size_t>(getSize()), name, ": got ", out.size(),
              " lists, expected one for each of the ", getSize(), " ranks");
  for (const Tensors& list : out) {
    TORCH_CHECK(list.size() == in.size(), name, ": a list has ", list.size(), " tensors, expected ", in.size());
    for (size_t n = 0; n < list.size(); ++n)
      TORCH_CHECK(list[n].sizes() == in[n].sizes(), name, ": tensor ", n, " of a list has the shape ", list[n].sizes(),
                  ", expected ", in[n].sizes());
    all.insert(all.end(), list.begin(), list.end());
  }
  check_list(name, in, false);
  check_list(name, all, true);
  TORCH_CHECK(all.front().scalar_type() == in.front().scalar_type(), name, ": the lists' tensors are of ",
              all.front().scalar_type(), ", expected ", in.front().scalar_type());
  Calls calls;
  for (size_t n = 0; n < in.size(); ++n) {
    const Buffer::Form form = in_blocks(in[n], in.size()) ? Buffer::Form::blocks : Buffer::Form::whole;
    Tensors of_ranks;
    for (const Tensors& list : out) of_ranks.push_back(list[n]);
    calls.push_back({name, c10d::OpType::ALLGATHER_COALESCED, Buffer(name, {in[n]}, Buffer::Use::read),
                     Buffer(name, of_ranks, Buffer::Use::write, form), options.timeout});
  }
  return all_gather_lists(std::move(calls), all);
}

WorkPtr ProcessGroup::reduce_scatter_tensor_coalesced(Tensors& out, Tensors& in,
                                                      const c10d::ReduceScatterOptions& options) {
  constexpr auto name = "tutti:reduce_scatter_tensor_coalesced";
  check_parts(name, in, out);
  check_list(name, in, false);
  check_list(name, out, true);
  Calls calls;
  std::vector<Place> own;
  for (size_t n = 0; n < in.size(); ++n) {
    calls.push_back({name, c10d::OpType::REDUCE_SCATTER, Buffer(name, {in[n]}, Buffer::Use::read),
                     Buffer(name, {out[n]}, Buffer::Use::write), options.timeout});
    const Place place = place_without_gaps(out[n]);
    own.push_back(place.begin == own_part(in[n], out[n]).begin ? place : Place{});
  }
  keep_apart(calls, own);
  return reduce_scatter(std::move(calls), options.reduceOp, out);
}

}  // namespace tutti::torch
