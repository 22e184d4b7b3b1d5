// SPDX-License-Identifier: Apache-2.0
#include "wire.hpp"

#include <algorithm>

namespace tutti::tcp {

namespace {
constexpr sdk::PairFormat kFormat{.transport = "tcp", .magic = 0x5043'5454, .version = 3};  // "TTCP"
}

std::vector<Where> Offer::addresses() const {
  std::vector<Where> all;
  for (uint64_t i = 0; i < n_listeners; ++i) all.push_back(listeners[i].where());
  return all;
}

std::string PairMessage::encode() const {
  return kind == kOffer ? kFormat.encode(kind, static_cast<const Offer&>(*this)) : kFormat.encode(kind, status, text);
}

PairMessage PairMessage::decode(std::string_view bytes) {
  const sdk::PairFormat::Message found = kFormat.decode(bytes);
  PairMessage message;
  message.kind = static_cast<Kind>(found.kind);
  message.status = found.status;
  if (message.kind == kDial || message.kind == kRefusal) {
    message.text = kFormat.text_of(found);
  } else if (message.kind == kOffer) {
    static_cast<Offer&>(message) = kFormat.body_of<Offer>(found);
    const uint64_t n = message.n_listeners;
    if (n == 0 || n > kMaxAddresses ||
        std::any_of(message.listeners.begin(), message.listeners.begin() + n,
                    [](const Listener& l) { return l.port == 0; }))
      throw kFormat.refuse(bytes.size(), "it offers " + std::to_string(n) + " listeners, or one at port 0");
  } else {
    throw kFormat.refuse(bytes.size(), "unknown kind " + std::to_string(found.kind));
  }
  return message;
}

}  // namespace tutti::tcp
