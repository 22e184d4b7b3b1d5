// SPDX-License-Identifier: Apache-2.0
//
// What endpoints of transports have in common: taking transfers in order, naming one that is refused, and telling two
// ranks that are set up differently.
#pragma once

#include <tutti/plugin/transport.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <tutti/sdk/plugin.hpp>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {

// "send (kind 1, flags 0) of 8 bytes on lane 9 of 4"
inline std::string describe(const tutti_transfer& t, uint32_t lanes) {
  return std::string(t.kind == TUTTI_TRANSFER_RECV ? "receive" : "send") + " (kind " + std::to_string(t.kind) +
         ", flags " + std::to_string(t.flags) + ") of " + std::to_string(t.bytes) + " bytes on lane " +
         std::to_string(t.lane) + " of " + std::to_string(lanes);
}

// The loop of post: how many transfers were taken. `check(t, why)` gives a status and, where `why` is not nullptr, the
// words of a refusal; a refused transfer throws when it is the first, else the next post begins with it. `take(t)` is
// false where there is no room now.
template <typename Check, typename Take>
uint32_t post_in_order(std::span<const tutti_transfer> transfers, Check&& check, Take&& take) {
  uint32_t n = 0;
  for (const tutti_transfer& t : transfers) {
    if (check(t, nullptr) != TUTTI_OK) {
      if (n > 0) break;
      std::string why;
      const tutti_status status = check(t, &why);
      throw Error(status, why);
    }
    if (!take(t)) break;
    ++n;
  }
  return n;
}

// What must be equal on two ranks.
struct Setting {
  const char* what;
  uint64_t mine, theirs;
};
// The reason for not connecting with `peer`: which settings are not.
inline std::string differences(uint32_t rank, uint32_t peer, std::initializer_list<Setting> settings) {
  std::string text = "the two ranks are set up differently:";
  for (const Setting& s : settings)
    if (s.mine != s.theirs)
      text += std::string(" ") + s.what + " is " + std::to_string(s.mine) + " on rank " + std::to_string(rank) +
              " and " + std::to_string(s.theirs) + " on rank " + std::to_string(peer) + ";";
  return text + " they must be equal";
}

}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
