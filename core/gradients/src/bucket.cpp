// SPDX-License-Identifier: Apache-2.0
#include "bucket.hpp"

#include <tutti/schedule.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace tutti::gradients {
namespace {

// Numbers that are decoded, added and encoded together: they stay in the first cache.
constexpr size_t piece_numbers = 1024;
constexpr size_t block_numbers = core::CodeKernels::block_numbers;
static_assert(piece_numbers % block_numbers == 0);

// Calls body(first, size) for the pieces of [0, count).
template <typename Body>
void for_pieces(size_t count, Body&& body) {
  for (size_t first = 0; first < count; first += piece_numbers) body(first, std::min(piece_numbers, count - first));
}

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

}  // namespace

Bucket::Bucket(const Wiring& wiring, std::span<const Tensor> tensors, const Extent& extent)
    : wiring_(wiring), count_(extent.count), dtype_(extent.dtype), missing_(extent.tensors.size()) {
  for (const size_t number : extent.tensors) parts_.push_back({tensors[number].first, tensors[number].count});
  if (!wiring.codec || count_ == 0) return;
  const size_t each = (count_ + wiring.nranks - 1) / wiring.nranks;
  shard_ = (each + block_numbers - 1) / block_numbers * block_numbers;
  shard_bytes_ = wiring.codec->bytes(shard_);
  values_.emplace(shard_ * wiring.nranks * sizeof(float));  // zeroed, also behind the last number
  codes_.emplace(shard_bytes_ * wiring.nranks);
  received_.emplace(shard_bytes_ * wiring.nranks);
  if (wiring.feedback) lost_.resize(shard_);
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
    start_encoded();
  else
    start_plain();
}

void Bucket::start_plain() {
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
    return tutti_all_reduce(comm, where, where, count_, dtype_, wiring_.op, &wiring_.options, request);
  });
}

void Bucket::pack() {
  const bool adds = wiring_.codec && wiring_.feedback;
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

void Bucket::start_encoded() {
  pack();
  const core::Codec& codec = *wiring_.codec;
  std::array<float, piece_numbers> decoded;
  for (uint32_t rank = 0; rank < wiring_.nranks; ++rank) {
    uint8_t* const codes = codes_->data() + rank * shard_bytes_;
    for_pieces(shard_, [&](size_t first, size_t size) {
      const std::span<float> piece = numbers().subspan(rank * shard_ + first, size);
      codec.encode(piece, codes + codec.bytes(first));
      if (!wiring_.feedback) return;
      codec.decode(codes + codec.bytes(first), std::span(decoded).first(size));
      subtract_finite(piece, std::span(decoded).first(size));
    });
  }
  begin(wiring_.exchange, [&](tutti_comm* comm, tutti_request** request) {
    return tutti_all_to_all(comm, codes_->data(), received_->data(), shard_bytes_, TUTTI_UINT8, &wiring_.options,
                            request);
  });
}

// The result of this rank's shard, encoded in its place for all_gather.
void Bucket::reduce_shard() {
  const core::Codec& codec = *wiring_.codec;
  uint8_t* const result = codes_->data() + wiring_.rank * shard_bytes_;
  std::array<float, piece_numbers> sum, decoded;
  for_pieces(shard_, [&](size_t first, size_t size) {
    const std::span<float> total = std::span(sum).first(size), part = std::span(decoded).first(size);
    const size_t at = codec.bytes(first);
    codec.decode(received_->data() + at, total);
    for (uint32_t rank = 1; rank < wiring_.nranks; ++rank) {
      codec.decode(received_->data() + rank * shard_bytes_ + at, part);
      add(total, part);
    }
    if (wiring_.op == TUTTI_AVG)
      for (float& number : total) number /= static_cast<float>(wiring_.nranks);
    if (wiring_.feedback) add(total, std::span(lost_).subspan(first, size));
    codec.encode(total, result + at);
    if (!wiring_.feedback) return;
    codec.decode(result + at, part);
    subtract_finite(total, part);
    std::ranges::copy(total, lost_.begin() + static_cast<std::ptrdiff_t>(first));
  });
}

void Bucket::advance(bool may_gather) {
  if (stage_ == BucketStage::exchanging && request_.test()) {
    if (shard_ == 0) {
      stage_ = BucketStage::complete;
    } else if (may_gather) {
      reduce_shard();
      begin(wiring_.gather, [&](tutti_comm* comm, tutti_request** request) {
        return tutti_all_gather(comm, codes_->data() + wiring_.rank * shard_bytes_, codes_->data(), shard_bytes_,
                                TUTTI_UINT8, &wiring_.options, request);
      });
      stage_ = BucketStage::gathering;
    }
  }
  if (stage_ == BucketStage::gathering && request_.test()) stage_ = BucketStage::complete;
}

void Bucket::rest(uint64_t nanoseconds) { request_.wait_for(std::chrono::nanoseconds(nanoseconds)); }

void Bucket::unpack() {
  request_ = Request();
  if (shard_ > 0) {
    std::array<float, piece_numbers> decoded;
    auto part = parts_.begin();
    for (uint32_t rank = 0; rank < wiring_.nranks; ++rank)
      for_pieces(shard_, [&](size_t first, size_t size) {
        wiring_.codec->decode(codes_->data() + rank * shard_bytes_ + wiring_.codec->bytes(first),
                              std::span(decoded).first(size));
        const uint64_t begin = rank * shard_ + first, end = std::min<uint64_t>(begin + size, count_);
        for (uint64_t at = begin; at < end;) {
          while (at >= part->end()) ++part;
          const uint64_t some = std::min(end, part->end()) - at;
          if (part->data)
            std::copy_n(decoded.data() + (at - begin), some, static_cast<float*>(part->data) + (at - part->first));
          at += some;
        }
      });
  } else if (copied_) {
    for (const Part& part : parts_)
      if (part.data && part.count > 0)
        std::memcpy(part.data, values_->data() + part.first * dtype_bytes(dtype_), bytes_of(part));
  }
  for (Part& part : parts_) part.is_marked = false;
  missing_ = parts_.size();
  stage_ = BucketStage::waiting;
}

std::span<float> Bucket::lost(size_t place) {
  if (shard_ == 0 || !wiring_.feedback) return {};
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
