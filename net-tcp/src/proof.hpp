// SPDX-License-Identifier: Apache-2.0
//
// Proof that the other end knows the job's secret: HMAC-SHA256 over both ends' nonces and claims, with a different
// label for each role so that no answer can be reflected.
#pragma once

#include <span>
#include <string>

#include "wire.hpp"

namespace tutti::tcp {

class Secret {
 public:
  Secret(const uint8_t* bytes, uint64_t size) : key_(reinterpret_cast<const char*>(bytes), bytes ? size : 0) {}
  ~Secret();
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;

  Mac connector_mac(const Hello& hello, const Challenge& challenge) const;
  Mac acceptor_mac(const Hello& hello, const Challenge& challenge, uint32_t answer) const;

 private:
  Mac mac(const char* label, const Hello& hello, const Challenge& challenge, uint32_t answer) const;
  std::string key_;
};

// Compares in constant time.
bool same_mac(const Mac& a, const Mac& b);
// Fills with unpredictable bytes; throws sdk::Error when there are none.
void fill_random(std::span<uint8_t> bytes);
// SHA-256 of a text.
Mac digest(const std::string& text);

}  // namespace tutti::tcp
