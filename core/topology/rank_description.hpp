// SPDX-License-Identifier: Apache-2.0
//
// A rank's description of itself as bytes for the other ranks. Nothing that another rank says is trusted: an impossible
// value becomes a Failure that names the rank.
#pragma once

#include <cstdint>
#include <string>

#include "topology/topology.hpp"

namespace tutti::core {

std::string encode(const RankDescription& rank);
// Throws Failure when the bytes are no description.
RankDescription decode_rank(const std::string& bytes, uint32_t rank);

}  // namespace tutti::core
