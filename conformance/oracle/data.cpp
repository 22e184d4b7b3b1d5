// SPDX-License-Identifier: Apache-2.0
#include "oracle/data.hpp"

#include <tutti/plugin/types.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "oracle/exact_sum.hpp"

namespace tutti::conformance {
namespace {

// Above so many elements over all trials, fewer trials are made.
constexpr uint64_t most_elements_in_trials = uint64_t{1} << 16;
// min and max: of so many rounds of turns one is free, without a rank that is made to win. There, one index in so many
// has special values (NaN, infinity, signed zeros) among its operands.
constexpr uint64_t free_round = 4;
// They take a trial of their own, unless the input is too long for several.
constexpr uint64_t special_every = 12;

uint64_t scramble(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
  x = (x ^ x >> 29) * 0xa0761d6478bd642fu;
  return x ^ x >> 32;
}

uint64_t low_bits(uint64_t x, uint32_t bits) { return bits >= 64 ? x : x & ((uint64_t{1} << bits) - 1); }

// A bijection on numbers of `bits` bits: each line is one.
uint64_t permute(uint64_t x, uint32_t bits, const std::array<uint64_t, 3>& keys) {
  for (const uint64_t key : keys) {
    x = low_bits(x * (0x9e3779b97f4a7c15u | 1) + key, bits);
    x ^= x >> (bits / 2);
  }
  return x;
}

bool picks(uint32_t op) { return op == TUTTI_MIN || op == TUTTI_MAX; }
bool combines_bits(uint32_t op) { return op >= TUTTI_BAND && op <= TUTTI_LXOR; }
bool is_xor(uint32_t op) { return op == TUTTI_BXOR || op == TUTTI_LXOR; }
bool is_and(uint32_t op) { return op == TUTTI_BAND || op == TUTTI_LAND; }
// Only whether an element is 0 counts.
bool looks_at_truth(const ElementType& t, uint32_t op) { return t.truth() ? combines_bits(op) : op >= TUTTI_LAND; }
bool finds(uint32_t op) { return op == TUTTI_MINLOC || op == TUTTI_MAXLOC; }
bool adds(uint32_t op) { return op == TUTTI_SUM || op == TUTTI_AVG; }

// Finite magnitudes of a floating type are 0 ... this - 1.
uint64_t magnitudes(const ElementType& t) {
  const uint64_t top = ((uint64_t{1} << t.exponent_bits) - 1) << t.fraction_bits;
  return t.finite ? top | ((uint64_t{1} << t.fraction_bits) - 1) : top;
}

}  // namespace

bool is_of_application(uint32_t op) { return op == app_sum || op == app_compose; }
bool is_exact(uint32_t op) { return op == sum_exactly || op == avg_exactly; }

uint64_t combined(const ElementType& type, uint32_t op, uint64_t x, uint64_t y) {
  if (op == app_sum) return truncated(type, x + y);
  const uint32_t half = type.bits() / 2;
  const uint64_t a = low_bits(x, half), b = x >> half, c = low_bits(y, half), d = y >> half;
  return low_bits(a * c, half) | low_bits(a * d + b, half) << half;
}

Data::Data(const Pattern& pattern) : pattern_(pattern) {
  const ElementType& t = *pattern_.type;
  const unsigned __int128 codes = static_cast<unsigned __int128>(pattern_.nranks) * pattern_.length;
  code_bits_ = codes <= (uint64_t{1} << 16) ? 16 : codes <= (uint64_t{1} << 32) ? 32 : 64;
  digit_bits_ = t.bits();
  contributors_ = pattern_.nranks;
  if (t.pair() && pattern_.op) {
    Pattern part = pattern_;
    part.type = element_type("float32");
    part.op = pattern_.op == TUTTI_MINLOC ? TUTTI_MIN : TUTTI_MAX;
    parts_.emplace_back(part);
    part.type = element_type("int32");
    part.op = 0;  // any index, and no two the same
    part.seed = scramble(part.seed);
    parts_.emplace_back(part);
    digit_bits_ = parts_[0].digit_bits_;
  } else if (t.complex() && pattern_.op) {
    Pattern part = pattern_;
    part.type = element_type("float32");
    parts_.emplace_back(part);
    part.seed = scramble(part.seed);
    parts_.emplace_back(part);
    contributors_ = parts_[0].contributors_;
    digit_bits_ = parts_[0].digit_bits_;
  } else if (is_of_application(pattern_.op)) {
    digit_bits_ = pattern_.op == app_compose ? t.bits() - 1 : t.bits();
  } else if (is_exact(pattern_.op)) {
    digit_bits_ = static_cast<uint32_t>(t.fraction_bits);
  } else if (combines_bits(pattern_.op)) {
    digit_bits_ = looks_at_truth(t, pattern_.op) ? 1 : is_xor(pattern_.op) ? t.bits() : t.bits() - 1;
  } else if (picks(pattern_.op)) {
    // Two bits say which quarter of all values it lies in.
    digit_bits_ = t.floating() ? static_cast<uint32_t>(std::bit_width(magnitudes(t) / 2) - 1) : t.bits() - 2;
  } else if (!t.floating() && !t.complex() && !t.pair()) {
    if (pattern_.op == TUTTI_PROD) digit_bits_ = t.bits() - 1;  // odd numbers only: an even one loses bits for good
  } else if (adds(pattern_.op)) {
    const uint64_t budget = uint64_t{1} << t.digits();
    contributors_ = std::min<uint64_t>(pattern_.nranks, budget);
    digit_bits_ = static_cast<uint32_t>(std::bit_width(2 * (budget / contributors_)) - 1);
  } else if (pattern_.op == TUTTI_PROD) {
    const uint64_t budget = static_cast<uint64_t>(t.bias() - 2);
    contributors_ = std::min<uint64_t>(pattern_.nranks, budget);
    exponent_bits_ = std::bit_width(2 * std::min<uint64_t>(8, budget / contributors_)) - 1;
    digit_bits_ = static_cast<uint32_t>(1 + exponent_bits_);
  }
  keys_[0] = pattern_.seed;
  for (size_t k = 1; k < keys_.size(); ++k) keys_[k] = scramble(keys_[k - 1]);
  digit_place_ = pattern_.trial % digits() * digit_bits_;
  slot_shift_ = pattern_.trial / digits() * contributors_;
}

bool combines(const ElementType& t, uint32_t op) {
  if (t.complex()) return adds(op) || op == TUTTI_PROD;
  if (t.pair() || finds(op)) return t.pair() && finds(op);
  if (is_of_application(op)) return !t.truth();
  if (is_exact(op)) return t.floating() && t.bytes > 1;
  if (combines_bits(op)) return !t.floating();
  return !t.truth() && op >= TUTTI_SUM && op <= TUTTI_AVG;
}

uint32_t trials_of(const Pattern& pattern) {
  if (pattern.length == 0) return 1;
  // The digits that tell all codes apart.
  const Data data(pattern);
  uint64_t wanted = data.digits() * ((pattern.nranks + data.contributors() - 1) / data.contributors());
  if (finds(pattern.op) || (picks(pattern.op) && pattern.type->floating())) ++wanted;  // for special values
  // Each rank must come to win at some index.
  if (picks(pattern.op) || combines_bits(pattern.op))
    wanted = std::max(wanted, (uint64_t{pattern.nranks} + pattern.length - 1) / pattern.length);
  if (finds(pattern.op))
    wanted = std::max(wanted, (uint64_t{2} * pattern.nranks + pattern.length - 1) / pattern.length);
  const uint64_t affordable = std::max<uint64_t>(1, most_elements_in_trials / pattern.length);
  return static_cast<uint32_t>(std::min(wanted, affordable));
}

uint64_t Data::code(uint32_t rank, uint64_t index) const {
  return permute(uint64_t{rank} * pattern_.length + index, code_bits_, keys_);
}

// The digit of this trial, filled up with hash where the code is shorter.
uint64_t Data::digit(uint32_t rank, uint64_t index) const {
  const uint64_t own = code(rank, index) >> digit_place_;
  const uint32_t known = code_bits_ - digit_place_;
  if (known >= digit_bits_) return low_bits(own, digit_bits_);
  const uint64_t filling = scramble(pattern_.seed ^ own ^ uint64_t{rank} << 40 ^ index * 0xff51afd7ed558ccdu);
  return low_bits(own | filling << known, digit_bits_);
}

uint64_t Data::index_hash(uint64_t index) const { return scramble(pattern_.seed * 3 + position(index)); }

uint64_t Data::position(uint64_t index) const { return index + uint64_t{pattern_.trial} * pattern_.length; }

uint32_t Data::turn(uint64_t index) const {
  return static_cast<uint32_t>((position(index) + (pattern_.seed & 0xffff)) % pattern_.nranks);
}

// Without room for all, the ranks in the first `contributors_` slots count. They turn with the index, and once all
// digits have been shown, so that each rank shows all of its digits in some trial.
uint64_t Data::slot(uint32_t rank, uint64_t index) const { return (rank + index + slot_shift_) % pattern_.nranks; }

uint64_t Data::input(uint32_t rank, uint64_t index) const {
  const ElementType& t = *pattern_.type;
  if (picks(pattern_.op)) return extreme_input(rank, index);
  if (combines_bits(pattern_.op)) return bits_input(rank, index);
  if (finds(pattern_.op)) return pair_input(rank, index);
  if (pattern_.op == app_compose) return digit(rank, index) << 1 | 1;
  if (pattern_.op == app_sum) return digit(rank, index);
  if (is_exact(pattern_.op)) return exact_input(rank, index);
  if (!parts_.empty()) return complex_input(rank, index);
  if (pattern_.op && t.floating()) return rounded(t, term(rank, index));
  return pattern_.op == TUTTI_PROD ? digit(rank, index) << 1 | 1 : digit(rank, index);
}

// A floating term of a sum or product: the type has it exactly.
double Data::term(uint32_t rank, uint64_t index) const {
  return pattern_.op == TUTTI_PROD ? factor(rank, index) : summand(rank, index);
}

// Four quarters of all values, from the least to the greatest. But in free rounds the rank whose turn it is has its
// value in the quarter that wins.
uint64_t Data::extreme_input(uint32_t rank, uint64_t index) const {
  const ElementType& t = *pattern_.type;
  const uint64_t shared = index_hash(index);
  const uint64_t own = scramble(shared ^ (uint64_t{rank} + 1) * 0x8ebc6af09c88c6e3u);
  uint64_t quarter = own & 3;
  const bool free = position(index) / pattern_.nranks % free_round == free_round - 1;
  if (!free) {
    const uint64_t winning = pattern_.op == TUTTI_MIN ? 0 : 3;
    const uint64_t other = own % 3;
    quarter = rank == turn(index) ? winning : winning == 0 ? other + 1 : other;
  }
  const uint64_t low = digit(rank, index);
  if (!t.floating()) {
    const uint64_t key = quarter << digit_bits_ | low;
    return t.kind == ElementType::Kind::signed_integer ? key ^ uint64_t { 1 } << (t.bits() - 1) : key;
  }
  const uint64_t sign = quarter < 2 ? uint64_t{1} << (t.bits() - 1) : 0;
  const uint64_t special = (shared >> 8) % special_every;
  const bool may_be_special = pattern_.trial >= digits() || pattern_.length > most_elements_in_trials / 2;
  if (free && may_be_special && special < 3) {
    if (special == 0) return sign;  // zeros of both signs
    if (rank == turn(index)) {
      const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
      if (special == 1) return rounded(t, nan);
      if (!t.finite) return sign | rounded(t, infinity);
    }
  }
  const bool large = quarter == 0 || quarter == 3;
  return sign | (large ? magnitudes(t) / 2 + low : low);
}

// Sums: of the parts. Products: one factor has two parts, the others are real or imaginary, so that no order rounds.
uint64_t Data::complex_input(uint32_t rank, uint64_t index) const {
  const uint64_t a = parts_[0].input(rank, index), b = parts_[1].input(rank, index);
  if (pattern_.op != TUTTI_PROD || parts_[0].slot(rank, index) == 0) return a | b << 32;
  return b >> 31 ? a : a << 32;
}

template <typename Times>
uint64_t Data::fold_complex(uint64_t index, uint32_t ranks, Times times) const {
  if (pattern_.op != TUTTI_PROD) return parts_[0].fold(index, ranks, times) | parts_[1].fold(index, ranks, times) << 32;
  const ElementType& t = *parts_[0].pattern_.type;
  double real = 1, imaginary = 0;
  for (uint32_t rank = 0; rank < ranks; ++rank)
    for (uint32_t k = times(rank); k > 0; --k) {
      const uint64_t bits = input(rank, index);
      const double a = real, b = imaginary, c = value_of(t, bits & 0xffffffff), d = value_of(t, bits >> 32);
      real = a * c - b * d, imaginary = a * d + b * c;
    }
  return rounded(t, real) | rounded(t, imaginary) << 32;
}

uint64_t Data::pair_input(uint32_t rank, uint64_t index) const {
  const bool ties = position(index) / pattern_.nranks % 2 == 1;
  const bool same = ties && scramble(index_hash(index) + rank) % 2;
  return parts_[0].input(same ? turn(index) : rank, index) | parts_[1].input(rank, index) << 32;
}

// The first in this order: NaN, the values from the wanted end, the indices from the lowest.
template <typename Times>
uint64_t Data::fold_pairs(uint64_t index, uint32_t ranks, Times times) const {
  const ElementType& t = *parts_[0].pattern_.type;
  const auto place = [&](uint64_t bits) {
    const uint64_t value = bits & 0xffffffff;
    const int64_t order = pattern_.op == TUTTI_MINLOC ? ordinal(t, value) : -ordinal(t, value);
    return std::pair(is_nan(t, value) ? std::numeric_limits<int64_t>::min() : order,
                     signed_of(*parts_[1].pattern_.type, bits >> 32));
  };
  bool first = true;
  uint64_t best = 0;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if (!times(rank)) continue;
    const uint64_t bits = input(rank, index);
    if (first || place(bits) < place(best)) best = bits;
    first = false;
  }
  return best;
}

