// SPDX-License-Identifier: Apache-2.0
//
// The loops over kernel_vectors.hpp, and the table of all of them. A kernels_<path>.cpp defines TUTTI_KERNELS, the
// table's name, and includes this.
#pragma once

#include "kernels/exact_sum.hpp"
#include "kernels/exact_sum_in_float.hpp"
#include "kernels/kernel_codes.hpp"
#include "kernels/kernel_parts.hpp"
#include "kernels/kernel_table.hpp"
#include "kernels/kernel_vectors.hpp"

namespace tutti::core {
namespace {

// Elements per vector: as many accumulators as a register holds.
template <typename E>
constexpr int width = vector_bytes / accumulator_bytes<E>;

// Steps over elements [first, last), fewer than a vector.
template <typename E, typename Body>
TUTTI_INLINE void edge(uint64_t first, uint64_t last, const Body& body) {
#if defined(__AVX512BW__)
  body(Masked<width<E>>{static_cast<uint32_t>(last - first)}, first);
#else
  if constexpr (width < E >> 8)
    for (; first + 8 <= last; first += 8) body(Edge<8>{}, first);
  for (; first < last; ++first) body(Edge<1>{}, first);
#endif
}

// Steps over all elements: `head` of them first, then whole vectors, then the rest.
template <typename E, typename Body>
TUTTI_INLINE void sweep(uint64_t count, uint64_t head, const Body& body) {
  constexpr int lanes = width<E>;
  if (head) edge<E>(0, head, body);
  uint64_t i = head;
#pragma GCC unroll 2
  for (; i + lanes <= count; i += lanes) body(Whole<lanes>{}, i);
  if (i < count) edge<E>(i, count, body);
}

// The computation of a step: two sources ...
template <typename E, typename Op>
struct FoldTwo {
  const char* a;
  const char* b;
  template <typename Access>
  TUTTI_INLINE auto operator()(Access access, uint64_t i) const {
    using S = typename E::Stored;
    constexpr int N = Access::lanes;
    const auto x = E::template widen<N>(access.template load<S>(a + i * sizeof(S)));
    const auto y = E::template widen<N>(access.template load<S>(b + i * sizeof(S)));
    return E::template narrow<N>(Op::template apply<typename E::Accumulator, N>(x, y));
  }
};
// ... or any number, and a division.
template <typename E, typename Op>
struct FoldMany {
  const void* const* srcs;
  uint32_t n;
  uint64_t divisor;
  template <typename Access>
  TUTTI_INLINE auto operator()(Access access, uint64_t i) const {
    using S = typename E::Stored;
    constexpr int N = Access::lanes;
    const uint64_t offset = i * sizeof(S);
    auto sum = E::template widen<N>(access.template load<S>(static_cast<const char*>(srcs[0]) + offset));
    for (uint32_t k = 1; k < n; ++k)
      sum = Op::template apply<typename E::Accumulator, N>(
          sum, E::template widen<N>(access.template load<S>(static_cast<const char*>(srcs[k]) + offset)));
    if constexpr (Op::divides)
      if (divisor) sum = divide<typename E::Accumulator, N>(sum, divisor);
    return E::template narrow<N>(sum);
  }
};

// The alignment of destinations: the elements up to the first vector boundary, and the destinations that can be
// streamed to from there.
struct Placement {
  uint64_t head = 0;
  bool streams[2] = {false, false};
};

template <typename S>
Placement placement_of(const Reduction& r, uint64_t vector) {
  Placement placement;
  int lead = -1;  // the destination whose boundaries are kept: a streamed one before others
  for (int k = static_cast<int>(r.ndsts) - 1; k >= 0; --k) {
    if (reinterpret_cast<uintptr_t>(r.dsts[k]) % sizeof(S) != 0) continue;
    if (lead < 0 || r.streaming[k] || !r.streaming[lead]) lead = k;
  }
  if (lead < 0) return placement;
  // Short ordinary writes are done sooner than aligned.
  if (!r.streaming[lead] && r.count * sizeof(S) < 512) return placement;
  placement.head = (0 - reinterpret_cast<uintptr_t>(r.dsts[lead])) % vector / sizeof(S);
  if (placement.head >= r.count) {
    placement.head = 0;  // all edge
    return placement;
  }
  for (uint32_t k = 0; k < r.ndsts; ++k)
    placement.streams[k] =
        r.streaming[k] && (reinterpret_cast<uintptr_t>(r.dsts[k]) + placement.head * sizeof(S)) % vector == 0;
  return placement;
}

TUTTI_INLINE void fence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// Runs a fold with the stores that the reduction asks for: loops of their own for one destination and for ordinary
// stores to two, one for all else.
template <typename E, bool Specialised, typename Fold>
TUTTI_INLINE void write(const Reduction& r, const Fold& fold) {
  using S = typename E::Stored;
  const Placement placement = placement_of<S>(r, static_cast<uint64_t>(width<E>) * sizeof(S));
  char* const d0 = static_cast<char*>(r.dsts[0]);
  if (Specialised && r.ndsts == 1 && !placement.streams[0])
    return sweep<E>(
        r.count, placement.head, [=](auto access, uint64_t i) __attribute__((always_inline)) {
          access.template store<S>(d0 + i * sizeof(S), fold(access, i));
        });
  if (Specialised && r.ndsts == 1) {
    sweep<E>(
        r.count, placement.head, [=](auto access, uint64_t i) __attribute__((always_inline)) {
          access.template stream<S>(d0 + i * sizeof(S), fold(access, i));
        });
    return fence();
  }
  char* const d1 = r.ndsts == 2 ? static_cast<char*>(r.dsts[1]) : nullptr;
  if (Specialised && d1 && !placement.streams[0] && !placement.streams[1])
    return sweep<E>(
        r.count, placement.head, [=](auto access, uint64_t i) __attribute__((always_inline)) {
          const auto value = fold(access, i);
          access.template store<S>(d0 + i * sizeof(S), value);
          access.template store<S>(d1 + i * sizeof(S), value);
        });
  const bool s0 = placement.streams[0], s1 = placement.streams[1];
  sweep<E>(
      r.count, placement.head, [=](auto access, uint64_t i) __attribute__((always_inline)) {
        const auto value = fold(access, i);
        const uint64_t offset = i * sizeof(S);
        if (s0)
          access.template stream<S>(d0 + offset, value);
        else
          access.template store<S>(d0 + offset, value);
        if (!d1) return;
        if (s1)
          access.template stream<S>(d1 + offset, value);
        else
          access.template store<S>(d1 + offset, value);
      });
  if (s0 || s1) fence();
}

template <typename E, typename Op>
[[gnu::noinline]] void reduce_two(const Reduction& r) {
  write<E, true>(r, FoldTwo<E, Op>{static_cast<const char*>(r.srcs[0]), static_cast<const char*>(r.srcs[1])});
}

template <typename E, typename Op>
struct SameBits {
  using type = E;
};
// Wrapping sums and products of signed integers are the unsigned ones': one copy of the code.
template <std::integral T, typename Op>
requires(!Op::ordered) struct SameBits<Plain<T>, Op> {
  using type = Plain<std::make_unsigned_t<T>>;
};

template <typename E, typename Op>
void reduce(const Reduction& r) {
  if (r.count == 0) return;
  if (r.nsrcs == 2 && r.divisor == 0) return reduce_two<typename SameBits<E, Op>::type, Op>(r);
  if (r.nsrcs == 1 && r.divisor == 0) return reduce_by_copy(r, sizeof(typename E::Stored));
  write<E, false>(r, FoldMany<E, Op>{r.srcs, r.nsrcs, r.divisor});
}

// The sum of complex numbers is that of twice as many parts.
template <typename T>
void reduce_complex_sum(const Reduction& r) {
  Reduction parts = r;
  parts.count *= 2;
  reduce<Plain<T>, Sum>(parts);
}

void stream(void* to, const void* from, uint64_t bytes) {
  char* dst = static_cast<char*>(to);
  const char* src = static_cast<const char*>(from);
  uint64_t head = (0 - reinterpret_cast<uintptr_t>(dst)) % vector_bytes;
  if (head > bytes) head = bytes;
  __builtin_memcpy(dst, src, head);
  uint64_t i = head;
  constexpr Whole<vector_bytes> vector;
#pragma GCC unroll 4
  for (; i + vector_bytes <= bytes; i += vector_bytes) vector.stream<uint8_t>(dst + i, vector.load<uint8_t>(src + i));
  __builtin_memcpy(dst + i, src + i, bytes - i);
  fence();
}

// The ordinary sum of two is exact: one rounding, or for 16-bit floats one to float and another one, which is harmless
// where the wider format has at least 2 p + 2 bits for p (Figueroa, When is double rounding innocuous?, 1995).
template <typename E, typename ExactE>
[[gnu::noinline]] void sum_exactly(const Reduction& r) {
  if (r.nsrcs == 2 && r.divisor <= 1) return reduce_two<E, Sum>(r);
  if constexpr (sizeof(typename E::Stored) == 2) {
    const FloatFold<ExactE> in_float(r.srcs, r.nsrcs, r.divisor);
    if (in_float.serves()) return write<InFloat<ExactE>, true>(r, in_float);
  }
  write<ExactE, true>(r, ExactFold<ExactE>(r.srcs, r.nsrcs, r.divisor));
}

// The application may have set another rounding, or that denormal numbers are zeros (-ffast-math does).
template <typename E, typename ExactE>
void reduce_exactly(const Reduction& r) {
  if (r.count == 0) return;
  if (r.nsrcs == 1 && r.divisor <= 1) return reduce_by_copy(r, sizeof(typename E::Stored));
#if defined(__x86_64__)
  constexpr uint32_t flags = 0x3f, usual = 0x1f80;  // nearest, denormal numbers kept, no traps
  if (const uint32_t mode = _mm_getcsr(); (mode & ~flags) != usual) [[unlikely]] {
    _mm_setcsr(usual);
    sum_exactly<E, ExactE>(r);
    return _mm_setcsr(mode);
  }
#endif
  sum_exactly<E, ExactE>(r);
}

#define TUTTI_NUMBERS(E) nullptr, reduce<E, Sum>, reduce<E, Prod>, reduce<E, Min>, reduce<E, Max>, nullptr
// Bit operators do not know signs: U is the unsigned type of the element's size.
#define TUTTI_BITS(U) reduce<Plain<U>, And<false>>, reduce<Plain<U>, Or<false>>, reduce<Plain<U>, Xor<false>>
#define TUTTI_TRUTHS(U) reduce<Plain<U>, And<true>>, reduce<Plain<U>, Or<true>>, reduce<Plain<U>, Xor<true>>
#define TUTTI_INTEGER(T, U) \
  { TUTTI_NUMBERS(Plain<T>), TUTTI_BITS(U), TUTTI_TRUTHS(U) }
#define TUTTI_FLOAT(E) \
  { TUTTI_NUMBERS(E) }
#define TUTTI_COMPLEX(T) \
  { nullptr, reduce_complex_sum<T>, reduce_parts<ComplexProd<T>> }
#define TUTTI_PAIR(T, I)                                                                                        \
  {                                                                                                             \
    nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, \
        reduce_parts<ExtremePlace<T, I, false>>, reduce_parts<ExtremePlace<T, I, true>>                         \
  }

}  // namespace

using E4M3 = Float8<3, true>;
using E5M2 = Float8<2, false>;

// By the numbers of types and operators.
const KernelTable TUTTI_KERNELS = {
    {{},
     TUTTI_INTEGER(int8_t, uint8_t),
     TUTTI_INTEGER(int16_t, uint16_t),
     TUTTI_INTEGER(int32_t, uint32_t),
     TUTTI_INTEGER(int64_t, uint64_t),
     TUTTI_INTEGER(uint8_t, uint8_t),
     TUTTI_INTEGER(uint16_t, uint16_t),
     TUTTI_INTEGER(uint32_t, uint32_t),
     TUTTI_INTEGER(uint64_t, uint64_t),
     TUTTI_FLOAT(Float16),
     TUTTI_FLOAT(Bfloat16),
     TUTTI_FLOAT(Plain<float>),
     TUTTI_FLOAT(Plain<double>),
     TUTTI_FLOAT(E4M3),
     TUTTI_FLOAT(E5M2),
     // bool: bits of any byte that is not 0 are those of 1
     {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, TUTTI_TRUTHS(uint8_t), TUTTI_TRUTHS(uint8_t)},
     TUTTI_COMPLEX(float),
     TUTTI_COMPLEX(double),
     TUTTI_PAIR(float, int32_t),
     TUTTI_PAIR(double, int64_t)},
    {reduce_exactly<Float16, ExactFloat16>, reduce_exactly<Bfloat16, ExactBfloat16>,
     reduce_exactly<Plain<float>, ExactFloat32>, reduce_exactly<Plain<double>, ExactFloat64>},
    stream,
    {encode_numbers<Float16>, decode_numbers<Float16>},
    {encode_numbers<Bfloat16>, decode_numbers<Bfloat16>},
    {encode_blocks, decode_blocks},
    sum_blocks};

}  // namespace tutti::core
