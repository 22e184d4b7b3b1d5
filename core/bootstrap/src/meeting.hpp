// SPDX-License-Identifier: Apache-2.0
//
// The ways by which the ranks of a communicator meet. Rank 0 awaits the others at a place that they can find; or the
// application's own all-gather tells each rank how two others are reached. The control plane begins with that
// (control_mesh.hpp), and everything else goes over it.
#pragma once
#include <memory>
#include <string>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/environment.hpp"

namespace tutti::core {

// The meetings. All are collective, give up at the deadline and throw Failure that names the ranks that are lost or did
// not arrive. Rank and nranks of the rendezvous are set, but for newcomers.
using Meet = std::unique_ptr<Bootstrap>(const Rendezvous& rendezvous, const Environment& environment,
                                        Deadline& deadline);

// Rank 0 listens at tcp://HOST:PORT, or where the environment says if `where` is empty; the others connect. With a
// secret (TUTTI_SECRET) rank 0 listens on all interfaces; without one only on that of the address, and says so once.
Meet meet_by_tcp;

// By a text of make_unique_id: rank 0 listens since it was made.
Meet meet_by_id;

// Ranks that share a folder: rank 0 listens and writes where, with a fresh secret, into FOLDER/tutti-meeting (readable
// by its user only; whole or not at all); the others read that and connect. The file of an earlier run is told apart by
// nobody listening there, or by the listener not knowing the secret: the others then read the file again until the
// deadline. Rank 0 removes the file once all have met or the meeting has failed.
Meet meet_in_folder;
inline constexpr char kFolderFile[] = "tutti-meeting";

// By the application's own all-gather function (MPI, a key-value store, ...). The function bounds its own waiting and
// notices by itself when a rank is lost: unless it is timed, the deadline begins when it has returned.
Meet meet_by_callback;

// Ranks that are threads of this process meet in a process-wide table, with no sockets and no mesh. The name is free
// again once all have met or the meeting has failed. `secret`: what secret() gives; empty: a random one.
std::unique_ptr<Bootstrap> meet_locally(const std::string& name, uint32_t rank, uint32_t nranks, std::string secret,
                                        const Deadline& deadline,
                                        const std::function<std::string()>& obstacle = nullptr);
// A world of one.
std::unique_ptr<Bootstrap> meet_nobody(std::string secret);

}  // namespace tutti::core
