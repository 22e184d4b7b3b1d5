// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/authentication.hpp"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <charconv>

#include "base/failure.hpp"
#include "base/wire.hpp"

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
  return fmt::format(
      "it speaks version {} of the bootstrap protocol, this process version {}: all ranks must use the "
      "same Tutti",
      version, kMeetingVersion);
}

std::string to_hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

std::optional<std::string> from_hex(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (const char *at = text.data(), *end = at + text.size(); at < end; at += 2) {
    unsigned char byte = 0;
    const auto [stop, error] = std::from_chars(at, at + 2, byte, 16);
    if (error != std::errc() || stop != at + 2) return std::nullopt;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

}  // namespace tutti::core
