// SPDX-License-Identifier: Apache-2.0
#include "control_mesh.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "bootstrap/authentication.hpp"
#include "handshake.hpp"
#include "links.hpp"
#include "make_failure.hpp"
#include "packet.hpp"

namespace tutti::core {
namespace {

constexpr size_t kReadTurn = 256 << 10;
constexpr size_t kMaxGuests = 256;
constexpr std::chrono::milliseconds kLastWords(200);
// A rank that leaves waits this long for its neighbours to close their ends.
constexpr std::chrono::seconds kLinger(1);
// Roll calls whose way back is remembered; older ones have long been given up.
constexpr size_t kMaxRoutes = 1 << 16;

// The first attempt at each of several addresses takes at most this long.
constexpr std::chrono::milliseconds kFirstAttemptAtPeer(500);

// The kernel and process-id space of this process. Ranks with equal ones see each other's processes.
std::string process_space() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat status = {};
  if (boot.empty() || ::stat("/proc/self/ns/pid", &status) != 0) return "";
  return fmt::format("{}:{}", boot, status.st_ino);
}

// One rank's links and the thread that serves them.
class ControlMesh final : public ControlPlane, private Links {
 public:
  ControlMesh(const Meeting& meeting, const Rendezvous& rendezvous, Descriptor listener, const std::string& token);
  ~ControlMesh() override;

  // Connects to all neighbours; `next` is how the next rank is reached.
  void link_up(Meeting& meeting, const MeshAddress& next, const Deadline& deadline);
  // Tells all others what this rank is, and learns the same of them.
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
  // News from links, to be processed without the lock. `rank` is to blame when that fails.
  struct Arrival {
    uint32_t rank;
    std::function<void()> process;
  };

  void connect_to_rank(Meeting& meeting, uint32_t peer, const Deadline& deadline);
  // Throws what else can end the waiting for other ranks.
  void check_others(Meeting& meeting);
  [[noreturn]] void not_linked(uint32_t peer, const Deadline& deadline, const std::string& why);

  // The thread. With the lock:
  void admit(TcpGuest& guest) override;
  // Guests are ranks, most likely: this rank cannot take part.
  bool starved(int error) override {
    starved_ = error;
    return false;
  }
  void take(uint32_t peer, const Frame& frame) override;
  void ended(uint32_t peer, const std::string& why, bool broke) override;
  void take_packet(uint32_t peer, const Frame& frame);
  void take_address(uint32_t peer, const Frame& frame);
  // Passes a packet on by its route: this rank's, or one that came from `from`.
  void pass_on(const Packet& packet, uint32_t from);
  // ... and without it:
  void run();

  const std::string secret_, token_;
  const std::shared_ptr<const Tls> tls_;
  const BootstrapLog log_;

  mutable std::mutex mutex_;        // guards all that follows, and Links
  std::condition_variable linked_;  // links have come, or, once this rank leaves, gone
  Descriptor stop_event_;
  std::vector<MeshIdentity> ranks_;
  std::map<uint32_t, MeshAddress> addresses_;  // of neighbours, as they become known
  int starved_ = 0;                            // why a connection could not be accepted
  std::vector<Arrival> arrivals_;
  std::vector<uint64_t> floods_;  // by origin: the last flood's serial
  std::map<std::pair<uint32_t, uint64_t>, uint32_t>
      routes_;           // by (asking rank, number of the roll call): the neighbour it came from
  bool leaves_ = false;  // this rank has said goodbye
  bool stopping_ = false;
  std::thread thread_;
};

ControlMesh::ControlMesh(const Meeting& meeting, const Rendezvous& rendezvous, Descriptor listener,
                         const std::string& token)
    : ControlPlane(meeting.rank(), meeting.nranks()),
      Links(me(), max_packet(nranks_), kReadTurn, rendezvous.log),
      secret_(meeting.secret() + token),
      token_(token),
      tls_(rendezvous.tls),
      log_(rendezvous.log),
      stop_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      ranks_(nranks_),
      floods_(nranks_) {
  if (!stop_event_) throw make_failure(TUTTI_NO_RESOURCES, "{}eventfd: {}", me(), std::strerror(errno));
  watch(stop_event_.get(), [] {});
  open_door({std::move(listener), secret_, rendezvous.handshake_limit, kMaxGuests, tls_});
  thread_ = std::thread([this] { run(); });
}

ControlMesh::~ControlMesh() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  const uint64_t one = 1;
  (void)!::write(stop_event_.get(), &one, sizeof one);
  thread_.join();
}

