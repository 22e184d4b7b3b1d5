// SPDX-License-Identifier: Apache-2.0
//
// Lists of tensors that travel together: one call of Tutti's for each tensor, all of them in one group. Tutti sends
// small ones as one, and each large one from where it lies. And batches: calls of any kind, with one handle.
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <utility>

#include "process_group.hpp"

namespace tutti::torch {
namespace {

using std::chrono::milliseconds;
using Future = c10::ivalue::Future;
using FuturePtr = c10::intrusive_ptr<Future>;

class Batch final : public c10d::Work {
 public:
  Batch(int rank, std::vector<WorkPtr> works) : c10d::Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

  bool isCompleted() override {
    return std::all_of(works_.begin(), works_.end(), [](const WorkPtr& work) { return work->isCompleted(); });
  }
  bool isSuccess() const override {
    return std::all_of(works_.begin(), works_.end(), [](const WorkPtr& work) { return work->isSuccess(); });
  }
  std::exception_ptr exception() const override {
    for (const WorkPtr& work : works_)
      if (std::exception_ptr failure = work->exception()) return failure;
    return nullptr;
  }
  Tensors result() override {
    Tensors all;
    for (const WorkPtr& work : works_) {
      const Tensors some = work->result();
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }
  void synchronize() override {}
  bool wait(milliseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (const WorkPtr& work : works_) {
      const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
      work->wait(timeout.count() > 0 ? std::max(left, milliseconds(1)) : timeout);
    }
    return true;
  }
  void abort() override { TORCH_CHECK(false, "tutti:batch: one batch cannot be aborted alone"); }
  FuturePtr getFuture() override;

 private:
  const std::vector<WorkPtr> works_;
  FuturePtr future_;  // mutex_ guards it
};

// The last of the calls to end completes it, in that call's thread.
FuturePtr Batch::getFuture() {
  const std::lock_guard lock(mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
  std::vector<FuturePtr> parts;
  for (const WorkPtr& work : works_) parts.push_back(work->getFuture());
  const auto complete = [whole = future_, parts] {
    Tensors all;
    for (const FuturePtr& part : parts) {
      if (part->hasError()) return whole->setError(part->exception_ptr());
      for (const at::Tensor& tensor : part->constValue().toTensorVector()) all.push_back(tensor);
    }
    whole->markCompleted(c10::IValue(all));
  };
  if (parts.empty()) complete();
  const auto left = std::make_shared<std::atomic<size_t>>(parts.size());
  for (const FuturePtr& part : parts)
    part->addCallback([left, complete](Future&) {
      if (left->fetch_sub(1) == 1) complete();
    });
  return future_;
}

}  // namespace

WorkPtr work_of_all(int rank, std::vector<WorkPtr> works) { return c10::make_intrusive<Batch>(rank, std::move(works)); }

// ---- Batches -----------------------------------------------------------------------------------------------

// Works are dropped where no mutex is held: a tensor that Python knows may need the interpreter's lock.
void ProcessGroup::startCoalescing() {
  std::optional<std::vector<WorkPtr>> last;
  const std::lock_guard lock(batches_mutex_);
  last.swap(batches_[std::this_thread::get_id()]);
  if (last)
    batches_.erase(std::this_thread::get_id());
  else
    batches_[std::this_thread::get_id()].emplace();
  batches_begun_.store(batches_.size());
  TORCH_CHECK(
      !last, teller("startCoalescing"), "this thread's last batch, of ", last->size(), " calls, has no end: batches ",
      "do not nest, and one that an exception leaves has no end. It is given up, and its calls go on alone: begin ",
      "a batch again");
}

WorkPtr ProcessGroup::endCoalescing() {
  std::vector<WorkPtr> works;
  const std::lock_guard lock(batches_mutex_);
  auto batch = batches_.extract(std::this_thread::get_id());
  TORCH_CHECK(batch, teller("endCoalescing"),
              "this thread has begun no batch, expected startCoalescing in the same thread ", "before");
  batches_begun_.store(batches_.size());
  if (batch.mapped()) works.swap(*batch.mapped());
  return work_of_all(getRank(), std::move(works));
}

void ProcessGroup::remember(const WorkPtr& work) {
  const std::lock_guard lock(batches_mutex_);
  const auto batch = batches_.find(std::this_thread::get_id());
  if (batch != batches_.end() && batch->second) batch->second->push_back(work);
}

// At an abort, whose caller may be in a batch of this group, and ends it afterwards.
void ProcessGroup::forget_batches() {
  std::vector<std::optional<std::vector<WorkPtr>>> forgotten;
  const std::lock_guard lock(batches_mutex_);
  for (auto& [thread, works] : batches_) forgotten.emplace_back().swap(works);
}

// ---- Lists -------------------------------------------------------------------------------------------------

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
    const Buffer data(name, tensor, Buffer::Use::change);
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
    calls.push_back({name, c10d::OpType::ALLGATHER_COALESCED, Buffer(name, in[n], Buffer::Use::read),
                     Buffer(name, out[n], Buffer::Use::write), options.timeout});
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
    calls.push_back({name, c10d::OpType::ALLGATHER_COALESCED, Buffer(name, in[n], Buffer::Use::read),
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
    calls.push_back({name, c10d::OpType::REDUCE_SCATTER, Buffer(name, in[n], Buffer::Use::read),
                     Buffer(name, out[n], Buffer::Use::write), options.timeout});
    const Place place = place_without_gaps(out[n]);
    own.push_back(place.begin == own_part(in[n], out[n]).begin ? place : Place{});
  }
  keep_apart(calls, own);
  return reduce_scatter(std::move(calls), options.reduceOp, out);
}

}  // namespace tutti::torch
