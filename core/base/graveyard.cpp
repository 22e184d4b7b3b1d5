// SPDX-License-Identifier: Apache-2.0
#include "base/graveyard.hpp"

#include <mutex>
#include <vector>

namespace tutti::core {

void keep_for_ever(std::shared_ptr<void> object, std::string reason) {
  struct Kept {
    std::shared_ptr<void> object;
    std::string reason;
  };
  static std::mutex mutex;
  static auto& all = *new std::vector<Kept>;
  const std::lock_guard lock(mutex);
  all.push_back({std::move(object), std::move(reason)});
}

}  // namespace tutti::core