// Of or: all ranks are 0 but the one whose turn it is; that one has a bit that is always 1, its other bits are the
// digit's. In free rounds, and for xor, every rank has its digit. And is the complement. As truth values the digits are
// 0 and any other number; the rank whose turn it is shows each of the two in some rounds, the one that decides first.
uint64_t Data::bits_input(uint32_t rank, uint64_t index) const {
  const ElementType& t = *pattern_.type;
  const uint64_t d = digit(rank, index), round = position(index) / pattern_.nranks % free_round;
  const bool truth = looks_at_truth(t, pattern_.op), free = is_xor(pattern_.op) || round == free_round - 1;
  uint64_t ones = 0;  // of or
  if (is_xor(pattern_.op))
    ones = d;
  else if (free)
    ones = truth ? d : d << 1 | (index_hash(index) >> rank % 64 & 1);
  else if (rank == turn(index))
    ones = truth ? d | (round == 0) : d << 1 | 1;
  if (!truth) return truncated(t, is_and(pattern_.op) ? ~ones : ones);
  const bool value = (ones != 0) != is_and(pattern_.op);
  const uint64_t any = truncated(t, scramble(index_hash(index) ^ uint64_t{rank} << 32));
  return value ? (any ? any : 1) : 0;
}

uint64_t Data::combined_bits(uint64_t a, uint64_t b) const {
  if (looks_at_truth(*pattern_.type, pattern_.op)) a = a != 0, b = b != 0;
  return is_and(pattern_.op) ? a & b : is_xor(pattern_.op) ? a ^ b : a | b;
}

