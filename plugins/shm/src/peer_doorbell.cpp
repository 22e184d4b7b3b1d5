// SPDX-License-Identifier: Apache-2.0
#include "peer_doorbell.hpp"

#include <map>
#include <mutex>

namespace tutti::shm {

std::shared_ptr<PeerDoorbell> share_doorbell(std::shared_ptr<Mapping> page, FileDescriptor eventfd) {
  static std::mutex mutex;
  static std::map<const Mapping*, std::weak_ptr<PeerDoorbell>> doorbells;
  const std::lock_guard lock(mutex);
  std::erase_if(doorbells, [](const auto& entry) { return entry.second.expired(); });
  // A live doorbell keeps its page, so no other page can have this address.
  auto& known = doorbells[page.get()];
  if (auto doorbell = known.lock()) return doorbell;
  auto doorbell = std::make_shared<PeerDoorbell>(PeerDoorbell{std::move(page), std::move(eventfd)});
  known = doorbell;
  return doorbell;
}

}  // namespace tutti::shm
