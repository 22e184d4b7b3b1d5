// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/authentication.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "bootstrap/failure.hpp"
#include "bootstrap/wire.hpp"

namespace tutti::core {
namespace {

std::string proof(std::string_view secret, std::string_view role, std::string_view spoke_nonce,
                  std::string_view hub_nonce) {
  const std::string message = meeting_prefix() + std::string(role) + std::string(spoke_nonce) + std::string(hub_nonce);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  // The key is the secret's hash: HMAC fills short keys up with zeros, so that "s" and "s\0" would be one.
  unsigned char key[EVP_MAX_MD_SIZE];
  unsigned int key_bytes = 0;
  if (EVP_Digest(secret.empty() ? "" : secret.data(), secret.size(), key, &key_bytes, EVP_sha256(), nullptr) != 1)
    throw Failure(TUTTI_SYSTEM, "bootstrap: libcrypto refused to compute SHA-256");
  if (!HMAC(EVP_sha256(), key, static_cast<int>(key_bytes), reinterpret_cast<const unsigned char*>(message.data()),
            message.size(), digest, &bytes) ||
      bytes != kProofBytes)
    throw Failure(TUTTI_SYSTEM, "bootstrap: libcrypto refused to compute HMAC-SHA256");
  return std::string(reinterpret_cast<const char*>(digest), bytes);
}

}  // namespace

std::string random_bytes(size_t n) {
  std::string bytes(n, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(n)) != 1)
    throw Failure(TUTTI_SYSTEM, "bootstrap: libcrypto has no random bytes");
  return bytes;
}

std::string hub_proof(std::string_view secret, std::string_view spoke_nonce, std::string_view hub_nonce) {
  return proof(secret, "hub", spoke_nonce, hub_nonce);
}

std::string spoke_proof(std::string_view secret, std::string_view spoke_nonce, std::string_view hub_nonce) {
  return proof(secret, "spoke", spoke_nonce, hub_nonce);
}

bool equal_proof(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string meeting_prefix() { return WireWriter().raw(kMagic).u32(kMeetingVersion).take(); }

std::string prefix_problem(std::string_view prefix) {
  WireReader reader(prefix, "prefix");
  if (reader.raw(kMagic.size()) != kMagic) return "it does not speak Tutti's bootstrap protocol";
  const uint32_t version = reader.u32();
  if (version == kMeetingVersion) return "";
  return "it speaks version " + std::to_string(version) + " of the bootstrap protocol, this process version " +
         std::to_string(kMeetingVersion) + ": all ranks must use the same Tutti";
}

std::string to_hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::optional<std::string> from_hex(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  if (text.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = digit(text[i]), low = digit(text[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes += static_cast<char>(high * 16 + low);
  }
  return bytes;
}

}  // namespace tutti::core
