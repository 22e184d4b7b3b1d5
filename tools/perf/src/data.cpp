// SPDX-License-Identifier: Apache-2.0
#include "data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "bits.hpp"
#include "complex.hpp"
#include "element.hpp"
#include "hash.hpp"
#include "pairs.hpp"
#include "rounding.hpp"

namespace perf {
namespace {

// The inputs of one type and operator. Op 0 moves.
template <typename T, uint32_t kOp>
class Source;

template <typename T, uint32_t kOp>
requires((kOp == 0 || combines_bits(kOp)) && is_single<T>) class Source<T, kOp> {
 public:
  static constexpr bool rounds = false;
  explicit Source(const Pattern& pattern)
      : seed_(mix(pattern.seed + 0x9e3779b97f4a7c15u)), nranks_(pattern.nranks), bits_(pattern.nranks) {}
  uint64_t index_hash(uint64_t index) const { return mix(seed_ + index * 0xd1342543de82ef95u); }
  T input(uint64_t index_hash, uint32_t rank) const {
    const uint64_t own = mix(index_hash + (uint64_t{rank} + 1) * 0x9e3779b97f4a7c15u);
    if constexpr (kOp == 0)
      return std::bit_cast<T>(static_cast<BitsOf<T>>(own));
    else
      return bits_.input(index_hash, own, rank);
  }
  T expected(uint64_t index_hash, uint32_t ranks) const {
    T result = input(index_hash, 0);
    for (uint32_t rank = 1; rank < ranks; ++rank) result = BitSource<T, kOp>::combine(result, input(index_hash, rank));
    return result;
  }

 private:
  uint64_t seed_;
  uint32_t nranks_;
  BitSource<T, kOp> bits_;
};

template <typename T, uint32_t kOp>
class Source {
 public:
  using Accumulator = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
  static constexpr bool rounds = kOp == TUTTI_AVG && !std::is_integral_v<T>;

  explicit Source(const Pattern& pattern) : seed_(mix(pattern.seed + 0x9e3779b97f4a7c15u)), nranks_(pattern.nranks) {
    if constexpr (!std::is_integral_v<T>) {
      const int room = kOp == TUTTI_PROD ? FloatTraits<T>::safe_exponent : FloatTraits<T>::digits;
      const uint64_t budget = kOp == TUTTI_PROD ? static_cast<uint64_t>(room) : uint64_t{1} << room;
      contributors_ = std::min<uint64_t>(nranks_, budget);
      largest_ = budget / contributors_;
      if (kOp == TUTTI_PROD) largest_ = std::min<uint64_t>(largest_, 8);
    }
  }

  // The generator of an index, shared by all ranks.
  uint64_t index_hash(uint64_t index) const { return mix(seed_ + index * 0xd1342543de82ef95u); }

  T input(uint64_t index_hash, uint32_t rank) const {
    const uint64_t h = mix(index_hash + (uint64_t{rank} + 1) * 0x9e3779b97f4a7c15u);
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(kOp == TUTTI_PROD ? h | 1 : h);
    } else {
      return FloatTraits<T>::from(number(index_hash, h, rank));
    }
  }

  T expected(uint64_t index_hash, uint32_t ranks) const {
    Accumulator result = start(input(index_hash, 0));
    for (uint32_t rank = 1; rank < ranks; ++rank) result = combine(result, start(input(index_hash, rank)));
    return finish(result, ranks);
  }

 private:
  double number(uint64_t index_hash, uint64_t h, uint32_t rank) const {
    const double sign = h >> 63 ? -1.0 : 1.0;
    constexpr int digits = FloatTraits<T>::digits;
    // Which ranks contribute more than the neutral element turns with the index, so that each does somewhere.
    const uint64_t slot = (rank + (index_hash >> 8)) % nranks_;
    if constexpr (kOp == TUTTI_SUM || kOp == TUTTI_AVG) {
      if (slot >= contributors_) return 0.0;
      const auto whole = static_cast<int64_t>(h % (2 * largest_ + 1)) - static_cast<int64_t>(largest_);
      return static_cast<double>(whole) * static_cast<double>(1u << (index_hash & 3));
    }
    const double mantissa =
        1.0 + std::ldexp(static_cast<double>(h >> 10 & ((uint64_t{1} << (digits - 1)) - 1)), 1 - digits);
    if constexpr (kOp == TUTTI_PROD) {
      const auto range = static_cast<int>(slot < contributors_ ? largest_ : 0);
      const int exponent = range ? static_cast<int>(h % static_cast<uint64_t>(2 * range + 1)) - range : 0;
      return sign * std::ldexp(slot == 0 ? mantissa : 1.0, exponent);
    }
    return sign * std::ldexp(mantissa, static_cast<int>(h & 15) - 8);
  }

  static Accumulator start(T element) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<uint64_t>(static_cast<int64_t>(element));
    else
      return FloatTraits<T>::value(element);
  }

