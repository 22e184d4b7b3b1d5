// SPDX-License-Identifier: Apache-2.0
//
// A peer's doorbell as this process sees it: its page and the eventfd that wakes it.
#pragma once

#include <memory>

#include "file_descriptor.hpp"
#include "memory_file.hpp"
#include "ring.hpp"

namespace tutti::shm {

struct PeerDoorbell {
  std::shared_ptr<Mapping> page;
  FileDescriptor eventfd;
  Doorbell& words() const { return *reinterpret_cast<Doorbell*>(page->data()); }
};

// All of this process's ranks share one doorbell of a peer, so that n ranks of a process that all know each other hold
// n eventfds, not n * n. `page` is the mapping of map_shared, the same for equal files; of several eventfds that came
// with one page the first is kept. [any thread]
std::shared_ptr<PeerDoorbell> share_doorbell(std::shared_ptr<Mapping> page, FileDescriptor eventfd);

}  // namespace tutti::shm
