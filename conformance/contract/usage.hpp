// SPDX-License-Identifier: Apache-2.0
//
// The resources of a process: descriptors, threads, mapped bytes, heap. A plugin that has released everything holds no
// more than before.
#pragma once

#include <cstdint>
#include <functional>

namespace tutti::conformance::contract {

// Calls live(warm_up), then live(lives), which does `what` so many times, and throws Broken(clause) when the process
// holds more after the latter than before. Under sanitizers only descriptors are counted.
void require_no_growth(const char* clause, const char* what, uint32_t warm_up, uint32_t lives,
                       const std::function<void(uint32_t)>& live);

}  // namespace tutti::conformance::contract
