// SPDX-License-Identifier: Apache-2.0
//
// The control plane between processes: a chordal ring that lives as long as the communicator.
//
// Each rank has an authenticated connection to those that are a power of two before and after it, at most 2 log2(n). A
// notice is flooded: a rank that gets it for the first time passes it on to its other neighbours. So every rank is the
// root of a binomial tree of its own. There is no root to lose and nothing to repair. The ring stays in one piece as
// long as fewer ranks are dead than one has neighbours, and usually far beyond.
//
// Each rank is told by the meeting how the next one is reached. The rest spreads over the ring as it grows: a rank that
// is connected to the ranks a power of two before and after it tells the one before how the one after is reached, which
// is twice as far from there. So linking takes log2(n) rounds, and no rank is told of more than log2(n) others.
//
// A thread sleeps on the connections, so that notices go on through ranks that are busy outside Tutti. The kernel
// closes a dead process's connections: its neighbours see that at once. Neighbours of the same host watch the process
// itself too (pidfd), since a child that it has forked may keep the connection open.
#pragma once
#include <chrono>
#include <memory>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/control_plane.hpp"
#include "meeting.hpp"

namespace tutti::core {

// The neighbours of `rank`, ascending: (rank +- 2^k) mod nranks.
std::vector<uint32_t> mesh_neighbours(uint32_t rank, uint32_t nranks);

// Where one rank awaits its neighbours: on all interfaces, of which it offers all addresses; or, without a secret, at
// the address that the meeting knows.
class MeshDoor {
 public:
  // Rank 0 gives the mesh its name, by which it is told apart from others. -1: a newcomer, whose number is not known.
  explicit MeshDoor(int64_t rank) : rank_(rank) {}
  // An OpenDoor.
  std::string open(const std::string& secret, const SocketAddress& seen);
  Descriptor take() { return std::move(listener_); }

 private:
  const int64_t rank_;
  Descriptor listener_;
};

// Collective over the ranks that have met, each with its door. Throws Failure naming the rank that could not be
// reached, or what the meeting says.
std::shared_ptr<ControlPlane> make_control_mesh(Meeting& meeting, MeshDoor& door, const Rendezvous& rendezvous,
                                                std::chrono::nanoseconds timeout);

}  // namespace tutti::core