double Data::summand(uint32_t rank, uint64_t index) const {
  if (contributors_ < pattern_.nranks && slot(rank, index) >= contributors_) return 0.0;
  const uint64_t d = digit(rank, index), half = uint64_t{1} << (digit_bits_ - 1);
  return d < half ? static_cast<double>(d + 1) : -static_cast<double>(d - half + 1);
}

double Data::factor(uint32_t rank, uint64_t index) const {
  const ElementType& t = *pattern_.type;
  const uint64_t d = digit(rank, index);
  const uint64_t shared = index_hash(index);
  const uint64_t place = slot(rank, index);
  double value = d & 1 ? -1.0 : 1.0;
  if (place < contributors_) {
    const auto e = static_cast<int>(d >> 1), half = 1 << (exponent_bits_ - 1);
    value = std::ldexp(value, e < half ? e - half : e - half + 1);
  }
  if (place == 0) {
    const auto fraction = static_cast<double>(low_bits(shared >> 16, static_cast<uint32_t>(t.fraction_bits)));
    value *= 1.0 + std::ldexp(fraction, -t.fraction_bits);
  }
  return value;
}

// The numbers of an index lie within more binades than float has bits, beside those of float16. At every second index
// the higher ranks cancel the lower ones, some but for the last bit.
uint64_t Data::exact_input(uint32_t rank, uint64_t index) const {
  const ElementType& t = *pattern_.type;
  const uint64_t binades = t.exponent_bits > 5 ? 30 : 16;
  const uint64_t shared = index_hash(index), sign = uint64_t{1} << (t.bits() - 1);
  const uint32_t opposite = pattern_.nranks - 1 - rank;
  if (shared % 2 && opposite < rank) return exact_input(opposite, index) ^ sign ^ (shared >> 1 & 1);
  const uint64_t own = digit(rank, index), hash = scramble(own + shared);
  const uint64_t room = (uint64_t{1} << t.exponent_bits) - 6 - binades;  // sums of 16 numbers are finite
  const uint64_t exponent = (shared >> 8) % room + hash % binades;
  return own | exponent << t.fraction_bits | (hash >> 8 & 1 ? sign : 0);
}

