// SPDX-License-Identifier: Apache-2.0
//
// Proof that a greeting comes from a rank of this job: HMAC-SHA256 under the job's secret.
#pragma once

#include <span>
#include <string>

#include "wire.hpp"

namespace tutti::ib {

class Secret {
 public:
  Secret(const uint8_t* bytes, uint64_t size) : key_(reinterpret_cast<const char*>(bytes), bytes ? size : 0) {}
  ~Secret();
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;

  // Fills in the MAC over everything before it. The kind is part of it, so no greeting can be sent back as its answer.
  void sign(Greeting& greeting) const;
  // Compares in constant time.
  bool has_signed(const Greeting& greeting) const;

 private:
  Mac mac(const Greeting& greeting) const;
  std::string key_;
};

// Fills with unpredictable bytes; throws sdk::Error when there are none.
void fill_random(std::span<uint8_t> bytes);
uint32_t random_number();

}  // namespace tutti::ib
