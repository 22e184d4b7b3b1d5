// SPDX-License-Identifier: Apache-2.0
#include "kernels/codec.hpp"

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

}  // namespace tutti::core
