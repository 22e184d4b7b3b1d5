// SPDX-License-Identifier: Apache-2.0
//
// The packets by which two ranks tell each other of shares, on the line of their link.
#pragma once

#include <tutti/plugin/device.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <tutti/sdk/local/link.hpp>

namespace tutti::cuda_ipc {

// A share of the speaker. A descriptor comes with it where it needs one.
struct Offer {
  static constexpr uint32_t number = sdk::local::kFirstOwnPacket;
  enum Use : uint32_t { kDeviceMemory = 1, kHostMemory = 2 };
  uint32_t kind = number;
  uint32_t use = 0;
  char device[32] = {};        // its name
  uint32_t device_number = 0;  // in the speaker's process
  uint32_t reserved = 0;
  uint64_t id = 0;  // of the speaker's process, never used twice
  uint64_t tag = 0;
  sdk::Token process{};  // the speaker's: an importer in the same process uses the address itself
  uint64_t address = 0, seen = 0;
  uint64_t bytes = 0;
  tutti_memory_export record{};
};

// The memory is no longer offered.
struct Gone {
  static constexpr uint32_t number = Offer::number + 1;
  uint32_t kind = number;
  uint32_t reserved = 0;
  uint64_t id = 0;
};
// The speaker has mapped the listener's share (status 0), could not (status < 0), or has closed it (kUnmapped).
struct Answer {
  static constexpr uint32_t number = Offer::number + 2;
  static constexpr int32_t kUnmapped = 1;
  uint32_t kind = number;
  int32_t status = 0;
  uint64_t id = 0;
  char why[160] = {};
};

// The speaker neither shares nor maps memory of that tag.
struct Declined {
  static constexpr uint32_t number = Offer::number + 3;
  uint32_t kind = number;
  int32_t status = 0;
  uint64_t tag = 0;
  char why[160] = {};
};

// Texts in packets; what has no room is cut.
template <size_t N>
void put_text(char (&field)[N], const char* text) {
  std::strncpy(field, text, N - 1);
}
template <size_t N>
std::string text_of(const char (&field)[N]) {
  return {field, strnlen(field, N)};
}

// Drawn at the first use in a process; a forked child draws its own.
const sdk::Token& this_process();
// Different for any two exports of this process.
uint64_t next_id();

}  // namespace tutti::cuda_ipc
