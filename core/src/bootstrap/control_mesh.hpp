// SPDX-License-Identifier: Apache-2.0
//
// The control plane between processes: a chordal ring that lives as long as the communicator.
//
// Each rank has an authenticated connection to those that are a power of two before and after it, at most 2 log2(n). A
// notice is flooded: whoever gets it for the first time passes it on to its other neighbours, which makes every rank
// the root of a binomial tree of its own. There is no root to lose and nothing to mend: the ring stays in one piece
// as long as fewer ranks are dead than one has neighbours, and mostly far beyond.
//
// A thread sleeps on the connections, so that notices go on through ranks that are busy outside Tutti. The kernel
// closes a dead process's connections: its neighbours see that at once. Neighbours of the same host watch the process
// itself too (pidfd), since a child that it has forked may keep the connection open.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/control_plane.hpp"
#include "bootstrap/socket_address.hpp"

namespace tutti::core {

// The neighbours of `rank`, ascending: (rank +- 2^k) mod nranks.
std::vector<uint32_t> mesh_neighbours(uint32_t rank, uint32_t nranks);

struct ControlMeshConfig {
  uint32_t rank = 0;
  uint32_t nranks = 0;
  std::string secret;
  SocketAddress address;    // of this rank, as the meeting has seen it; the port is ignored
  bool everywhere = false;  // listen on all interfaces and offer all addresses
  std::chrono::nanoseconds handshake_limit = std::chrono::seconds(10);
  std::shared_ptr<const Tls> tls = nullptr;
  BootstrapLog log;
  // The meeting's all-gather, and what it has noticed of lost ranks in between ("" while all is well).
  std::function<std::vector<std::string>(const std::string& mine)> all_gather;
  std::function<std::string()> meeting_problem;
};

// Collective over the meeting's ranks. Throws Failure naming the rank that could not be reached, or what the meeting
// says.
std::shared_ptr<ControlPlane> make_control_mesh(const ControlMeshConfig& config, std::chrono::nanoseconds timeout);

}  // namespace tutti::core
