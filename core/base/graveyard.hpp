// SPDX-License-Identifier: Apache-2.0
//
// Objects that a device or a peer may still use after a failure, when nobody says any more when it has stopped. They
// are kept until the process ends: never destroyed, and still reachable, so that a leak checker finds nothing lost.
#pragma once

#include <memory>

namespace tutti::core {

// `reason`: a literal, for a debugger: why it cannot be released. Any thread; also in destructors. Where there is no
// memory for a note of it the object stays all the same.
void keep_for_ever(const void* object, const char* reason) noexcept;

template <typename Object>
void keep_for_ever(std::unique_ptr<Object> object, const char* reason) noexcept {
  keep_for_ever(static_cast<const void*>(object.release()), reason);
}

}  // namespace tutti::core
