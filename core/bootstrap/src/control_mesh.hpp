// SPDX-License-Identifier: Apache-2.0
//
// The control plane between processes: a chordal ring that lives as long as the communicator.
//
// Each rank has an authenticated connection to those that are a power of two before and after it, at most 2 log2(n). A
// notice is flooded: a rank that gets it for the first time passes it on to its other neighbours. So every rank is the
// root of a binomial tree of its own. There is no root to lose and nothing to repair. The ring stays in one piece as
// long as fewer ranks are dead than one has neighbours, and usually far beyond.
//
// It begins as a star: all ranks connect to rank 0, which they can find (meeting.hpp). Rank 0 tells each how the next
// one is reached. The rest spreads over the ring as it grows: a rank that is connected to the ranks a power of two
// before and after it tells the one before how the one after is reached, which is twice as far from there. So linking
// takes log2(n) rounds, and no rank is told of more than log2(n) others. A rank that is linked and no neighbour of rank
// 0 gives its connection with rank 0 up. Where the application's all-gather tells the contacts there is no star.
//
// A thread sleeps on the connections, so that notices go on through ranks that are busy outside Tutti. The kernel
// closes a dead process's connections: its neighbours see that at once, and rank 0 while they meet. Neighbours of the
// same host watch the process itself too (pidfd), since a child that it has forked may keep the connection open.
#pragma once
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "attendance.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/control_plane.hpp"
#include "links.hpp"
#include "packet.hpp"

namespace tutti::core {

// Rank 0 awaits the others at `listener`. Strangers and slow handshakes delay no rank. All three are collective, and
// throw Failure naming the ranks that did not come or could not be reached, or the first cause of a loss.
std::unique_ptr<Bootstrap> open_hub(const Rendezvous& rendezvous, MeetingPlace place, FileDescriptor listener,
                                    const Deadline& deadline);
// Another rank, which looks for rank 0 at `where`.
std::unique_ptr<Bootstrap> join_hub(const Rendezvous& rendezvous, const std::string& where, const FindPlace& find,
                                    const Deadline& deadline);
// Ranks that have been told their contacts otherwise; `listener` and one's own contact are of open_mesh_door.
std::unique_ptr<Bootstrap> link_ranks(const Rendezvous& rendezvous, const std::string& secret, const Contacts& contacts,
                                      FileDescriptor listener, const Deadline& deadline);

// Where a rank (kAnyRank: a newcomer) awaits its neighbours, and how it is reached: on all interfaces, of which it
// offers all addresses; or, without a secret, at the address that the meeting has seen.
struct MeshDoor {
  FileDescriptor listener;
  MeshAddress address;
};
MeshDoor open_mesh_door(uint32_t rank, const std::string& secret, const SocketAddress& seen);

// The neighbours of `rank`, ascending: (rank +- 2^k) mod nranks.
std::vector<uint32_t> mesh_neighbours(uint32_t rank, uint32_t nranks);

// One rank's links and the thread that serves them.
class ControlMesh final : public ControlPlane, private Links {
 public:
  ControlMesh(const Rendezvous& rendezvous, uint32_t rank, uint32_t nranks);
  ~ControlMesh() override;

  // Rank 0's part of a meeting: awaits the others, and tells them their contacts.
  Contacts await_ranks(Attendance& attendance, FileDescriptor listener, const std::function<std::string()>& obstacle,
                       const Deadline& deadline);
  // The part of another rank, which rank 0 has welcomed.
  Contacts await_contacts(FrameStream hub, const Deadline& deadline);
  // Connects to all neighbours.
  void link_up(const std::string& secret, const Contacts& contacts, FileDescriptor listener, const Deadline& deadline);
  // Tells all others what this rank is, and learns the same of them. No rank goes on before all are linked: a notice
  // sent from then on reaches all.
  void get_acquainted(const Deadline& deadline);

  Traffic traffic() const override {
    const std::lock_guard lock(mutex_);
    return all_traffic();
  }
  std::string who(uint32_t rank) const override {
    const std::lock_guard lock(mutex_);
    return ranks_[rank].who;
  }

 protected:
  void say_goodbye() override;
  void send(Packet packet) override;

 private:
  // Events of links, to be processed without the lock. `rank` is to blame when that fails.
  struct LinkEvent {
    uint32_t rank;
    std::function<void()> process;
  };

  // Waits until done(), which is called with the lock. Throws what ends the waiting for other ranks; `check`, which is
  // called without the lock, may throw more.
  void await(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done, const std::function<void()>& check);
  void check_others() const;
  void ask_who_is_missing(const Deadline& deadline);
  void connect_to_rank(uint32_t peer, const Deadline& deadline);
  [[noreturn]] void not_linked(uint32_t peer, const Deadline& deadline, const std::string& why);

  // The thread. With the lock:
  void admit(TcpGuest& guest) override;
  void admit_to_meeting(TcpGuest& guest);
  void turned_away(const std::string& text) override {
    if (attendance_) attendance_->note_turned_away(text);
  }
  bool starved(int error) override;
  void take(uint32_t peer, const Frame& frame) override;
  void ended(uint32_t peer, const std::string& why, bool broke) override;
  void take_packet(uint32_t peer, const Frame& frame);
  void take_address(uint32_t peer, const Frame& frame);
  // Passes a packet on by its route: this rank's, or one that came from `from`.
  void pass_on(const Packet& packet, uint32_t from);
  // ... and without it:
  void run();
  void wake_thread();

  const std::vector<uint32_t> neighbours_;

  mutable std::mutex mutex_;         // guards all that follows, and Links
  std::condition_variable linked_;   // links have come, or, once this rank leaves, gone
  std::string token_, ring_secret_;  // the ring's name; and what its ranks prove to know
  FileDescriptor wake_event_;
  std::vector<MeshIdentity> ranks_;
  Attendance* attendance_ = nullptr;           // rank 0: while the ranks meet
  std::optional<Contacts> contacts_;           // as rank 0 has told them
  std::map<uint32_t, MeshAddress> addresses_;  // of neighbours, as they become known
  std::optional<Failure> starved_;             // why a connection could not be accepted
  std::vector<LinkEvent> events_;
  std::vector<uint64_t> floods_;  // by origin: the last flood's serial
  std::map<std::pair<uint32_t, uint64_t>, uint32_t>
      routes_;           // by (asking rank, number of the roll call): the neighbour it came from
  bool leaves_ = false;  // this rank has said goodbye
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tutti::core
