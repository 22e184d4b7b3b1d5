// SPDX-License-Identifier: Apache-2.0
//
// A seal: a message's number on its way and a 64-bit hash (XXH3) of number and bytes. It travels behind the bytes, in
// the same message. A message that was changed, lost, doubled or overtaken on its way is so noticed when the next one
// of its lane arrives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tutti::checksum {

// The bytes that a seal adds to a message.
inline constexpr uint64_t seal_bytes = 16;

// The message and its seal behind it.
std::unique_ptr<std::byte[]> sealed_copy(const void* data, uint64_t bytes, uint64_t number);
// "" when the message of `bytes` bytes with its seal behind is number `expected`; else what is wrong with it.
std::string defect(const std::byte* data, uint64_t bytes, uint64_t expected);

}  // namespace tutti::checksum
