// SPDX-License-Identifier: Apache-2.0
//
// The wire formats, all little-endian: the handle that NCCL carries to the connecting end, the letters on the meeting
// socket, and the control messages on the transport's link.
#pragma once

#include <tutti/plugin/transport.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <tutti/sdk/nccl_net.hpp>

namespace tutti::nccl::serve {

static_assert(std::endian::native == std::endian::little, "the magic number refuses a machine of the other byte order");

inline constexpr uint64_t kMagic = 0x5445'4e49'5454'5554;  // "TUTTINET"
inline constexpr uint32_t kVersion = 1;
inline constexpr size_t kNameBytes = 32;
inline constexpr int kMostInGroup = 8;  // maxRecvs

using Token = std::array<uint8_t, 16>;
using Name = std::array<char, kNameBytes>;  // of a transport; ends with a zero

// The handle that listen writes.
struct Handle {
  uint64_t magic;
  uint32_t version;
  uint16_t is_v6;
  uint16_t port;
  std::array<uint8_t, 16> address;
  Token token;
  Name transport;
  uint64_t attempt;  // 0 as it comes from listen; the connecting process's number of a connect under way
};
static_assert(sizeof(Handle) <= kHandleBytes);

// ---- Letters: a head, then `bytes` of body

enum class LetterKind : uint32_t {
  kHello = 0x5345'0001,    // the connecting end's first: Hello
  kWelcome = 0x5345'0002,  // the accepting end's answer: Welcome
  kRefusal = 0x5345'0003,  // a status (int32), then its words
  kPair = 0x5345'0004,     // a pair message of the transport
  kBye = 0x5345'0005       // the comm is closed in order: Bye
};
struct LetterHead {
  LetterKind kind;
  uint32_t bytes;
};
inline constexpr uint32_t kMostLetterBytes = TUTTI_PAIR_BYTES;

struct Hello {
  uint64_t magic;
  uint32_t version;
  uint32_t zero;
  Token token;
  Name transport;
  uint64_t fragment_bytes;
};
struct Welcome {
  uint64_t fragment_bytes;
};
struct Bye {
  uint64_t messages;  // that the end has announced
};

// ---- Control messages

// From the receiver, for each irecv in order: what it has posted.
struct Grant {
  uint32_t kind;    // kGrant
  uint32_t n;       // of the entries that follow, at most kMostInGroup
  struct Entry {
    uint64_t bytes;
    int32_t tag;
    uint32_t is_device;  // 1: the processor does not write there, so nothing comes with the announcement
  };
  std::array<Entry, kMostInGroup> entries;
  static constexpr size_t size(size_t n) { return offsetof(Grant, entries) + n * sizeof(Entry); }
};
// From the sender, for each isend in order: the entry of the group that it is for. The bytes follow if they fit; else
// they come as messages of the lane, in the order of the announcements.
struct Announcement {
  uint32_t kind;   // kAnnouncement
  uint32_t group;  // the number of its grant, modulo 2^32
  uint32_t entry;
  uint32_t is_inline;
  uint64_t bytes;
};
inline constexpr uint32_t kGrant = 0x5345'0011, kAnnouncement = 0x5345'0012;
inline constexpr size_t kInlineBytes = TUTTI_CONTROL_BYTES - sizeof(Announcement);
static_assert(sizeof(Grant) <= TUTTI_CONTROL_BYTES && sizeof(Announcement) == 24);

template <typename T>
std::string bytes_of(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
// False: the bytes have another size.
template <typename T>
bool read(std::string_view bytes, T& value) {
  if (bytes.size() != sizeof value) return false;
  std::memcpy(&value, bytes.data(), sizeof value);
  return true;
}
inline Name name_of(std::string_view text) {
  Name name{};
  text.copy(name.data(), name.size() - 1);
  return name;
}
// "" where it does not end.
inline std::string text_of(const Name& name) { return name.back() ? "" : std::string(name.data()); }

}  // namespace tutti::nccl::serve
