// SPDX-License-Identifier: Apache-2.0
#include "bucket.hpp"

#include <tutti/schedule.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "kernels/codec.hpp"

namespace tutti::gradients {
namespace {

constexpr size_t block_numbers = core::CodeKernels::block_numbers;

// left += right, element by element.
void add(std::span<float> left, std::span<const float> right) {
  float* __restrict to = left.data();
  for (size_t i = 0; i < left.size(); ++i) to[i] += right[i];
}

// left -= right; 0 where that is no finite number.
void subtract_finite(std::span<float> left, std::span<const float> right) {
  float* __restrict to = left.data();
  for (size_t i = 0; i < left.size(); ++i) {
    const float rest = to[i] - right[i];
    to[i] = (std::bit_cast<uint32_t>(rest) & 0x7fffffffu) < 0x7f800000u ? rest : 0.0f;
  }
}

// Leaves of contributions that have travelled what they have lost.
void keep_losses(uint32_t wire, std::span<float> numbers) {
  constexpr size_t most = 1024;  // numbers that stay in the first cache
  static_assert(most % block_numbers == 0);
  const core::Codec codec(wire);
  std::array<std::byte, 2 * most> codes;
  std::array<float, most> decoded;
  for (size_t first = 0; first < numbers.size(); first += most) {
    const std::span<float> piece = numbers.subspan(first, std::min(most, numbers.size() - first));
    codec.encode(piece, codes.data());
    codec.decode(codes.data(), std::span(decoded).first(piece.size()));
    subtract_finite(piece, std::span(decoded).first(piece.size()));
  }
}

}  // namespace

Bucket::Bucket(const Wiring& wiring, std::span<const Tensor> tensors, const Extent& extent, uint64_t tag)
    : wiring_(wiring),
      options_(wiring.options),
      count_(extent.count),
      dtype_(extent.dtype),
      missing_(extent.tensors.size()) {
  options_.tag = tag;
  for (const size_t number : extent.tensors) parts_.push_back({tensors[number].first, tensors[number].count});
  if (!wiring.feedback || count_ == 0) return;
  const size_t each = (count_ + wiring.nranks - 1) / wiring.nranks;
  shard_ = (each + block_numbers - 1) / block_numbers * block_numbers;
  values_.emplace(shard_ * wiring.nranks * sizeof(float));  // zeroed, also behind the last number
  results_.resize(shard_ * wiring.nranks);
  lost_.resize(shard_);
}

void Bucket::assign(size_t place, void* data) {
  parts_[place].is_marked = true;
  parts_[place].data = data;
  --missing_;
}

uint64_t Bucket::bytes_of(const Part& part) const { return part.count * dtype_bytes(dtype_); }

bool Bucket::is_contiguous() const {
  const char* next = nullptr;
  for (const Part& part : parts_) {
    if (part.count == 0) continue;
    if (!part.data || (next && next != part.data)) return false;
    next = static_cast<const char*>(part.data) + bytes_of(part);
  }
  return true;
}

template <typename Call>
void Bucket::begin(tutti_comm* comm, Call&& call) {
  tutti_request* request = nullptr;
  const tutti_status status = call(comm, &request);
  if (status < 0) throw Error(status, tutti_comm_error(comm));
  request_ = Request(request);
}

void Bucket::start() {
  stage_ = BucketStage::exchanging;
  if (count_ == 0)
    stage_ = BucketStage::complete;
  else if (shard_ > 0)
    reduce_with_feedback();
  else
    reduce();
}

void Bucket::reduce() {
  copied_ = !is_contiguous();
  if (copied_ && wiring_.device)
    throw Error(TUTTI_INVALID_USAGE, "the tensors of a bucket do not lie one after another (TUTTI_GRADIENTS_DEVICE)");
  const auto full = std::ranges::find_if(parts_, [](const Part& part) { return part.count > 0; });
  void* where = full->data;
  if (copied_) {
    if (!values_) values_.emplace(count_ * dtype_bytes(dtype_));
    pack();
    where = values_->data();
  }
  begin(wiring_.exchange, [&](tutti_comm* comm, tutti_request** request) {
    return tutti_all_reduce(comm, where, where, count_, dtype_, wiring_.op, &options_, request);
  });
}

void Bucket::pack() {
  const bool adds = shard_ > 0;
  for (const Part& part : parts_) {
    if (part.count == 0) continue;
    std::byte* const to = values_->data() + part.first * dtype_bytes(dtype_);
    if (adds && part.data)
      add(numbers().subspan(part.first, part.count), {static_cast<const float*>(part.data), part.count});
    else if (part.data)
      std::memcpy(to, part.data, bytes_of(part));
    else if (!adds)
      std::memset(to, 0, bytes_of(part));
  }
}

void Bucket::reduce_with_feedback() {
  pack();
  begin(wiring_.exchange, [&](tutti_comm* comm, tutti_request** request) {
    return tutti_reduce_scatter(comm, numbers().data(), own_shard().data(), shard_, dtype_, wiring_.op, &options_,
                                request);
  });
}

// The sums of this rank's shard are there.
void Bucket::gather() {
  keep_losses(options_.wire, numbers());
  add(lost_, own_shard());
  begin(wiring_.gather, [&](tutti_comm* comm, tutti_request** request) {
    return tutti_all_gather(comm, lost_.data(), results_.data(), shard_, dtype_, &options_, request);
  });
}

void Bucket::advance(bool may_gather) {
  if (stage_ == BucketStage::exchanging && request_.test()) {
    if (shard_ == 0) {
      stage_ = BucketStage::complete;
    } else if (may_gather) {
      gather();
      stage_ = BucketStage::gathering;
    }
  }
  if (stage_ == BucketStage::gathering && request_.test()) {
    subtract_finite(lost_, own_shard());
    stage_ = BucketStage::complete;
  }
}

void Bucket::rest(uint64_t nanoseconds) { request_.wait_for(std::chrono::nanoseconds(nanoseconds)); }

void Bucket::unpack() {
  request_ = Request();
  const std::byte* const from = shard_ > 0 ? reinterpret_cast<const std::byte*>(results_.data())
                                : copied_  ? values_->data()
                                           : nullptr;
  for (const Part& part : parts_)
    if (from && part.data && part.count > 0)
      std::memcpy(part.data, from + part.first * dtype_bytes(dtype_), bytes_of(part));
  for (Part& part : parts_) part.is_marked = false;
  missing_ = parts_.size();
  stage_ = BucketStage::waiting;
}

std::span<float> Bucket::lost(size_t place) {
  if (shard_ == 0) return {};
  return numbers().subspan(parts_[place].first, parts_[place].count);
}

void Bucket::shift_losses() {
  if (lost_.empty()) return;
  const float contributors = wiring_.op == TUTTI_AVG ? static_cast<float>(wiring_.nranks) : 1;
  for (float& number : lost_) number *= contributors;
  add(numbers().subspan(wiring_.rank * shard_, shard_), lost_);
  std::ranges::fill(lost_, 0.0f);
}

}  // namespace tutti::gradients
