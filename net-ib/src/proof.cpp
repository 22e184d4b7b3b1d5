// SPDX-License-Identifier: Apache-2.0
#include "proof.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstddef>
#include <tutti/sdk/plugin.hpp>

namespace tutti::ib {

Secret::~Secret() { OPENSSL_cleanse(key_.data(), key_.size()); }

Mac Secret::mac(const Greeting& greeting) const {
  Mac result{};
  unsigned size = 0;
  if (!HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()), reinterpret_cast<const uint8_t*>(&greeting),
            offsetof(Greeting, mac), result.data(), &size) ||
      size != result.size())
    throw sdk::Error(TUTTI_SYSTEM, "OpenSSL cannot compute HMAC-SHA256");
  return result;
}

void Secret::sign(Greeting& greeting) const { greeting.mac = mac(greeting); }

bool Secret::has_signed(const Greeting& greeting) const {
  const Mac right = mac(greeting);
  return CRYPTO_memcmp(right.data(), greeting.mac.data(), right.size()) == 0;
}

void fill_random(std::span<uint8_t> bytes) {
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1)
    throw sdk::Error(TUTTI_SYSTEM, "OpenSSL has no random bytes");
}

uint32_t random_number() {
  std::array<uint8_t, 4> bytes;
  fill_random(bytes);
  return std::bit_cast<uint32_t>(bytes);
}

}  // namespace tutti::ib
