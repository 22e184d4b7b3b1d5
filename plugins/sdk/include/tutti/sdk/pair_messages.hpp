// SPDX-License-Identifier: Apache-2.0
//
// Pair messages, by which two endpoints of a transport connect: sending them, and one way to write them.
#pragma once

#include <tutti/plugin/transport.h>

#include <bit>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <tutti/sdk/plugin.hpp>
#include <type_traits>
#include <utility>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {

// Sends pair messages of one endpoint to its peers. Keeps those for which there is no room, in order.
class PairSender {
 public:
  // Throws Error where the core gives no way to send them.
  explicit PairSender(const tutti_endpoint_config& config) : pair_(&accepted_offer(config.pair)) {}
  // At most TUTTI_PAIR_BYTES. Throws Error. A message to a lost peer is dropped: the endpoint learns of the loss by
  // itself.
  void send(uint32_t peer, std::string message) {
    waiting_.emplace_back(peer, std::move(message));
    flush();
  }
  // To be called in progress: sends what waits for room.
  void flush() {
    while (!waiting_.empty()) {
      const uint32_t peer = waiting_.front().first;
      const std::string& message = waiting_.front().second;
      const tutti_status status = pair_->send(pair_->self, peer, message.data(), message.size());
      if (status == TUTTI_AGAIN) return;
      waiting_.pop_front();
      if (status < 0 && status != TUTTI_PEER_FAILED)
        throw Error(status, "a pair message to rank " + std::to_string(peer) + " was refused");
    }
  }
  bool is_empty() const { return waiting_.empty(); }

 private:
  const tutti_pair_messages* pair_;
  std::deque<std::pair<uint32_t, std::string>> waiting_;
};

// How a transport writes its pair messages: a head with the transport's magic number and version, then one plain
// struct, or the words of a refusal.
struct PairFormat {
  const char* transport;  // its name, for errors
  uint32_t magic;
  uint32_t version;

  struct Head {  // alike in every version
    uint32_t magic, version, kind;
    tutti_status status;  // TUTTI_OK: a struct follows; an error: its words
  };
  static_assert(std::endian::native == std::endian::little,
                "the magic number refuses a machine of the other byte order");

  template <typename Body>
  std::string encode(uint32_t kind, const Body& body) const {
    static_assert(std::is_trivially_copyable_v<Body> && sizeof(Head) + sizeof body <= TUTTI_PAIR_BYTES);
    return head(kind, TUTTI_OK) + std::string(reinterpret_cast<const char*>(&body), sizeof body);
  }
  // `text` is cut where it is too long.
  std::string encode(uint32_t kind, tutti_status status, std::string_view text) const {
    return head(kind, status).append(text.substr(0, TUTTI_PAIR_BYTES - sizeof(Head)));
  }

  struct Message {
    uint32_t kind;
    tutti_status status;
    std::string_view body;  // of the bytes that were decoded
  };
  // Throws Error: TUTTI_MISMATCH where another version of the transport wrote the bytes,
  // TUTTI_INVALID_ARGUMENT where the bytes are not a message of this transport.
  Message decode(std::string_view bytes) const {
    Head head{};
    if (bytes.size() < sizeof head) throw refuse(bytes.size(), "they end too early");
    std::memcpy(&head, bytes.data(), sizeof head);
    if (head.magic != magic) throw refuse(bytes.size(), "the magic number is wrong");
    if (head.version != version)
      throw Error(TUTTI_MISMATCH, "it speaks version " + std::to_string(head.version) + " of the " + transport +
                                      " transport, this rank version " + std::to_string(version) +
                                      "; all ranks need the same");
    if (head.status > 0) throw refuse(bytes.size(), std::to_string(head.status) + " is no status");
    return {head.kind, head.status, bytes.substr(sizeof head)};
  }
  template <typename Body>
  Body body_of(const Message& message) const {
    Body body;
    if (message.status != TUTTI_OK || message.body.size() != sizeof body)
      throw refuse(sizeof(Head) + message.body.size(), "one of kind " + std::to_string(message.kind) + " has " +
                                                           std::to_string(sizeof(Head) + sizeof body));
    std::memcpy(static_cast<void*>(&body), message.body.data(), sizeof body);
    return body;
  }
  std::string text_of(const Message& message) const {
    if (message.status == TUTTI_OK) throw refuse(sizeof(Head) + message.body.size(), "a refusal has no error");
    return std::string(message.body);
  }
  Error refuse(size_t bytes, const std::string& why) const {
    return Error(TUTTI_INVALID_ARGUMENT, "these " + std::to_string(bytes) + " bytes are no pair message of the " +
                                             transport + " transport: " + why);
  }

 private:
  std::string head(uint32_t kind, tutti_status status) const {
    const Head made{magic, version, kind, status};
    return std::string(reinterpret_cast<const char*>(&made), sizeof made);
  }
};

}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
