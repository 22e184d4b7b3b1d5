// SPDX-License-Identifier: Apache-2.0
//
// What a pair of ranks says over its unix socket (SOCK_SEQPACKET: packets stay whole, an end of file tells that the
// other side is gone). First the handshake:
//
//   active                                passive
//   Hello   {terms, nonce}          ->
//                                   <-    Challenge {terms, nonce, proof}
//   Proof   {proof}                 ->
//   then the lower rank picks one authenticated connection of the pair, whoever began it, and sends on it
//   Setup   {} + segment, doorbell page, eventfd; the higher answers with Setup {} + doorbell page, eventfd.
//   The pair's other connection, if both had begun one, gets Crossed. A side that cannot agree sends Refused {why}.
//
// A proof is HMAC-SHA-256 under the job's secret over the prover's role and both sides' terms with their nonces. After
// Setup the connection is the link's: RegionOffer, RegionGone, Goodbye.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "file_descriptor.hpp"

namespace tutti::shm {

inline constexpr uint32_t kWireMagic = 0x4d485354;  // "TSHM"
inline constexpr uint32_t kWireVersion = 1;
inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kMaxDescriptors = 3;
using Digest = std::array<uint8_t, 32>;

struct Header {
  uint32_t magic = kWireMagic;
  uint32_t kind = 0;
};

// What both sides must agree about, and what makes each handshake different.
struct Terms {
  uint32_t version;
  uint32_t rank;  // the speaker
  uint32_t peer;  // whom it speaks to
  uint32_t nranks;
  uint32_t lanes;
  uint32_t slots;
  uint64_t slot_bytes;
  uint64_t communicator;
  uint8_t nonce[kNonceBytes];
};
static_assert(sizeof(Terms) == 72);

struct Hello {
  static constexpr uint32_t kind = 1;
  Header header{kWireMagic, kind};
  Terms terms{};
};
struct Challenge {
  static constexpr uint32_t kind = 2;
  Header header{kWireMagic, kind};
  Terms terms{};
  Digest proof{};
};
struct Proof {
  static constexpr uint32_t kind = 3;
  Header header{kWireMagic, kind};
  Digest proof{};
};
struct Setup {
  static constexpr uint32_t kind = 4;
  Header header{kWireMagic, kind};
};
struct Crossed {
  static constexpr uint32_t kind = 5;
  Header header{kWireMagic, kind};
};
struct Refused {
  static constexpr uint32_t kind = 6;
  Header header{kWireMagic, kind};
  char why[240]{};
};
struct RegionOffer {  // + the region's memory file
  static constexpr uint32_t kind = 7;
  Header header{kWireMagic, kind};
  uint32_t id = 0;
  uint32_t generation = 0;
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;
};
struct RegionGone {
  static constexpr uint32_t kind = 8;
  Header header{kWireMagic, kind};
  uint32_t id = 0;
  uint32_t generation = 0;
};
struct Goodbye {
  static constexpr uint32_t kind = 9;
  Header header{kWireMagic, kind};
  uint32_t gave_up = 0;  // 0: the endpoint is closed; 1: the speaker gave the listener up
  uint32_t reserved = 0;
};
inline constexpr size_t kMaxPacket = 256;
static_assert(sizeof(Refused) <= kMaxPacket && sizeof(Challenge) <= kMaxPacket);

// One packet as it came: unchecked bytes and the descriptors with it.
struct Packet {
  enum Outcome { kNothing, kClosed, kHere } outcome = kNothing;
  size_t bytes = 0;
  std::array<char, kMaxPacket> data{};
  std::array<FileDescriptor, kMaxDescriptors> descriptors;
  size_t descriptor_count = 0;
  bool truncated = false;

  // The packet as a T, if it is a whole one with so many descriptors.
  template <typename T>
  std::optional<T> as(size_t with_descriptors = 0) const {
    T message;
    if (outcome != kHere || truncated || bytes != sizeof(T) || descriptor_count != with_descriptors)
      return std::nullopt;
    std::memcpy(&message, data.data(), sizeof(T));
    if (message.header.magic != kWireMagic || message.header.kind != T::kind) return std::nullopt;
    return message;
  }
};

// A non-blocking connected socket.
class Socket {
 public:
  Socket() = default;
  explicit Socket(FileDescriptor fd) : fd_(std::move(fd)) {}
  int get() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void close() { fd_.reset(); }

  Packet receive() noexcept;

  enum Sent { kSent, kFull, kGone };
  template <typename T>
  Sent send(const T& message, std::initializer_list<int> descriptors = {}) noexcept {
    return send_bytes(&message, sizeof message, {descriptors.begin(), descriptors.size()});
  }
  // Tells the other side why, as far as it fits; it does not matter whether it arrives.
  void refuse(std::string_view why) noexcept;

 private:
  Sent send_bytes(const void* data, size_t bytes, std::span<const int> descriptors) noexcept;
  FileDescriptor fd_;
};

// Random bytes of the kernel. Throws sdk::Error.
void random_bytes(void* to, size_t bytes);

// The proof of one role ('A' active, 'P' passive) in a handshake with these terms.
Digest make_proof(std::string_view secret, char role, const Terms& active, const Terms& passive);
bool equal_digests(const Digest& a, const Digest& b);

// The unguessable name of an endpoint's listening socket, and where it can be reached.
struct Address {
  uint32_t magic;
  uint32_t version;
  uint8_t boot_id[16];
  uint64_t network_namespace;
  uint32_t uid;
  uint32_t pid;
  uint32_t rank;
  uint32_t reserved;
  uint8_t name[16];
};
static_assert(sizeof(Address) == 64);

// This process's place: everything but rank and name. Throws sdk::Error.
Address local_place();
// A listening socket at address.name; a connection to it (nothing: its queue is full, try again). Throw sdk::Error.
FileDescriptor listen_at(const Address& address);
std::optional<Socket> connect_to(const Address& address);
// Does the process at the other end belong to this user?
bool same_user(int socket);

}  // namespace tutti::shm
