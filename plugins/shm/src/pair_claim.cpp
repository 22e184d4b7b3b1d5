// SPDX-License-Identifier: Apache-2.0
#include "pair_claim.hpp"

#include <algorithm>
#include <mutex>
#include <set>

namespace tutti::shm {

struct PairClaim::Begun {
  std::mutex mutex;
  std::set<Pair> pairs;
};

// Never destroyed: endpoints may end after static objects have.
PairClaim::Begun& PairClaim::begun() {
  static Begun& made = *new Begun();
  return made;
}

std::optional<PairClaim> PairClaim::take(const Address& mine, const Address& theirs) {
  Pair pair;
  std::copy_n(mine.name, pair.first.size(), pair.first.begin());
  std::copy_n(theirs.name, pair.second.size(), pair.second.begin());
  if (pair.second < pair.first) std::swap(pair.first, pair.second);
  const std::lock_guard lock(begun().mutex);
  if (!begun().pairs.insert(pair).second) return std::nullopt;
  return PairClaim(pair);
}

PairClaim::~PairClaim() {
  if (!pair_) return;
  const std::lock_guard lock(begun().mutex);
  begun().pairs.erase(*pair_);
}

}  // namespace tutti::shm
