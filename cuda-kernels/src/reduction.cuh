// SPDX-License-Identifier: Apache-2.0
//
// The device code of a COPY or REDUCE: the fold of tutti/sdk/arithmetic.hpp over n sources. If all addresses have the
// same offset within 16 bytes, the body is read and written in 16-byte vectors and only the edges by elements.
// Otherwise everything goes by elements, or by bytes if elements are not aligned. `share` is a thread's part of the
// work.
#pragma once

#include <cstring>
#include <tutti/sdk/arithmetic.hpp>
#include <utility>

#include "cuda_error.hpp"

namespace tutti::cuda {

constexpr uint32_t threads = 512;  // of a block
constexpr uint32_t vector_bytes = 16;
constexpr uint32_t folds = sdk::last_fold - sdk::first_fold + 1, types = sdk::last_dtype - sdk::first_dtype + 1;

struct Share {
  uint64_t first, stride;
};

struct Work {
  unsigned char* dst;
  uint64_t count;    // elements
  uint64_t head;     // elements before the first vector
  uint64_t vectors;  // 0: all by elements
  uint64_t divisor;
  uint32_t n;
  uint32_t aligned;  // elements are
};

template <typename T>
__device__ __forceinline__ T load(const unsigned char* from, bool aligned) {
  if (aligned) return *reinterpret_cast<const T*>(from);
  T value;
  unsigned char bytes[sizeof(T)];
#pragma unroll
  for (uint32_t i = 0; i < sizeof(T); ++i) bytes[i] = from[i];
  memcpy(&value, bytes, sizeof value);
  return value;
}

template <typename T>
__device__ __forceinline__ void store(unsigned char* to, T value, bool aligned) {
  if (aligned) {
    *reinterpret_cast<T*>(to) = value;
    return;
  }
  unsigned char bytes[sizeof(T)];
  memcpy(bytes, &value, sizeof value);
#pragma unroll
  for (uint32_t i = 0; i < sizeof(T); ++i) to[i] = bytes[i];
}

// How the addresses of a command lie. `source(k)` is address k of n.
template <typename Source>
TUTTI_ELEMENTWISE Work lay_out(void* dst, uint32_t n, const Source& source, uint64_t count, uint64_t divisor,
                               uint32_t size) {
  Work work{};
  work.dst = static_cast<unsigned char*>(dst);
  work.count = count;
  work.divisor = divisor;
  work.n = n;
  const auto base = reinterpret_cast<uintptr_t>(dst);
  bool alike = true, aligned = base % size == 0;
  const auto look = [&](const void* address) {
    alike &= reinterpret_cast<uintptr_t>(address) % vector_bytes == base % vector_bytes;
    aligned &= reinterpret_cast<uintptr_t>(address) % size == 0;
  };
  for (uint32_t k = 0; k < n; ++k) look(source(k));
  work.aligned = aligned;
  if (alike && aligned) {
    work.head = (vector_bytes - base % vector_bytes) % vector_bytes / size;
    if (work.head > work.count) work.head = work.count;
    work.vectors = (work.count - work.head) * size / vector_bytes;
  }
  return work;
}

template <typename Element, uint32_t Op, typename Source>
__device__ __forceinline__ void reduce_share(const Source& source, const Work& work, const Share share) {
  using Stored = typename Element::Stored;
  using Accumulator = typename Element::Accumulator;
  constexpr uint32_t lanes = vector_bytes / sizeof(Stored);
  for (uint64_t v = share.first; v < work.vectors; v += share.stride) {
    const uint64_t at = work.head * sizeof(Stored) + v * vector_bytes;
    union {
      uint4 whole;
      Stored parts[lanes];
    } in, out;
    Accumulator sums[lanes];
    // The next source is on its way while one is added.
    const auto load_vector = [&](uint32_t k) { return *reinterpret_cast<const uint4*>(source(k) + at); };
    in.whole = load_vector(0);
    uint4 ahead = work.n > 1 ? load_vector(1) : in.whole;
#pragma unroll
    for (uint32_t i = 0; i < lanes; ++i) sums[i] = Element::widen(in.parts[i]);
    for (uint32_t k = 1; k < work.n; ++k) {
      in.whole = ahead;
      if (k + 1 < work.n) ahead = load_vector(k + 1);
#pragma unroll
      for (uint32_t i = 0; i < lanes; ++i) sums[i] = sdk::combine<Op>(sums[i], Element::widen(in.parts[i]));
    }
#pragma unroll
    for (uint32_t i = 0; i < lanes; ++i)
      out.parts[i] = Element::narrow(work.divisor ? sdk::divided(sums[i], work.divisor) : sums[i]);
    *reinterpret_cast<uint4*>(work.dst + at) = out.whole;
  }

  // The edges, or everything.
  const uint64_t body = work.vectors * lanes;
  for (uint64_t e = share.first; e < work.count - body; e += share.stride) {
    const uint64_t at = (e < work.head ? e : e + body) * sizeof(Stored);
    const Stored value = sdk::fold<Element, Op>(work.n, work.divisor,
                                                [&](uint32_t k) { return load<Stored>(source(k) + at, work.aligned); });
    store(work.dst + at, value, work.aligned);
  }
}

__device__ __forceinline__ void copy_share(const unsigned char* from, const Work& work, const Share share) {
  for (uint64_t v = share.first; v < work.vectors; v += share.stride) {
    const uint64_t at = work.head + v * vector_bytes;
    const uint4 whole = *reinterpret_cast<const uint4*>(from + at);
    *reinterpret_cast<uint4*>(work.dst + at) = whole;
  }
  const uint64_t body = work.vectors * vector_bytes;
  for (uint64_t e = share.first; e < work.count - body; e += share.stride) {
    const uint64_t at = e < work.head ? e : e + body;
    const unsigned char value = from[at];
    work.dst[at] = value;
  }
}

// Not <<<>>> and cudaGetLastError, which would give back an error that the application left behind.
template <typename... Arguments>
void start(const char* what, const void* function, uint32_t blocks, cudaStream_t stream, Arguments... arguments) {
  void* addresses[] = {&arguments...};
  check(what, cudaLaunchKernel(function, dim3(blocks), dim3(threads), addresses, 0, stream));
}

}  // namespace tutti::cuda
