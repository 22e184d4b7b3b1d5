// SPDX-License-Identifier: Apache-2.0
//
// Transports, alone or mixed, and what each pair of ranks must therefore use. "mapped" stands for none: processes of
// one host whose devices read each other's memory, which is what the library does where no transport is named.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::conformance {

struct Mix {
  std::string name;                     // "shm", "shm+tcp"
  std::vector<std::string> transports;  // one, or one that stays within a host and one that reaches others
  bool threads = false;                 // its ranks must be threads of one process
  uint64_t fragment_bytes = 0;          // the smallest message limit of them
  uint64_t inline_bytes = 0;            // the smallest inline limit
  bool mapped = false;                  // no transport: for device memory only
  bool maps = false;                    // the first of them has mapped/1: streams read what its ranks exchange
  std::string unusable;                 // why it cannot serve on this machine; "": it can
  bool broken = false;                  // unusable, and not because its query says TUTTI_NOT_SUPPORTED

  // "shm,tcp", for tutti_comm_config.transports; "" where none is named.
  std::string setting() const;
  // The pretended host of each rank. A mix has two forms, so both transports get pairs from three ranks on.
  std::vector<uint32_t> hosts(uint32_t nranks) const;
  // The transport that must carry what `a` and `b` exchange; streams of devices that export memory map it where it
  // maps.
  const std::string& between(uint32_t a, uint32_t b, uint32_t nranks) const;
};

// Throws std::invalid_argument for a name of no transport, or a mix of other than the two kinds.
Mix make_mix(const std::string& name);
// Those that a selection names; without names every transport, every mix of a host's and a network's one, and
// "mapped".
std::vector<Mix> select_mixes(const std::vector<std::string>& names);

}  // namespace tutti::conformance