template <typename Times>
uint64_t Data::fold(uint64_t index, uint32_t ranks, Times times) const {
  ranks = std::min(ranks, pattern_.nranks);
  if (is_exact(pattern_.op)) {
    std::vector<uint64_t> elements;
    for (uint32_t rank = 0; rank < ranks; ++rank) elements.insert(elements.end(), times(rank), input(rank, index));
    return exact_sum(*pattern_.type, elements, pattern_.op == avg_exactly ? ranks : 0);
  }
  if (finds(pattern_.op)) return fold_pairs(index, ranks, times);
  if (!parts_.empty()) return fold_complex(index, ranks, times);
  const ElementType& t = *pattern_.type;
  const bool floating = t.floating();
  bool first = true, nan = false;
  uint64_t whole = pattern_.op == TUTTI_PROD ? 1 : 0, best = 0;
  double real = pattern_.op == TUTTI_PROD ? 1.0 : 0.0;
  for (uint32_t rank = 0; rank < ranks; ++rank)
    for (uint32_t k = times(rank); k > 0; --k) {
      if (floating && !picks(pattern_.op) && !is_of_application(pattern_.op)) {
        real = pattern_.op == TUTTI_PROD ? real * term(rank, index) : real + term(rank, index);
        continue;
      }
      const uint64_t bits = input(rank, index);
      if (is_of_application(pattern_.op)) {
        whole = first ? bits : combined(t, pattern_.op, whole, bits);
      } else if (combines_bits(pattern_.op)) {
        whole = first ? bits : combined_bits(whole, bits);
      } else if (picks(pattern_.op)) {
        nan |= is_nan(t, bits);
        const int64_t a = floating ? ordinal(t, bits) : signed_of(t, bits);
        const int64_t b = floating ? ordinal(t, best) : signed_of(t, best);
        const bool unsigned_kind = t.kind == ElementType::Kind::unsigned_integer;
        const bool less = unsigned_kind ? static_cast<uint64_t>(a) < static_cast<uint64_t>(b) : a < b;
        if (first || less == (pattern_.op == TUTTI_MIN)) best = bits;
      } else {
        const auto value = static_cast<uint64_t>(signed_of(t, bits));
        whole = pattern_.op == TUTTI_PROD ? whole * value : whole + value;
      }
      first = false;
    }
  // One rank's reduction is a copy.
  if (combines_bits(pattern_.op)) return looks_at_truth(t, pattern_.op) && ranks > 1 ? whole != 0 : whole;
  if (is_of_application(pattern_.op)) return whole;
  if (picks(pattern_.op)) return nan ? rounded(t, std::numeric_limits<double>::quiet_NaN()) : best;
  const auto n = static_cast<int64_t>(ranks);
  if (floating) return rounded(t, pattern_.op == TUTTI_AVG ? real / static_cast<double>(n) : real);
  whole = truncated(t, whole);
  if (pattern_.op != TUTTI_AVG) return whole;
  if (t.kind == ElementType::Kind::unsigned_integer) return whole / static_cast<uint64_t>(n);
  return truncated(t, static_cast<uint64_t>(signed_of(t, whole) / n));
}