  static Accumulator combine(Accumulator a, Accumulator b) {
    if constexpr (kOp == TUTTI_PROD) return a * b;
    if constexpr (kOp == TUTTI_MIN || kOp == TUTTI_MAX) {
      bool less = a < b;
      if constexpr (std::is_signed_v<T> && std::is_integral_v<T>)
        less = static_cast<int64_t>(a) < static_cast<int64_t>(b);
      return less == (kOp == TUTTI_MIN) ? a : b;
    }
    return a + b;
  }

  T finish(Accumulator result, uint32_t ranks) const {
    if constexpr (std::is_integral_v<T>) {
      const T wrapped = static_cast<T>(result);
      if constexpr (kOp != TUTTI_AVG) return wrapped;
      if constexpr (std::is_signed_v<T>) return static_cast<T>(static_cast<int64_t>(wrapped) / int64_t{ranks});
      return static_cast<T>(static_cast<uint64_t>(wrapped) / ranks);
    } else {
      return FloatTraits<T>::from(kOp == TUTTI_AVG ? result / ranks : result);
    }
  }

  uint64_t seed_;
  uint32_t nranks_;
  uint64_t contributors_ = 1;  // ranks per index that add more than the neutral element
  uint64_t largest_ = 1;       // the largest integer (sum) or exponent (prod)
};

// Of exact sums.
template <typename T>
class ExactSource : public RoundingSource<T> {
 public:
  explicit ExactSource(const Pattern& pattern) : RoundingSource<T>(pattern.op == TUTTI_AVG), seed_(pattern.seed) {}
  uint64_t index_hash(uint64_t index) const { return mix(seed_ + index * 0xd1342543de82ef95u); }
  T input(uint64_t index_hash, uint32_t rank) const { return RoundingSource<T>::input(own(index_hash, rank)); }
  T expected(uint64_t index_hash, uint32_t ranks) const {
    return RoundingSource<T>::expected(ranks, [&](uint32_t rank) { return own(index_hash, rank); });
  }

 private:
  static uint64_t own(uint64_t index_hash, uint32_t rank) {
    return mix(index_hash + (uint64_t{rank} + 1) * 0x9e3779b97f4a7c15u);
  }
  uint64_t seed_;
};

template <typename T>
constexpr bool has_exact_sum = std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16> || std::is_floating_point_v<T>;

template <typename Part, uint32_t kOp>
class Source<Complex<Part>, kOp> : public ComplexSource<Part, Source<Part, kOp>, kOp> {
  using ComplexSource<Part, Source<Part, kOp>, kOp>::ComplexSource;
};

constexpr uint32_t op_of_values(uint32_t op) {
  return op == TUTTI_MINLOC ? uint32_t{TUTTI_MIN} : op == TUTTI_MAXLOC ? uint32_t{TUTTI_MAX} : 0;
}
template <typename Value, typename Index, uint32_t kOp>
class Source<Pair<Value, Index>, kOp>
    : public PairSource<Pair<Value, Index>, Source<Value, op_of_values(kOp)>, Source<Index, 0>, kOp> {
  using PairSource<Pair<Value, Index>, Source<Value, op_of_values(kOp)>, Source<Index, 0>, kOp>::PairSource;
};

template <typename T>
std::string to_text(T element) {
  const auto bits = static_cast<uint64_t>(std::bit_cast<BitsOf<T>>(element));
  const std::string digits = fmt::format("0x{:0{}x}", bits, 2 * sizeof(T));
  if constexpr (std::is_same_v<T, Truth>)
    return digits;
  else if constexpr (!std::is_integral_v<T>)
    return fmt::format("{:.17g} ({})", FloatTraits<T>::value(element), digits);
  else if constexpr (std::is_signed_v<T>)
    return fmt::format("{} ({})", static_cast<int64_t>(element), digits);
  else
    return fmt::format("{} ({})", bits, digits);
}

// Floating numbers as integers in the same order: neighbours differ by one.
template <typename T>
int64_t ordinal(T element) {
  const auto bits = static_cast<int64_t>(std::bit_cast<BitsOf<T>>(element));
  constexpr int64_t sign = int64_t{1} << (8 * sizeof(T) - 1);
  if constexpr (sizeof(T) == 8) return bits < 0 ? std::numeric_limits<int64_t>::min() - bits : bits;
  return bits & sign ? sign - bits : bits;
}

template <typename T>
bool is_finite(T element) {
  return std::isfinite(FloatTraits<T>::value(element));
}

template <bool kRounds, typename T>
bool accepted(T expected, T got) {
  if (std::bit_cast<BitsOf<T>>(expected) == std::bit_cast<BitsOf<T>>(got)) return true;
  if constexpr (kRounds) {
    constexpr uint64_t units = 2;
    const auto distance = static_cast<uint64_t>(ordinal(expected)) - static_cast<uint64_t>(ordinal(got));
    return is_finite(got) && is_finite(expected) && distance + units <= 2 * units;
  }
  return false;
}

