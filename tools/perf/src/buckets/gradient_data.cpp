// SPDX-License-Identifier: Apache-2.0
#include "buckets/gradient_data.hpp"

#include <tutti/plugin/types.h>

#include <algorithm>
#include <type_traits>

#include "element.hpp"
#include "hash.hpp"

namespace perf {
namespace {

constexpr int least_difference = 2, most_difference = 7;

// [0, size), from 24 bits of a hash.
uint32_t below(uint32_t size, uint64_t hash) { return static_cast<uint32_t>((hash & 0xffffff) * size >> 24); }

class GradientElement {
 public:
  explicit GradientElement(uint64_t hash) : hash_(hash) {}
  double mean() const { return hash_ & 1 ? 1 : -1; }
  double of_rank(uint32_t rank, uint32_t nranks) const {
    if (nranks == 1) return mean();
    const uint32_t first = below(nranks, hash_ >> 1), second = (first + 1 + below(nranks - 1, hash_ >> 25)) % nranks;
    const double difference = least_difference + below(most_difference - least_difference + 1, hash_ >> 40);
    return mean() + (rank == first ? difference : rank == second ? -difference : 0);
  }

 private:
  uint64_t hash_;
};

class GradientElements {
 public:
  explicit GradientElements(const GradientPattern& pattern)
      : seed_(mix(pattern.seed + mix(pattern.tensor + 0x9e3779b97f4a7c15u))) {}
  GradientElement operator[](uint64_t i) const { return GradientElement(mix(seed_ + i * 0xd1342543de82ef95u)); }

 private:
  uint64_t seed_;
};

// Calls body(T{}) for the types of a model.
template <typename Body>
void with_float(uint32_t dtype, Body&& body) {
  with_type(dtype, [&]<typename T>(T zero) {
    if constexpr (std::is_floating_point_v<T> || std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>) body(zero);
  });
}

}  // namespace

uint32_t most_exact_ranks(uint32_t dtype) {
  uint32_t most = 0;
  with_float(dtype, [&]<typename T>(T) {
    most = static_cast<uint32_t>((uint64_t{1} << std::min(FloatTraits<T>::digits, 24)) - most_difference);
  });
  return most;
}

void fill_gradient(const GradientPattern& pattern, uint32_t rank, uint64_t count, void* data) {
  const GradientElements elements(pattern);
  with_float(pattern.dtype, [&]<typename T>(T) {
    for (uint64_t i = 0; i < count; ++i)
      static_cast<T*>(data)[i] = FloatTraits<T>::from(elements[i].of_rank(rank, pattern.nranks));
  });
}

WrongMeans check_mean(const GradientPattern& pattern, uint64_t count, const void* data) {
  const GradientElements elements(pattern);
  WrongMeans wrong;
  with_float(pattern.dtype, [&]<typename T>(T) {
    for (uint64_t i = 0; i < count; ++i) {
      const double expected = elements[i].mean(), got = FloatTraits<T>::value(static_cast<const T*>(data)[i]);
      if (got == expected) continue;
      if (wrong.count++ == 0) wrong = {1, i, expected, got};
    }
  });
  return wrong;
}

}  // namespace perf