// ---- How the links come about ------------------------------------------------------------------------------

void ControlMesh::link_up(Meeting& meeting, const MeshAddress& first_next, const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  addresses_.try_emplace((rank_ + 1) % nranks_, first_next);
  const auto await = [&](uint32_t peer, const char* why, auto&& done) {
    while (!linked_.wait_for(lock, std::chrono::milliseconds(20), done)) {
      if (starved_)
        throw make_failure(TUTTI_NO_RESOURCES,
                           "{}a rank's connection cannot be accepted: {}; a rank needs some 30 descriptors (ulimit -n)",
                           me(), std::strerror(starved_));
      lock.unlock();
      check_others(meeting);
      if (deadline.passed()) not_linked(peer, deadline, why);
      lock.lock();
    }
  };
  const auto await_link = [&](uint32_t peer) {
    await(peer, "it did not connect to this rank", [&] { return links_.count(peer) != 0; });
  };
  for (uint64_t distance = 1; distance < nranks_; distance *= 2) {
    const auto next = static_cast<uint32_t>((rank_ + distance) % nranks_);
    const auto before = static_cast<uint32_t>((rank_ + nranks_ - distance) % nranks_);
    await(next, "no rank has told how it is reached", [&] { return addresses_.count(next) != 0; });
    // They may be linked the other way round the ring.
    if (!links_.count(next) && (next != before || rank_ < next)) {
      lock.unlock();
      connect_to_rank(meeting, next, deadline);
      lock.lock();
    }
    await_link(next);
    await_link(before);
    if (2 * distance < nranks_) put(before, FrameKind::address, encode(addresses_.at(next)));
  }
  close_door();
}

void ControlMesh::check_others(Meeting& meeting) {
  if (const std::string lost = meeting.problem(); !lost.empty()) throw Failure(TUTTI_PEER_FAILED, me() + lost);
  if (const auto loss = first_cause()) throw Failure(loss->status, me() + loss->text());
}

void ControlMesh::connect_to_rank(Meeting& meeting, uint32_t peer, const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  const MeshAddress address = addresses_.at(peer);
  lock.unlock();
  const MeetingPlace place{address.addresses, "", secret_, token_, MeetingPlace::Trust::stale};
  const auto check = [&](const std::string& problem) {
    check_others(meeting);
    if (deadline.passed()) not_linked(peer, deadline, "last attempt: " + problem);
  };
  FrameStream stream = introduce(
                           {rank_, nranks_, peer, tls_}, [&] { return place; }, kFirstAttemptAtPeer, deadline, check)
                           .stream;
  lock.lock();
  ranks_[peer].who = address.who;
  add(peer, std::move(stream));
}

void ControlMesh::not_linked(uint32_t peer, const Deadline& deadline, const std::string& why) {
  std::string where;
  const std::lock_guard lock(mutex_);
  if (const auto known = addresses_.find(peer); known != addresses_.end()) {
    for (const SocketAddress& address : known->second.addresses)
      where += (where.empty() ? " at " : " or ") + address.text();
    where = fmt::format(" (rank {} is {}{})", peer, known->second.who, where);
  }
  throw make_failure(TUTTI_TIMEOUT,
                     "rank {} and rank {} could not be connected within {}: {}{}; does a firewall "
                     "keep ports of this job's hosts closed?",
                     peer, rank_, deadline.text(), why, where);
}

void ControlMesh::get_acquainted(const Deadline& deadline) {
  const MeshIdentity mine{this_process(), process_space(), static_cast<uint32_t>(::getpid())};
  std::vector<MeshIdentity> all;
  for (const std::string& bytes : all_gather(encode(mine), deadline.left()))
    all.push_back(decode<MeshIdentity>(bytes, "identity of a rank"));
  const std::lock_guard lock(mutex_);
  ranks_ = std::move(all);
  if (mine.space.empty()) return;
  for (auto& [peer, link] : links_) {
    if (ranks_[peer].space != mine.space || ranks_[peer].process == mine.process) continue;
    Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, ranks_[peer].process, 0)));
    if (process) watch_process(peer, std::move(process));
  }
}

void ControlMesh::admit(TcpGuest& guest) {
  const Hello& hello = guest.hello();
  const auto neighbours = mesh_neighbours(rank_, nranks_);
  const bool expected = hello.job == token_ && hello.nranks == nranks_ &&
                        std::ranges::binary_search(neighbours, hello.rank) && !links_.count(hello.rank);
  if (!expected)
    return refuse(guest, make_failure(TUTTI_MISMATCH, "{}rank {} of another communicator came", me(), hello.rank));
  ranks_[hello.rank].who = hello.who;
  welcome(guest, rank_, hello.rank, nranks_);
  linked_.notify_all();
}

