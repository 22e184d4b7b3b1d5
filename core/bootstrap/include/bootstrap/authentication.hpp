// SPDX-License-Identifier: Apache-2.0
//
// Two ends of a connection prove to each other that they know the job's secret, without sending it.
//
//   spoke -> hub    kMagic, version, spoke's nonce
//   hub -> spoke    kMagic, version, hub's nonce, HMAC-SHA256(secret, "hub" + both nonces)
//   spoke -> hub    HMAC-SHA256(secret, "spoke" + both nonces)
//
// All of fixed length; frames (frame_stream.hpp) follow. With an empty secret the same is done with an empty key: it
// then keeps out other programs, not attackers.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::core {

inline constexpr std::string_view kMagic = "TUTTIMET";
inline constexpr uint32_t kMeetingVersion = 7;
inline constexpr size_t kPrefixBytes = 12;  // magic and version: the part that every version understands
inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kProofBytes = 32;
inline constexpr size_t kSecretBytes = 32;  // of secrets made here
inline constexpr size_t kMinSecretBytes = 16;
inline constexpr size_t kMaxSecretBytes = 64;

// Cryptographically random bytes. Throws Failure{TUTTI_SYSTEM} when there are none.
std::string random_bytes(size_t n);
std::string hub_proof(std::string_view secret, std::string_view spoke_nonce, std::string_view hub_nonce);
std::string spoke_proof(std::string_view secret, std::string_view spoke_nonce, std::string_view hub_nonce);
// In constant time.
bool equal_proof(std::string_view a, std::string_view b);

std::string meeting_prefix();
// Empty when `prefix` (kPrefixBytes) is that of this version, else what is wrong with it.
std::string prefix_problem(std::string_view prefix);

std::string to_hex(std::string_view bytes);
std::optional<std::string> from_hex(std::string_view text);

}  // namespace tutti::core
