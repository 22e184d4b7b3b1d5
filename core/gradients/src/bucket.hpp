// SPDX-License-Identifier: Apache-2.0
//
// One bucket on its way through a step: an all_reduce, in place in the tensors where these lie one after another, else in
// a copy; in a wire format by the options of the call.
//
// With error feedback the bucket is n equal shards, of which rank r owns the r-th:
//
//   pack             the tensors, added to what contributions have lost so far
//   reduce_scatter   each owner gets the sum of its shard, which is not rounded; contributions are, and lose
//   all_gather       all ranks get the results, with what each owner has lost so far, rounded: the owner loses
//   unpack
//
// Each rank sends 2 (n-1)/n times the bucket, or its codes, as a ring all_reduce does.
#pragma once

#include <tutti/gradients.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <tutti/tutti.hpp>
#include <vector>

#include "layout.hpp"

namespace tutti::gradients {

// All buckets share this.
struct Wiring {
  tutti_comm* exchange;  // for all_reduce and reduce_scatter, in the order of buckets
  tutti_comm* gather;    // for all_gather, in the order of buckets: so neither waits for the other
  uint32_t rank, nranks;
  uint32_t op;  // TUTTI_SUM or TUTTI_AVG
  bool feedback, device;
  tutti_options options;  // with the wire format
};

// A tensor in its bucket.
struct Part {
  uint64_t first, count;  // numbers of the bucket
  bool is_marked = false;
  void* data = nullptr;  // in this step; nullptr: the tensor is empty, or unused
  uint64_t end() const { return first + count; }
};

class Bucket {
 public:
  // Its calls have the tag `tag`.
  Bucket(const Wiring& wiring, std::span<const Tensor> tensors, const Extent& extent, uint64_t tag);

  // Where tensor `place` of the bucket is in this step; nullptr: nowhere, and it contributes zeros. The bucket is full
  // once it knows all.
  void assign(size_t place, void* data);
  bool is_assigned(size_t place) const { return parts_[place].is_marked; }
  bool is_unused(size_t place) const { return parts_[place].count > 0 && !parts_[place].data; }
  bool is_full() const { return missing_ == 0; }
  // Begins, and then takes every step that is possible. `may_gather`: all buckets before it have begun to gather.
  void start();
  void advance(bool may_gather);
  bool has_gathered() const { return stage_ >= BucketStage::gathering; }
  bool is_complete() const { return stage_ == BucketStage::complete; }
  // Waits at most so long for what is on its way.
  void rest(uint64_t nanoseconds);
  // Requires a complete bucket: the results go into the tensors, and the next step may begin.
  void unpack();

  // Requires a bucket between two steps. With error feedback: what tensor `place` has lost so far, which its next
  // contribution makes up for; else empty.
  std::span<float> lost(size_t place);
  // With error feedback: moves what this rank has lost as an owner of results into what it has lost as a contributor.
  void shift_losses();

 private:
  enum class BucketStage { waiting, exchanging, gathering, complete };
  void reduce();
  void reduce_with_feedback();
  void gather();
  void pack();
  uint64_t bytes_of(const Part& part) const;
  std::span<float> numbers() { return {reinterpret_cast<float*>(values_->data()), shard_ * wiring_.nranks}; }
  std::span<float> own_shard() { return std::span(results_).subspan(wiring_.rank * shard_, shard_); }
  bool is_contiguous() const;
  template <typename Call>
  void begin(tutti_comm* comm, Call&& call);

  const Wiring& wiring_;
  tutti_options options_;
  uint64_t count_;
  uint32_t dtype_;
  std::vector<Part> parts_;
  size_t missing_;
  BucketStage stage_ = BucketStage::waiting;
  Request request_;
  bool copied_ = false;
  std::optional<Buffer<std::byte>> values_;  // the packed tensors; with feedback also what was lost
  // With feedback only.
  size_t shard_ = 0;  // numbers
  std::vector<float> results_;
  std::vector<float> lost_;  // of this rank's shard of results
};

}  // namespace tutti::gradients