// ---- What goes over them -----------------------------------------------------------------------------------

void ControlMesh::send(Packet packet) {
  const std::lock_guard lock(mutex_);
  if (packet.route == Route::flood) packet.serial = ++floods_[rank_];
  pass_on(packet, rank_);
}

void ControlMesh::pass_on(const Packet& packet, uint32_t from) {
  const EncodedFrame frame = encode_frame(FrameKind::packet, encode(packet));
  switch (packet.route) {
    case Route::flood:
      for (auto& [peer, link] : links_)
        if (peer != from && peer != packet.origin) put(peer, frame);
      return;
    case Route::back:
      if (const auto asked = routes_.find({packet.target, packet.number}); asked != routes_.end())
        put(asked->second, frame);
      return;
    case Route::neighbour:
      return put(packet.target, frame);
    case Route::up:
    case Route::down:
      // Over the first hop whose link is up. Without one the packet is lost, and its sender sends it again.
      for (const uint32_t hop : ring_hops(rank_, packet.target, nranks_, packet.route))
        if (const auto link = links_.find(hop); link != links_.end() && !link->second.left) return put(hop, frame);
  }
}

void ControlMesh::say_goodbye() {
  const Deadline deadline(kLastWords);
  std::unique_lock lock(mutex_);
  const EncodedFrame frame = encode_frame(FrameKind::goodbye, "");
  for (auto& [peer, link] : links_) put(peer, frame);
  while (!unsent().empty() && !deadline.passed()) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
  }
  // A connection that is closed while bytes come is reset, and the reset may overtake the goodbye: the peer closes
  // first.
  leaves_ = true;
  for (auto& [peer, link] : links_) ::shutdown(link.stream.fd(), SHUT_WR);
  linked_.wait_for(lock, kLinger, [this] { return links_.empty(); });
}

// ---- The thread --------------------------------------------------------------------------------------------

void ControlMesh::run() {
  std::vector<Arrival> arrivals;
  int patience = -1;
  while (true) {
    const std::vector<int> ready = wait(patience);
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      for (const int fd : ready) try {
          serve(fd);
        } catch (const std::exception& e) {  // out of memory or descriptors: what else lives goes on
          log_(TUTTI_LOG_ERROR, me() + e.what());
        }
      turn_away_late();
      patience = patience_ms(-1);
      arrivals.swap(arrivals_);
    }
    for (const auto& [rank, process] : arrivals) try {
        process();
      } catch (const std::exception& e) {
        notice_loss(rank, std::string("broke the control plane's protocol: ") + e.what());
      }
    arrivals.clear();
    try {
      if (const auto again = send_pairs_again())
        patience = Deadline(*again - Deadline::Clock::now()).poll_ms(patience < 0 ? INT_MAX : patience);
    } catch (const std::exception& e) {
      log_(TUTTI_LOG_ERROR, me() + e.what());
    }
  }
}

void ControlMesh::take(uint32_t peer, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::packet:
      return take_packet(peer, frame);
    case FrameKind::address:
      return take_address(peer, frame);
    case FrameKind::goodbye:
      links_.at(peer).left = true;
      arrivals_.push_back({peer, [this, peer] { deliver_goodbye(peer); }});
      return;
    default:
      throw make_failure(TUTTI_MISMATCH, "frame {} came, which is none of the control plane",
                         static_cast<uint32_t>(frame.kind));
  }
}

void ControlMesh::take_packet(uint32_t peer, const Frame& frame) {
  const Packet packet = decode_packet(frame.payload, nranks_);
  if (packet.route == Route::flood) {
    uint64_t& last = floods_[packet.origin];
    if (packet.origin == rank_ || packet.serial <= last) return;  // it came another way before
    last = packet.serial;
    if (packet.kind == PacketKind::ask) {
      if (routes_.size() >= kMaxRoutes) routes_.clear();
      routes_[{packet.origin, packet.number}] = peer;
    }
    pass_on(packet, peer);
  } else {
    if (!leads_here(packet, peer, rank_, nranks_))
      throw make_failure(TUTTI_MISMATCH,
                         "a packet from rank {} to rank {} came, whose way does not lead from it to here",
                         packet.origin, packet.target);
    if (packet.target != rank_) return pass_on(packet, peer);
  }
  arrivals_.push_back({packet.origin, [this, bytes = frame.payload] { deliver(decode_packet(bytes, nranks_)); }});
}

