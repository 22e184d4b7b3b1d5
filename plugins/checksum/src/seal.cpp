// SPDX-License-Identifier: Apache-2.0
#include "seal.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>

namespace tutti::checksum {
namespace {

struct Seal {
  uint64_t number;
  uint64_t hash;
};
static_assert(sizeof(Seal) == seal_bytes);

uint64_t hash_of(const void* data, uint64_t bytes, uint64_t number) {
  return XXH3_64bits_withSeed(data, bytes, number);
}

}  // namespace

std::unique_ptr<std::byte[]> sealed_copy(const void* data, uint64_t bytes, uint64_t number) {
  auto copy = std::make_unique_for_overwrite<std::byte[]>(bytes + seal_bytes);
  if (bytes) std::memcpy(copy.get(), data, bytes);
  const Seal seal{number, hash_of(copy.get(), bytes, number)};
  std::memcpy(copy.get() + bytes, &seal, sizeof seal);
  return copy;
}

std::string defect(const std::byte* data, uint64_t bytes, uint64_t expected) {
  Seal seal{};
  std::memcpy(&seal, data + bytes, sizeof seal);
  if (seal.hash != hash_of(data, bytes, seal.number))
    return "its " + std::to_string(bytes) + " bytes were changed on the way: their checksum is wrong";
  if (seal.number != expected)
    return "it is number " + std::to_string(seal.number) + " where number " + std::to_string(expected) +
           " was due: a message was lost, doubled or overtaken";
  return {};
}

}  // namespace tutti::checksum
