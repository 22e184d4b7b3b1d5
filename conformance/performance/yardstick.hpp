// SPDX-License-Identifier: Apache-2.0
//
// The limits of this machine between two ranks, without any library: within a host the exchange of a cache line and a
// copy through shared memory, between hosts a raw socket over loopback.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace tutti::conformance {

class Yardstick {
 public:
  virtual ~Yardstick() = default;
  virtual const char* exchange_name() const = 0;
  virtual const char* carry_name() const = 0;
  // Both ranks call these at once. Seconds of one exchange of 8 bytes, both ways at once, of `times` of them ...
  virtual double exchange(int times) = 0;
  // The upper limit of that on an idle machine, in seconds; 0: not known.
  virtual double idle_exchange() const = 0;
  // ... and of bringing so many bytes one way.
  virtual double carry(uint64_t bytes) = 0;
};

// Rank 0 and rank 1 meet in `folder`; they may be threads of one process. Throws std::runtime_error.
std::unique_ptr<Yardstick> host_yardstick(const std::string& folder, uint32_t rank);
std::unique_ptr<Yardstick> network_yardstick(const std::string& folder, uint32_t rank);

}  // namespace tutti::conformance
