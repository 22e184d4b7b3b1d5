// SPDX-License-Identifier: Apache-2.0
#include "proof.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <tutti/sdk/plugin.hpp>

namespace tutti::tcp {

Secret::~Secret() { OPENSSL_cleanse(key_.data(), key_.size()); }

Mac Secret::mac(const char* label, const Hello& hello, const Challenge& challenge, uint32_t answer) const {
  std::string text = label;
  text.append(reinterpret_cast<const char*>(&hello), sizeof hello);
  text.append(reinterpret_cast<const char*>(&challenge), sizeof challenge);
  text.append(reinterpret_cast<const char*>(&answer), sizeof answer);
  Mac result{};
  unsigned size = 0;
  if (!HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()), reinterpret_cast<const uint8_t*>(text.data()),
            text.size(), result.data(), &size) ||
      size != result.size())
    throw sdk::Error(TUTTI_SYSTEM, "OpenSSL cannot compute HMAC-SHA256");
  return result;
}

Mac Secret::connector_mac(const Hello& hello, const Challenge& challenge) const {
  return mac("tutti tcp connector", hello, challenge, 0);
}

Mac Secret::acceptor_mac(const Hello& hello, const Challenge& challenge, uint32_t answer) const {
  return mac("tutti tcp acceptor", hello, challenge, answer);
}

bool same_mac(const Mac& a, const Mac& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

void fill_random(std::span<uint8_t> bytes) {
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1)
    throw sdk::Error(TUTTI_SYSTEM, "OpenSSL has no random bytes");
}

Mac digest(const std::string& text) {
  Mac result{};
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), result.data(), &size, EVP_sha256(), nullptr) != 1)
    throw sdk::Error(TUTTI_SYSTEM, "OpenSSL cannot compute SHA-256");
  return result;
}

}  // namespace tutti::tcp
