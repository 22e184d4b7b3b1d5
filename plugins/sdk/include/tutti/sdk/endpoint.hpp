// SPDX-License-Identifier: Apache-2.0
//
// The common parts of transports' endpoints: naming a transfer that is refused, and telling two ranks that are set up
// differently.
#pragma once

#include <tutti/plugin/transport.h>

#include <cstdint>
#include <string>
#include <tutti/sdk/plugin.hpp>
#include <vector>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {

// "send (kind 1, flags 0) of 8 bytes on lane 9 of 4"
inline std::string describe(const tutti_transfer& t, uint32_t lanes) {
  return std::string(t.kind == TUTTI_TRANSFER_RECV ? "receive" : "send") + " (kind " + std::to_string(t.kind) +
         ", flags " + std::to_string(t.flags) + ") of " + std::to_string(t.bytes) + " bytes on lane " +
         std::to_string(t.lane) + " of " + std::to_string(lanes);
}

// Values that must be equal on two ranks.
struct Setting {
  const char* what;
  uint64_t mine, theirs;
};
// The reason for not connecting with `peer`: which settings are not.
inline std::string differences(uint32_t rank, uint32_t peer, const std::vector<Setting>& settings) {
  std::string text = "the two ranks are set up differently:";
  for (const Setting& s : settings)
    if (s.mine != s.theirs)
      text += std::string(" ") + s.what + " is " + std::to_string(s.mine) + " on rank " + std::to_string(rank) +
              " and " + std::to_string(s.theirs) + " on rank " + std::to_string(peer) + ";";
  return text + " they must be equal";
}

}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
