// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

namespace tutti::nccl::serve {

struct Settings {
  std::string transport;  // TUTTI_NCCL_SERVES
  std::string address;    // TUTTI_NCCL_SERVES_ADDRESS; "": the first that others can reach
  std::chrono::nanoseconds connect_timeout;  // TUTTI_CONNECT_TIMEOUT: once both ends are there
  std::chrono::nanoseconds timeout;          // TUTTI_TIMEOUT: for the other end to come

  // Throws sdk::Error for values that cannot be.
  static Settings read();
};

}  // namespace tutti::nccl::serve
