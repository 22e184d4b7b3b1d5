// SPDX-License-Identifier: Apache-2.0
#include "reduce.hpp"

#include <array>
#include <cstring>
#include <string>
#include <tutti/sdk/arithmetic.hpp>
#include <tutti/sdk/exact_sum.hpp>
#include <tutti/sdk/plugin.hpp>
#include <utility>

namespace tutti::simulated {
namespace {

// compute(load) gives an element of the result, load(k) that of source k.
template <typename Stored, typename Compute>
void each_element(const tutti_command& command, const void* const* sources, const Compute& compute) {
  for (uint64_t i = 0; i < command.count; ++i) {
    const Stored value = compute([&](uint32_t k) {
      Stored stored;
      std::memcpy(&stored, static_cast<const char*>(sources[k]) + i * sizeof stored, sizeof stored);
      return stored;
    });
    std::memcpy(static_cast<char*>(command.dst) + i * sizeof value, &value, sizeof value);
  }
}
template <uint32_t Dtype, uint32_t Op>
void loop(const tutti_command& command, const void* const* sources) {
  using Element = typename sdk::ElementOf<Dtype>::type;
  each_element<typename Element::Stored>(command, sources, [&](const auto& load) {
    return sdk::fold<Element, Op>(command.sources, command.divisor, load);
  });
}
template <uint32_t Dtype>
void exact_loop(const tutti_command& command, const void* const* sources) {
  each_element<typename sdk::ElementOf<Dtype>::type::Stored>(command, sources, [&](const auto& load) {
    return sdk::exact_sum<Dtype>(command.sources, command.divisor, load);
  });
}

constexpr uint32_t folds = sdk::last_fold - sdk::first_fold + 1, types = sdk::last_dtype - sdk::first_dtype + 1;

// nullptr: the operator is not defined for the type.
template <uint32_t Dtype, uint32_t Op>
constexpr ReduceLoop loop_of() {
  if constexpr (sdk::has_fold(Dtype, Op))
    return loop<Dtype, Op>;
  else
    return nullptr;
}
template <uint32_t... I>
constexpr std::array<ReduceLoop, sizeof...(I)> make_table(std::integer_sequence<uint32_t, I...>) {
  return {loop_of<sdk::first_dtype + I / folds, sdk::first_fold + I % folds>()...};
}
template <uint32_t... I>
constexpr std::array<uint64_t, sizeof...(I)> make_sizes(std::integer_sequence<uint32_t, I...>) {
  return {sdk::bytes_of_element<sdk::first_dtype + I>()...};
}
constexpr auto table = make_table(std::make_integer_sequence<uint32_t, types * folds>());
constexpr auto sizes = make_sizes(std::make_integer_sequence<uint32_t, types>());

}  // namespace

uint64_t element_bytes(uint32_t dtype) {
  const uint64_t bytes = dtype < sdk::first_dtype || dtype > sdk::last_dtype ? 0 : sizes[dtype - sdk::first_dtype];
  if (!bytes) throw sdk::Error(TUTTI_NOT_SUPPORTED, "simulated device: unknown data type " + std::to_string(dtype));
  return bytes;
}

ReduceLoop find_reduce(uint32_t dtype, uint32_t op) {
  element_bytes(dtype);
  if (op < sdk::first_fold || op > sdk::last_fold)
    throw sdk::Error(TUTTI_NOT_SUPPORTED, "simulated device: unknown operator " + std::to_string(op));
  const ReduceLoop found = table[(dtype - sdk::first_dtype) * folds + op - sdk::first_fold];
  if (!found)
    throw sdk::Error(TUTTI_NOT_SUPPORTED, "simulated device: operator " + std::to_string(op) +
                                              " is not defined for data type " + std::to_string(dtype));
  return found;
}

ReduceLoop find_exact_sum(uint32_t dtype, uint32_t op) {
  if (op == TUTTI_SUM && dtype == TUTTI_FLOAT16) return exact_loop<TUTTI_FLOAT16>;
  if (op == TUTTI_SUM && dtype == TUTTI_BFLOAT16) return exact_loop<TUTTI_BFLOAT16>;
  if (op == TUTTI_SUM && dtype == TUTTI_FLOAT32) return exact_loop<TUTTI_FLOAT32>;
  if (op == TUTTI_SUM && dtype == TUTTI_FLOAT64) return exact_loop<TUTTI_FLOAT64>;
  throw sdk::Error(TUTTI_NOT_SUPPORTED, "simulated device: no exact results of operator " + std::to_string(op) +
                                            " on data type " + std::to_string(dtype));
}

}  // namespace tutti::simulated
