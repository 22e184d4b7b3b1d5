// SPDX-License-Identifier: Apache-2.0
#include "kernels/codec.hpp"

#include <algorithm>

namespace tutti::core {

Codec::Codec(uint32_t wire, const KernelTable& kernels)
    : wire_(wire),
      kernels_(wire == TUTTI_WIRE_FLOAT16    ? kernels.float16_codes
               : wire == TUTTI_WIRE_BFLOAT16 ? kernels.bfloat16_codes
                                             : kernels.block_codes) {}

void Codec::encode(std::span<const float> values, void* codes) const {
  kernels_.encode(values.data(), values.size(), static_cast<unsigned char*>(codes));
}

void Codec::decode(const void* codes, std::span<float> values) const {
  kernels_.decode(static_cast<const unsigned char*>(codes), values.size(), values.data());
}

ReduceFunction find_code_reduction(uint32_t wire, uint32_t op) {
  if (!is_in_blocks(wire)) return find_reduction(wire == TUTTI_WIRE_FLOAT16 ? TUTTI_FLOAT16 : TUTTI_BFLOAT16, op);
  return op == TUTTI_SUM || op == TUTTI_AVG ? best_kernels().sum_blocks : nullptr;
}

void sum_codes(uint32_t wire, const Reduction& codes, std::span<float> sum) {
  constexpr size_t most = 1024;  // numbers, which stay in the first cache
  alignas(64) float decoded[most];
  const Codec codec(wire);
  const ReduceFunction add = find_reduction(TUTTI_FLOAT32, TUTTI_SUM);
  for (size_t first = 0; first < sum.size(); first += most) {
    const std::span<float> part = sum.subspan(first, std::min(most, sum.size() - first));
    const auto decode = [&](uint32_t source, float* to) {
      codec.decode(static_cast<const std::byte*>(codes.srcs[source]) + codec.bytes(first), {to, part.size()});
    };
    decode(0, part.data());
    const void* sources[2] = {part.data(), decoded};
    Reduction reduction{{part.data(), nullptr}, 1, sources, 2, part.size(), 0, {false, false}};
    for (uint32_t i = 1; i < codes.nsrcs; ++i) {
      decode(i, decoded);
      add(reduction);
    }
    reduction.nsrcs = 1;
    reduction.divisor = codes.divisor;
    if (codes.divisor) add(reduction);
  }
}

}  // namespace tutti::core
