// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti::nccl {

struct Settings {
  std::string network;  // NAME or file
  int version = 0;      // of the plugin's table; 0: the newest
  std::optional<int> device;
  std::vector<int> fused;  // adapters to join to a virtual one
  uint64_t eager_bytes;    // messages up to this size travel with their header, and are copied at both ends
  uint64_t fragment_bytes;

  // TUTTI_NCCL_NET; nothing where it is not set. Throws Error.
  static std::optional<std::string> network_named();
  // Throws Error.
  static Settings read();
};

}  // namespace tutti::nccl