uint64_t Data::reduced(uint64_t index, uint32_t ranks) const {
  return fold(index, ranks, [](uint32_t) { return 1u; });
}
uint64_t Data::reduced_without(uint32_t without, uint64_t index, uint32_t ranks) const {
  return fold(index, ranks, [&](uint32_t rank) { return rank == without ? 0u : 1u; });
}
uint64_t Data::reduced_twice(uint32_t twice, uint64_t index, uint32_t ranks) const {
  return fold(index, ranks, [&](uint32_t rank) { return rank == twice ? 2u : 1u; });
}

bool Data::accepts(uint64_t expected, uint64_t got) const {
  if (expected == got) return true;
  if (finds(pattern_.op))
    return expected >> 32 == got >> 32 && parts_[0].accepts(expected & 0xffffffff, got & 0xffffffff);
  if (!parts_.empty()) {
    // The sign of a part that is zero depends on the order of products.
    const auto part = [&](uint64_t right, uint64_t one) {
      constexpr uint64_t magnitude = 0x7fffffff;
      return parts_[0].accepts(right, one) || (pattern_.op == TUTTI_PROD && !(right & magnitude) && !(one & magnitude));
    };
    return part(expected & 0xffffffff, got & 0xffffffff) && part(expected >> 32, got >> 32);
  }
  const ElementType& t = *pattern_.type;
  if (!t.floating() || !pattern_.op || is_of_application(pattern_.op) || is_exact(pattern_.op)) return false;
  if (is_nan(t, expected)) return is_nan(t, got);
  if (pattern_.op != TUTTI_AVG || is_nan(t, got) || is_infinite(t, got)) return false;
  constexpr int64_t granted = 2;
  const int64_t distance = ordinal(t, expected) - ordinal(t, got);
  return distance >= -granted && distance <= granted;
}

}  // namespace tutti::conformance
