// SPDX-License-Identifier: Apache-2.0
//
// Which ranks can pass memory to each other: proved, not declared. Ranks of one host key may be apart all the same: the key is
// a setting of the user's, a sandbox hides the boot id, clones of a virtual machine boot with the same one, a container has
// its own network namespace, a rank runs as another user. So each rank opens a door, a unix socket in the abstract namespace,
// and knocks at those of its host key. A door opens to ranks of the same running kernel, network namespace and user, which
// is what transports of reach TUTTI_REACH_HOST need.
#pragma once

#include <cstdint>
#include <string>

#include "bootstrap/file_descriptor.hpp"
#include "comm/native.hpp"

namespace tutti::core {

class HostReach {
 public:
  // Opens the door. It stays open as long as the object lives: until all ranks have knocked.
  HostReach();

  // The ranks with the same `place` reach each other: it is the lowest one of them. `apart`: why this rank does not reach the
  // first rank of its host key; "": it does.
  struct Found {
    uint32_t place = 0;
    std::string apart;
  };
  // Collective. `host`: this rank's key. Throws Failure.
  Found find(uint32_t rank, const std::string& host, const Gather& gather) const;

 private:
  std::string name_;  // of the door; "": there is none
  FileDescriptor door_;
};

}  // namespace tutti::core
