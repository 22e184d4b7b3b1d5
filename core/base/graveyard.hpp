// SPDX-License-Identifier: Apache-2.0
//
// Objects that a device or a peer may still use after a failure, when nobody says any more when it has stopped. They
// are kept until the process ends: never destroyed, and still reachable, so that a leak checker finds nothing lost.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace tutti::core {

// `reason`: why it cannot be released, for whoever looks in a debugger. Any thread.
void keep_for_ever(std::shared_ptr<void> object, std::string reason);

template <typename Object>
requires std::is_rvalue_reference_v<Object&&>
void keep_for_ever(Object&& object, std::string reason) {
  keep_for_ever(std::shared_ptr<void>(std::make_shared<Object>(std::move(object))), std::move(reason));
}

}  // namespace tutti::core
