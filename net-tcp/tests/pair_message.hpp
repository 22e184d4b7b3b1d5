// SPDX-License-Identifier: Apache-2.0
//
// A pair message of net-tcp, taken apart: an offer, a request to dial, or a refusal.
#pragma once

#include "../src/wire.hpp"

namespace tutti_test {

struct PairMessage : tutti::tcp::Offer {
  enum Kind : uint32_t { kOffer = 1, kDial = tutti::tcp::kDial, kRefusal = 3 };

  Kind kind = kOffer;
  tutti_status status = TUTTI_OK;  // Dial, Refusal
  std::string text;                // Dial, Refusal

  std::string encode() const {
    using tutti::tcp::kPairFormat;
    return kind == kOffer ? kPairFormat.encode(kind, static_cast<const Offer&>(*this))
                          : kPairFormat.encode(kind == kDial ? kDial : kOffer, status, text);
  }
  static PairMessage decode(std::string_view bytes) {
    using tutti::tcp::kPairFormat;
    const tutti::sdk::PairFormat::Message found = kPairFormat.decode(bytes);
    PairMessage message;
    message.kind = found.kind == kDial ? kDial : found.status == TUTTI_OK ? kOffer : kRefusal;
    message.status = found.status;
    if (message.kind == kOffer)
      static_cast<Offer&>(message) = kPairFormat.body_of<Offer>(found);
    else
      message.text = kPairFormat.text_of(found);
    return message;
  }
};

}  // namespace tutti_test
