// SPDX-License-Identifier: Apache-2.0
//
// Sums of sparse tensors, as of an embedding's gradients: the ranks gather all indices and values, and each one adds
// them. How many elements each rank has must be known first, so the call itself waits for the other ranks' calls.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "process_group.hpp"

namespace tutti::torch {
namespace {

constexpr int64_t most_dimensions = 16;
// A rank's tensor in numbers: elements, dimensions, how many of these are sparse, and the sizes.
using Facts = std::array<int64_t, 3 + most_dimensions>;

Facts facts_of(const at::Tensor& tensor) {
  Facts facts{tensor._nnz(), tensor.dim(), tensor.sparse_dim()};
  std::ranges::copy(tensor.sizes(), facts.begin() + 3);
  return facts;
}

std::string text_of(const int64_t* facts) {
  const auto dimensions = static_cast<size_t>(std::clamp<int64_t>(facts[1], 0, most_dimensions));
  return c10::str("the shape ", at::IntArrayRef(facts + 3, dimensions), ", of which ", facts[2],
                  " dimensions are sparse");
}

}  // namespace

WorkPtr ProcessGroup::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  constexpr auto name = "tutti:all_reduce";
  const at::Tensor tensor = only(name, tensors);
  TORCH_CHECK(tensor.is_cpu() && tensor.layout() == at::kSparse, name, ": a ", tensor.layout(), " tensor on ",
              tensor.device(), ", expected a Sparse one on the cpu: call to_dense()");
  TORCH_CHECK(options.reduceOp == c10d::ReduceOp::SUM, name,
              ": sparse tensors can only be added: expected the operator SUM; for others call to_dense()");
  TORCH_CHECK(tensor.dim() <= most_dimensions, name, ": a sparse tensor of ", tensor.dim(),
              " dimensions, expected at most ", most_dimensions);
  std::optional<Unseen> unseen(std::in_place);
  const at::Tensor mine = tensor.coalesce();
  Facts facts = facts_of(mine);
  const auto width = static_cast<int64_t>(facts.size());
  at::Tensor own = at::from_blob(facts.data(), {width}, at::kLong).clone(),
             all = at::empty({getSize(), width}, at::kLong);
  unseen.reset();  // the wait may run a signal handler, and the operation outlive this call by it
  c10d::AllgatherOptions of_facts;
  of_facts.timeout = options.timeout;
  _allgather_base(all, own, of_facts)->wait();
  unseen.emplace();
  Tensors indices, values;
  for (int rank = 0; rank < getSize(); ++rank) {
    const int64_t* const theirs = all.const_data_ptr<int64_t>() + rank * width;
    TORCH_CHECK(std::equal(facts.begin() + 1, facts.end(), theirs + 1), name, ": tensors differ: rank ", rank,
                "'s has ", text_of(theirs), "; expected ", text_of(facts.data()), ", as on rank ", getRank());
    std::vector<int64_t> sizes = mine._values().sizes().vec();
    sizes.front() = theirs[0];
    indices.push_back(at::empty({mine.sparse_dim(), theirs[0]}, at::kLong));
    values.push_back(at::empty(sizes, mine._values().options()));
  }
  Calls calls;
  for (const auto& [part, parts] : {std::pair(mine._indices(), indices), std::pair(mine._values(), values)})
    calls.push_back({name, c10d::OpType::_ALLREDUCE_SPARSE, Buffer(name, part, Buffer::Use::read),
                     Buffer(name, parts, Buffer::Use::write, Buffer::Form::blocks), options.timeout});
  return all_gather_lists(std::move(calls), tensors, [tensor, indices, values] {
    const Unseen guard;
    const auto sum =
        at::_sparse_coo_tensor_unsafe(at::cat(indices, 1), at::cat(values), tensor.sizes(), tensor.options());
    at::Tensor(tensor).copy_(sum.coalesce());
  });
}

}  // namespace tutti::torch
