// SPDX-License-Identifier: Apache-2.0
//
// The ranks of a communicator find each other by a meeting, before the control plane between them exists. A meeting
// tells each rank how rank 0 and the next rank are reached, and closes once the control plane is linked. Everything
// else goes over the control plane.
#pragma once
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/environment.hpp"
#include "bootstrap/socket_address.hpp"

namespace tutti::core {

// The most bytes that a rank may give to a meeting.
inline constexpr uint64_t kMaxContact = 4096;

// The contributions of two ranks to a meeting: rank 0, and the next rank, (rank + 1) mod nranks.
struct Contacts {
  std::string first, next;

  static void fields(auto& wire, auto& contacts) { wire(contacts.first, contacts.next); }
};

// Opens the socket at which a rank awaits the connections of the control plane, in place of one that it has opened
// before, and gives the rank's contribution to the meeting: at most kMaxContact bytes that say how it is reached.
// `secret`: the job's; `seen`: the rank's address as far as the meeting knows it. Throws Failure.
using OpenDoor = std::function<std::string(const std::string& secret, const SocketAddress& seen)>;

// One rank's end of it. One thread at a time. The ranks have met when it is constructed. No rank gets or sends more
// than a few messages of the size of a contact, except rank 0, which may hand each rank its contacts.
class Meeting {
 public:
  Meeting(uint32_t rank, uint32_t nranks, std::string secret, Contacts contacts = {})
      : rank_(rank), nranks_(nranks), secret_(std::move(secret)), contacts_(std::move(contacts)) {}
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  virtual ~Meeting() = default;

  uint32_t rank() const { return rank_; }
  uint32_t nranks() const { return nranks_; }
  // Bytes that all ranks know and, where the rendezvous is protected, nobody else. Empty: there are none.
  const std::string& secret() const { return secret_; }

  const Contacts& contacts() const { return contacts_; }
  virtual Traffic traffic() const { return {}; }
  // The losses that the meeting has noticed, "" while all is well. Never blocks.
  virtual std::string problem() { return ""; }
  // The address by which the other ranks reach this one, as far as the meeting knows.
  const SocketAddress& address() const { return address_; }
  // Tells the others, best effort, that this rank fails. `reason` goes on after "rank 3 ".
  virtual void fail(const std::string& /*reason*/) noexcept {}

 protected:
  // "rank 3: bootstrap: ": how messages of this object begin.
  std::string me() const { return fmt::format("rank {}: bootstrap: ", rank_); }

  const uint32_t rank_;
  const uint32_t nranks_;
  const std::string secret_;
  Contacts contacts_;
  SocketAddress address_;
};

// The meetings. All are collective, give up at the deadline and throw Failure that names the ranks that are lost or did
// not arrive. Rank and nranks of the rendezvous are set, but for newcomers.
using Meet = std::unique_ptr<Meeting>(const Rendezvous& rendezvous, const Environment& environment,
                                      const OpenDoor& door, const Deadline& deadline);

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
// notices by itself when a rank is lost: no deadline applies to it.
Meet meet_by_callback;

// Ranks that are threads of this process meet in a process-wide table, with no sockets and no mesh. The name is free
// again once all have met or the meeting has failed. `secret`: what secret() gives; empty: a random one.
std::unique_ptr<Bootstrap> meet_locally(const std::string& name, uint32_t rank, uint32_t nranks, std::string secret,
                                        std::chrono::nanoseconds timeout);

}  // namespace tutti::core
