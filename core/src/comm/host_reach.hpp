// SPDX-License-Identifier: Apache-2.0
//
// Which ranks can pass memory to each other: proved, not declared. Ranks with equal host keys may still be unable to: a
// user may set the key, a sandbox may hide the boot id, clones of a virtual machine boot with the same one, a container
// has its own network namespace, a rank may run as another user. So each rank listens on a unix socket in the abstract
// namespace and connects to those of its host key. That succeeds within one running kernel and network namespace. With
// one user it is what transports of reach TUTTI_REACH_HOST need.
#pragma once

#include <cstdint>
#include <string>
#include <tutti/base/file_descriptor.hpp>

#include "engine/choose/native.hpp"

namespace tutti::core {

class HostReach {
 public:
  // Listens as long as the object lives: until all ranks have tried to connect.
  HostReach();

  // The ranks with the same `place` reach each other: it is the lowest one of them. `apart`: why this rank does not
  // reach the first rank of its host key; "": it does.
  struct Found {
    uint32_t place = 0;
    std::string apart;
  };
  // Collective. `host`: this rank's key. Throws Failure.
  Found find(uint32_t rank, const std::string& host, const Gather& gather) const;

 private:
  std::string name_;  // of the socket; "": there is none
  FileDescriptor listener_;
};

}  // namespace tutti::core
