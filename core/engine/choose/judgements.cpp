// SPDX-License-Identifier: Apache-2.0
#include "engine/choose/judgements.hpp"

namespace tutti::core {

std::shared_ptr<Judgements> Judgements::of(uint64_t communicator) {
  if (communicator == 0) return std::make_shared<Judgements>();
  static std::mutex mutex;
  static std::map<uint64_t, std::weak_ptr<Judgements>> known;
  const std::lock_guard lock(mutex);
  std::erase_if(known, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Judgements>& entry = known[communicator];
  std::shared_ptr<Judgements> judgements = entry.lock();
  if (!judgements) entry = judgements = std::make_shared<Judgements>();
  return judgements;
}

const std::vector<Candidate>& Judgements::find(const Key& key, const std::function<std::vector<Candidate>()>& make) {
  Entry* entry = nullptr;
  {
    const std::lock_guard lock(mutex_);
    entry = &entries_[key];
  }
  const std::lock_guard lock(entry->mutex);
  if (!entry->algorithms) entry->algorithms = make();
  return *entry->algorithms;
}

}  // namespace tutti::core
