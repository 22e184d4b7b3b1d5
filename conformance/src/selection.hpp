// SPDX-License-Identifier: Apache-2.0
//
// The user's selection: the options that every command shares.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::conformance {

enum class Level { smoke, quick, standard, full };
const char* level_name(Level level);

// The k-th of n shares of the cases: a machine of n that divide a level among them. {1, 1}: all.
struct Share {
  uint32_t k = 1, n = 1;
};

// Empty lists: everything there is.
struct Selection {
  Level level = Level::quick;
  std::vector<std::string> transports;  // "shm", "tcp", or a mix of several: "shm+tcp"
  std::vector<std::string> devices;     // "host", "simulated" ...
  std::vector<std::string> algorithms, collectives, types;
  std::vector<uint32_t> ranks;
  std::vector<std::string> cases;    // ids; a trailing or inner '*' stands for anything
  std::vector<std::string> plugins;  // files, loaded in this process and in every worker
  // A network plugin of NCCL, which is one of the transports: its file, or NAME of libnccl-net-NAME.so; "": none.
  std::string nccl_net;
  struct {
    std::string name, version, file;
  } nccl_table;  // what it is, once it was loaded
  std::string netns;  // "NAME": host h of a case is the network namespace NAME-h (tools/netns/hosts.sh up NAME 2)
  uint64_t seed = 1;
  Share share;
  double patience = 1;  // every time limit is so many times as long: for slow, emulated or very busy machines
};

}  // namespace tutti::conformance
