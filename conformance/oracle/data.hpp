// SPDX-License-Identifier: Apache-2.0
//
// The inputs of every rank and the expected outputs: a naive reference, computed element by element from hash(seed,
// rank, index). It shares nothing with the library.
//
// Exact in every order. For sums of floating numbers the inputs are integers so small that every partial sum has an
// exact representation; for products all but one are powers of two whose exponents cannot add up to too much. Integers
// use their whole range and wrap. So results are compared bit for bit, whatever tree an algorithm reduces in; only the
// division of a floating avg rounds, and 2 units in the last place are granted.
//
// Distinguishable. An input encodes the number rank * length + index, scrambled by a bijection. A type that is too
// narrow for the whole code carries one digit of it in each of several trials: two different (rank, index) differ in at
// least one of them. In min and max, and wherever a type has no room for all ranks, the rank that counts turns with
// index and trial. The same holds for the operators on bits and truth values that forget (and, or): where it is no
// rank's free round, one rank decides and the others are neutral. In minloc and maxloc, in every second round some
// ranks have the value of the rank whose turn it is, so that the index decides.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "oracle/element.hpp"

namespace tutti::conformance {

// Operators of an application, on the bits of integers and floating numbers. No operator of the library has their
// numbers.
enum : uint32_t {
  app_sum = 1000,  // of the bits as one number; it commutes
  // The bits are two halves, a (low) and b (high), which stand for the map z -> a z + b modulo the half's size; x op y
  // is the composition. It does not commute. Inputs have an odd a, so every map has an inverse: an operand that is
  // missing, counted twice or at another place changes the result.
  app_compose,
};
bool is_of_application(uint32_t op);

// Sums and averages of floating numbers under TUTTI_ORDER_EXACT: inputs that no other order reduces alike, partly
// cancelled by another rank's, and the result rounded once. No operator of the library has their numbers.
enum : uint32_t { sum_exactly = 1010, avg_exactly };
bool is_exact(uint32_t op);
// The bits of x op y, for these two.
uint64_t combined(const ElementType& type, uint32_t op, uint64_t x, uint64_t y);

struct Pattern {
  const ElementType* type = nullptr;
  uint32_t op = 0;  // TUTTI_SUM ..., app_sum, ..., sum_exactly, ...; 0: elements are only moved
  uint32_t nranks = 1;
  uint64_t length = 0;  // elements of one rank's whole input
  uint64_t seed = 0;
  uint32_t trial = 0;
};

// The operators that the oracle computes for a type.
bool combines(const ElementType& type, uint32_t op);

// In how many trials a case of this pattern should be run. Bounded in total elements: above that bound only whole
// blocks, not single elements, are told apart with certainty.
uint32_t trials_of(const Pattern& pattern);

class Data {
 public:
  explicit Data(const Pattern& pattern);

  // Bits of the element that `rank` contributes at `index` < length.
  uint64_t input(uint32_t rank, uint64_t index) const;
  // Bits of the reduction over the first `ranks` ranks at `index`. Requires an operator.
  static constexpr uint32_t all = UINT32_MAX;
  uint64_t reduced(uint64_t index, uint32_t ranks = all) const;
  // The same but for one rank (`without`), or with one counted twice (`twice`): what broken algorithms give.
  uint64_t reduced_without(uint32_t without, uint64_t index, uint32_t ranks = all) const;
  uint64_t reduced_twice(uint32_t twice, uint64_t index, uint32_t ranks = all) const;

  bool accepts(uint64_t expected, uint64_t got) const;
  // Trials that a whole code takes, and the ranks that are more than neutral at an index.
  uint32_t digits() const { return (code_bits_ + digit_bits_ - 1) / digit_bits_; }
  uint64_t contributors() const { return contributors_; }
  const Pattern& pattern() const { return pattern_; }

 private:
  uint64_t code(uint32_t rank, uint64_t index) const;
  uint64_t digit(uint32_t rank, uint64_t index) const;
  uint64_t index_hash(uint64_t index) const;
  // The value of an index, over all trials.
  uint64_t position(uint64_t index) const;
  uint32_t turn(uint64_t index) const;
  uint64_t slot(uint32_t rank, uint64_t index) const;
  uint64_t extreme_input(uint32_t rank, uint64_t index) const;
  uint64_t exact_input(uint32_t rank, uint64_t index) const;
  uint64_t complex_input(uint32_t rank, uint64_t index) const;
  template <typename Times>
  uint64_t fold_complex(uint64_t index, uint32_t ranks, Times times) const;
  uint64_t pair_input(uint32_t rank, uint64_t index) const;
  template <typename Times>
  uint64_t fold_pairs(uint64_t index, uint32_t ranks, Times times) const;
  uint64_t bits_input(uint32_t rank, uint64_t index) const;
  uint64_t combined_bits(uint64_t a, uint64_t b) const;
  double term(uint32_t rank, uint64_t index) const;
  double summand(uint32_t rank, uint64_t index) const;
  double factor(uint32_t rank, uint64_t index) const;
  // times(r) says how often rank r < ranks counts.
  template <typename Times>
  uint64_t fold(uint64_t index, uint32_t ranks, Times times) const;

  Pattern pattern_;
  uint32_t code_bits_ = 64;
  uint32_t digit_bits_ = 64;
  uint64_t contributors_ = 0;
  std::vector<Data> parts_;  // of reduced elements of two parts, each as a type of 4 bytes
  int exponent_bits_ = 0;    // floating products
  // The parts of the formulas that are equal for all elements: a run of the matrix spends most of its time on them.
  std::array<uint64_t, 3> keys_{};
  uint32_t digit_place_ = 0;
  uint64_t slot_shift_ = 0;
};

}  // namespace tutti::conformance