// What products of complex numbers give is exact but for the signs of parts that are zero.
template <bool kRounds, typename Part>
bool accepted(Complex<Part> expected, Complex<Part> got) {
  const auto part = [](Part right, Part one) { return accepted<kRounds>(right, one) || (right == 0 && one == 0); };
  return part(expected.real, got.real) && part(expected.imaginary, got.imaginary);
}
template <typename Part>
std::string to_text(Complex<Part> element) {
  return to_text(element.real) + ", " + to_text(element.imaginary);
}

template <bool kRounds, typename Value, typename Index>
bool accepted(Pair<Value, Index> expected, Pair<Value, Index> got) {
  return accepted<false>(expected.value, got.value) && expected.index == got.index;
}
template <typename Value, typename Index>
std::string to_text(Pair<Value, Index> element) {
  return to_text(element.value) + " at " + to_text(element.index);
}

template <bool kRounds, typename T, typename Expected>
void compare(const T* data, uint64_t count, uint64_t position, Expected&& expected, Mistakes* mistakes) {
  for (uint64_t i = 0; i < count; ++i) {
    T got;
    std::memcpy(&got, data + i, sizeof got);
    const T right = expected(i);
    if (accepted<kRounds>(right, got)) continue;
    if (mistakes->count++ == 0) {
      mistakes->first_index = position + i;
      mistakes->expected = to_text(right);
      mistakes->got = to_text(got);
    }
  }
}

// Calls body(Source<T, op>, T{}) if the operator is defined for the type.
template <typename T, uint32_t... kOps, typename Body>
void with_one_of(std::integer_sequence<uint32_t, kOps...>, const Pattern& pattern, Body&& body) {
  (void)((pattern.op == kOps && (body(Source<T, kOps>(pattern), T{}), true)) || ...);
}
template <typename Body>
void with_source(const Pattern& pattern, Body&& body) {
  using Moves = std::integer_sequence<uint32_t, 0>;
  using Orders = std::integer_sequence<uint32_t, TUTTI_SUM, TUTTI_PROD, TUTTI_MIN, TUTTI_MAX, TUTTI_AVG>;
  using Sums = std::integer_sequence<uint32_t, TUTTI_SUM, TUTTI_PROD, TUTTI_AVG>;
  using Bits = std::integer_sequence<uint32_t, TUTTI_BAND, TUTTI_BOR, TUTTI_BXOR, TUTTI_LAND, TUTTI_LOR, TUTTI_LXOR>;
  using Places = std::integer_sequence<uint32_t, TUTTI_MINLOC, TUTTI_MAXLOC>;
  with_type(pattern.dtype, [&]<typename T>(T) {
    if constexpr (has_exact_sum<T>)
      if (pattern.rounds) return body(ExactSource<T>(pattern), T{});
    with_one_of<T>(Moves{}, pattern, body);
    if constexpr (is_complex<T>) with_one_of<T>(Sums{}, pattern, body);
    if constexpr (is_pair<T>) with_one_of<T>(Places{}, pattern, body);
    if constexpr (!std::is_same_v<T, Truth> && is_single<T>) with_one_of<T>(Orders{}, pattern, body);
    if constexpr (std::is_same_v<T, Truth> || std::is_integral_v<T>) with_one_of<T>(Bits{}, pattern, body);
  });
}

}  // namespace

void fill_input(const Pattern& pattern, uint32_t rank, uint64_t first, uint64_t count, void* data) {
  with_source(pattern, [&]<typename S, typename T>(const S& source, T) {
    T* elements = static_cast<T*>(data);
    for (uint64_t i = 0; i < count; ++i) {
      const T element = source.input(source.index_hash(first + i), rank);
      std::memcpy(elements + i, &element, sizeof element);
    }
  });
}

void check_moved(const Pattern& pattern, uint32_t rank, uint64_t first, uint64_t count, const void* data,
                 uint64_t position, Mistakes* mistakes) {
  with_source(pattern, [&]<typename S, typename T>(const S& source, T) {
    compare<false>(
        static_cast<const T*>(data), count, position,
        [&](uint64_t i) { return source.input(source.index_hash(first + i), rank); }, mistakes);
  });
}

void check_reduced(const Pattern& pattern, uint32_t ranks, uint64_t first, uint64_t count, const void* data,
                   uint64_t position, Mistakes* mistakes) {
  with_source(pattern, [&]<typename S, typename T>(const S& source, T) {
    compare<S::rounds>(
        static_cast<const T*>(data), count, position,
        [&](uint64_t i) { return source.expected(source.index_hash(first + i), ranks); }, mistakes);
  });
}

}  // namespace perf