// The rank after this one at some distance says how the one twice as far is reached.
void ControlMesh::take_address(uint32_t peer, const Frame& frame) {
  const uint64_t distance = ring_distance(rank_, peer, nranks_, Route::up);
  if (!std::has_single_bit(distance) || 2 * distance >= nranks_)
    throw Failure(TUTTI_MISMATCH, "it told how a rank is reached, for which it was not asked");
  addresses_.try_emplace(static_cast<uint32_t>((peer + distance) % nranks_), decode_address(frame.payload));
  linked_.notify_all();
}

void ControlMesh::ended(uint32_t peer, const std::string& why, bool broke) {
  const Link& link = links_.at(peer);
  if (!link.left && !leaves_) {
    pollfd process = {link.process.get(), POLLIN, 0};
    const bool ended = !link.process || ::poll(&process, 1, 100) == 1;
    const std::string& who = ranks_[peer].who;
    std::string reason =
        broke   ? "broke the control plane's protocol: " + why
        : ended ? fmt::format("died: {} ended without a goodbye ({})", who, why)
                : fmt::format("is out of reach: the control connection from rank {} to {} broke: {}", rank_, who, why);
    arrivals_.push_back({peer, [this, peer, reason] { notice_loss(peer, reason); }});
  }
  drop(peer);
  if (leaves_) linked_.notify_all();
}

}  // namespace

std::string MeshDoor::open(const std::string& secret, const SocketAddress& seen) {
  const bool anywhere = !secret.empty() || seen.family() == AF_UNSPEC;
  listener_ = anywhere ? listen_anywhere(0) : listen_on(SocketAddress::from_bytes(seen.bytes(), 0));
  if (!listener_)
    throw make_failure(TUTTI_SYSTEM, "{}: control plane: cannot listen on any port: {}",
                       rank_ < 0 ? "a newcomer" : fmt::format("rank {}", rank_), std::strerror(errno));
  const uint16_t port = SocketAddress::local_of(listener_.get()).port();
  MeshAddress mine{{}, this_process(), rank_ == 0 ? to_hex(random_bytes(16)) : ""};
  std::vector<SocketAddress>& addresses = mine.addresses;  // the likeliest first
  if (seen.family() != AF_UNSPEC) addresses.push_back(SocketAddress::from_bytes(seen.bytes(), port));
  if (anywhere)
    for (const SocketAddress& address : own_addresses(port))
      if (std::ranges::find(addresses, address) == addresses.end() && addresses.size() < kMaxMeshAddresses)
        addresses.push_back(address);
  return encode(mine);
}

// A rank's contribution to the meeting.
static MeshAddress address_of(uint32_t rank, const std::string& contact) try {
  return decode_address(contact);
} catch (const Failure& failure) {
  throw make_failure(TUTTI_PEER_FAILED, "rank {} broke the bootstrap protocol: {}", rank, failure.text);
}

std::vector<uint32_t> mesh_neighbours(uint32_t rank, uint32_t nranks) {
  std::set<uint32_t> all;
  for (uint64_t distance = 1; distance < nranks; distance *= 2) {
    all.insert(static_cast<uint32_t>((rank + distance) % nranks));
    all.insert(static_cast<uint32_t>((rank + nranks - distance) % nranks));
  }
  all.erase(rank);
  return {all.begin(), all.end()};
}

std::shared_ptr<ControlPlane> make_control_mesh(Meeting& meeting, MeshDoor& door, const Rendezvous& rendezvous,
                                                std::chrono::nanoseconds timeout) {
  const Deadline deadline(timeout);
  const MeshAddress next = address_of((meeting.rank() + 1) % meeting.nranks(), meeting.contacts().next);
  const std::string token = address_of(0, meeting.contacts().first).token;
  auto mesh = std::make_shared<ControlMesh>(meeting, rendezvous, door.take(), token);
  try {
    mesh->link_up(meeting, next, deadline);
    // No rank goes on before all are linked: a notice sent from now on reaches all.
    mesh->get_acquainted(deadline);
  } catch (const Failure& failure) {
    mesh->announce(meeting.rank(), failure.status, "could not take part in the control plane: " + failure.text);
    mesh->leave(false);
    throw;
  }
  return mesh;
}

}  // namespace tutti::core
