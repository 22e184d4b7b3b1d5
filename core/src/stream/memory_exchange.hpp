// SPDX-License-Identifier: Apache-2.0
//
// How ranks of one host hand each other device memory and its descriptors: datagrams between abstract Unix sockets.
// Everybody on the host can list and take such names, so a rank's follows from the job's secret, the communicator's id
// and the rank: a stranger cannot take the name of a rank that has not come yet and be handed its memory. Each datagram
// carries a proof that its author knows the secret.
#pragma once

#include <tutti/plugin/device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/descriptor.hpp"

namespace tutti::core {

// What one rank says to another: of the channel of one lane between them, of memory that the other may map
// (windows.hpp).
struct ChannelNotice {
  // offer, answer: of the channel's sender, of its receiver
  enum Kind : uint32_t { offer = 1, answer = 2, memory_of = 4 };
  uint32_t kind = 0;
  uint32_t from = 0;  // who says it
  uint32_t lane = 0;
  uint32_t able = 0;  // 1: here is the memory, it is mapped; 0: `why` not
  tutti_memory_export memory{};
  char why[256] = {};
};

class MemoryExchange {
 public:
  // Makes the rank's socket. Where none can be made nobody reaches this rank, and it reaches nobody.
  MemoryExchange(uint64_t communicator, uint32_t rank, std::string secret);

  // Has that rank a socket in this network namespace? Both ends of a pair come to the same answer once both have made
  // theirs.
  bool reaches(uint32_t rank) const;
  // False: not now (its queue is full), try again. Descriptors stay the caller's.
  bool send(uint32_t to, const ChannelNotice& notice, const std::vector<int>& descriptors);

  struct Received {
    ChannelNotice notice;
    std::vector<Descriptor> descriptors;
  };
  // The next one that somebody of this job has sent, if any has come.
  std::optional<Received> receive();

  // Of that rank's socket, without the leading zero byte.
  std::string name_of(uint32_t rank) const;

 private:
  const uint64_t communicator_;
  const std::string secret_;
  Descriptor socket_;
};

}  // namespace tutti::core
