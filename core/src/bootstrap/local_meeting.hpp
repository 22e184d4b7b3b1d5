// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "bootstrap/bootstrap.hpp"

namespace tutti::core {

// Ranks that are threads of this process meet in a process-wide table, with no sockets. The name is free again once
// all have met or the meeting has failed. `secret`: what secret() gives; empty: a random one.
std::unique_ptr<Bootstrap> meet_locally(const std::string& name, uint32_t rank, uint32_t nranks, std::string secret,
                                        std::chrono::nanoseconds timeout);

}  // namespace tutti::core
