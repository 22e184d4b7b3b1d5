// SPDX-License-Identifier: Apache-2.0
//
// How the links of the mesh come about.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <tutti/base/host_identity.hpp>
#include <tutti/base/system_text.hpp>

#include "base/make_failure.hpp"
#include "base/rank_list.hpp"
#include "bootstrap/authentication.hpp"
#include "control_mesh.hpp"
#include "meeting.hpp"
#include "net/interrupt.hpp"

namespace tutti::core {
namespace {

// Connections in the middle of a handshake, in a meeting beyond one per rank; the oldest gives way to a new one.
constexpr size_t kMaxGuests = 256;
// While ranks meet: two contacts, or a loss.
constexpr uint64_t kMaxInMeeting = 16 << 10;
// After a loss rank 0 waits this long for ranks that have not come yet, to tell them of it.
constexpr std::chrono::milliseconds kLatecomers(1000);
// The first attempt at each of several addresses takes at most this long.
constexpr std::chrono::milliseconds kFirstAttemptAtHub(2000), kFirstAttempt(500);

// The kernel and process-id space of this process. Ranks with equal ones see each other's processes.
std::string process_space() {
  const std::string boot = boot_id();
  const uint64_t pids = namespace_number("pid");
  return boot.empty() || !pids ? "" : fmt::format("{}:{}", boot, pids);
}

// A rank's contact, as another rank has told it.
MeshAddress address_of(uint32_t rank, const std::string& contact) try {
  return decode_address(contact);
} catch (const Failure& failure) {
  throw make_failure(TUTTI_PEER_FAILED, "rank {} broke the bootstrap protocol: {}", rank, failure.text);
}

// `meet` returns the rank's contacts. `seen`: its address, as far as it is known.
std::unique_ptr<Bootstrap> form(const std::shared_ptr<ControlMesh>& mesh, const std::string& secret,
                                const SocketAddress& seen, FileDescriptor listener, const Deadline& deadline,
                                const std::function<Contacts()>& meet) try {
  const Contacts contacts = meet();
  mesh->link_up(secret, contacts, std::move(listener), deadline);
  mesh->get_acquainted(deadline);
  return std::make_unique<Bootstrap>(mesh, secret, seen.host(), make_unique_id);
} catch (const std::exception& problem) {
  const Failure failure = failure_of(problem);
  mesh->announce(mesh->rank(), failure.status, "could not take part in the control plane: " + failure.text);
  mesh->leave(false);
  throw failure;
}

}  // namespace

MeshDoor open_mesh_door(uint32_t rank, const std::string& secret, const SocketAddress& seen) {
  const bool anywhere = !secret.empty() || seen.family() == AF_UNSPEC;
  MeshDoor door{anywhere ? listen_anywhere(0) : listen_on(SocketAddress::from_bytes(seen.bytes(), 0)),
                {{}, this_process(), rank == 0 ? to_hex(random_bytes(16)) : ""}};
  if (!door.listener)
    throw make_failure(TUTTI_SYSTEM, "{}: control plane: cannot listen on any port: {}", name_of(rank),
                       system_text(errno));
  const uint16_t port = SocketAddress::local_of(door.listener.get()).port();
  std::vector<SocketAddress>& addresses = door.address.addresses;  // the likeliest first
  if (seen.family() != AF_UNSPEC) addresses.push_back(SocketAddress::from_bytes(seen.bytes(), port));
  if (anywhere)
    for (const SocketAddress& address : own_addresses(port))
      if (std::ranges::find(addresses, address) == addresses.end() && addresses.size() < kMaxMeshAddresses)
        addresses.push_back(address);
  return door;
}

std::unique_ptr<Bootstrap> open_hub(const Rendezvous& rendezvous, MeetingPlace place, FileDescriptor listener,
                                    const Deadline& deadline) {
  if (rendezvous.nranks == 1) return meet_nobody(place.secret);
  Attendance attendance(rendezvous, std::move(place));
  const auto mesh = std::make_shared<ControlMesh>(rendezvous, 0, static_cast<uint32_t>(rendezvous.nranks));
  const SocketAddress seen = SocketAddress::local_of(listener.get());
  return form(mesh, attendance.place().secret, seen, FileDescriptor(), deadline, [&] {
    return mesh->await_ranks(attendance, std::move(listener), rendezvous.obstacle, deadline);
  });
}

std::unique_ptr<Bootstrap> join_hub(const Rendezvous& rendezvous, const std::string& where, const FindPlace& find,
                                    const Deadline& deadline) {
  const auto asked = static_cast<uint32_t>(rendezvous.rank);  // -1 of a newcomer: kAnyRank
  FileDescriptor listener;
  const auto open = [&](const std::string& secret, const SocketAddress& seen) {
    MeshDoor door = open_mesh_door(asked, secret, seen);
    listener = std::move(door.listener);
    return encode(door.address);
  };
  const Caller caller{asked, static_cast<uint32_t>(rendezvous.nranks), 0, rendezvous.tls, open};
  const std::string me = name_of(asked) + ": bootstrap: ";
  const auto check = [&](const std::string& problem) {
    if (const std::string why = rendezvous.obstacle ? rendezvous.obstacle() : ""; !why.empty())
      throw Failure(TUTTI_PEER_FAILED, me + why);
    if (deadline.passed())
      throw make_failure(TUTTI_TIMEOUT,
                         "{}rank 0 was not met at {} within {}; last attempt: {}; is rank 0 running, and is that port "
                         "open?",
                         me, where, deadline.text(), problem);
  };
  Introduced hub = introduce(caller, find, kFirstAttemptAtHub, deadline, check);
  const auto [first, rank, nranks] = hub.welcome;
  const SocketAddress seen = SocketAddress::local_of(hub.stream.fd());
  std::shared_ptr<ControlMesh> mesh;
  try {
    mesh = std::make_shared<ControlMesh>(rendezvous, rank, nranks);
  } catch (const std::exception& problem) {
    const Loss loss{0, rank, TUTTI_PEER_FAILED, true, "cannot take part in the meeting: " + failure_of(problem).text};
    hub.stream.put(FrameKind::packet, encode(Packet{PacketKind::loss, Route::flood, rank, rank, 0, encode(loss), 1}));
    hub.stream.flush();
    throw;
  }
  return form(mesh, hub.secret, seen, std::move(listener), deadline,
              [&] { return mesh->await_contacts(std::move(hub.stream), deadline); });
}

std::unique_ptr<Bootstrap> link_ranks(const Rendezvous& rendezvous, const std::string& secret, const Contacts& contacts,
                                      FileDescriptor listener, const Deadline& deadline) {
  const auto mesh = std::make_shared<ControlMesh>(rendezvous, static_cast<uint32_t>(rendezvous.rank),
                                                  static_cast<uint32_t>(rendezvous.nranks));
  return form(mesh, secret, {}, std::move(listener), deadline, [&] { return contacts; });
}

// ---- Waiting for others ------------------------------------------------------------------------------------

void ControlMesh::await(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done,
                        const std::function<void()>& check) {
  while (!linked_.wait_for(lock, std::chrono::milliseconds(20), done)) {
    lock.unlock();
    check_others();
    check();
    Interrupt::check();
    lock.lock();
  }
}

void ControlMesh::check_others() const {
  if (const auto loss = first_cause()) throw Failure(loss->status, me() + loss->text());
  const std::lock_guard lock(mutex_);
  if (starved_) throw Failure(*starved_);
  if (attendance_ && attendance_->failure()) throw Failure(*attendance_->failure());
}

bool ControlMesh::starved(int error) {
  if (attendance_ && has_guests()) return true;
  // Guests are ranks, most likely: this rank cannot take part.
  starved_ = attendance_ ? make_failure(TUTTI_NO_RESOURCES,
                                        "{}cannot accept rank {} of {}: {}; rank 0 needs a descriptor for each rank",
                                        me(), links_.size() + 1, nranks_ - 1, system_text(error))
                         : make_failure(TUTTI_NO_RESOURCES,
                                        "{}a rank's connection cannot be accepted: {}; a rank needs some 30 "
                                        "descriptors",
                                        me(), system_text(error));
  return false;
}

// ---- The star ----------------------------------------------------------------------------------------------

Contacts ControlMesh::await_ranks(Attendance& attendance, FileDescriptor listener,
                                  const std::function<std::string()>& obstacle, const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  longest_ = kMaxInMeeting;
  attendance_ = &attendance;
  open_door(std::move(listener), attendance.place().secret, kMaxGuests + nranks_);
  try {
    await(
        lock, [&] { return attendance.is_complete(); },
        [&] {
          if (const std::string why = obstacle ? obstacle() : ""; !why.empty())
            throw Failure(TUTTI_PEER_FAILED, me() + why);
          if (!deadline.passed()) return;
          const std::lock_guard again(mutex_);
          throw make_failure(TUTTI_TIMEOUT, "{}{}; waited {}", me(), attendance.missing_text(), deadline.text());
        });
  } catch (...) {
    lock.lock();
    if (failed()) linked_.wait_until(lock, deadline.sooner(kLatecomers).at(), [&] { return attendance.all_know(); });
    close_door();
    attendance_ = nullptr;
    throw;
  }
  close_door();
  attendance_ = nullptr;
  longest_ = max_packet(nranks_);
  for (uint32_t r = 1; r < nranks_; ++r) put(r, FrameKind::contacts, encode(attendance.contacts_of(r)));
  return attendance.contacts_of(0);
}

void ControlMesh::admit_to_meeting(TcpGuest& guest) {
  const Hello& hello = guest.hello();
  uint32_t rank = 0;
  try {
    rank = attendance_->admit(hello, guest.from(), first_cause());
  } catch (const Failure& why) {
    refuse(guest, why);
    return linked_.notify_all();
  }
  if (!hello.problem.empty()) {
    const std::string why = "cannot take part in the meeting: " + hello.problem;
    events_.push_back({rank, [this, rank, why] { notice_loss(rank, why); }});
    return refuse(guest, make_failure(TUTTI_PEER_FAILED, "rank {} {}", rank, why));
  }
  ranks_[rank].who = hello.who;
  welcome(guest, 0, rank, nranks_);
  linked_.notify_all();
}

Contacts ControlMesh::await_contacts(FrameStream hub, const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  longest_ = kMaxInMeeting;
  ranks_[0].who = "the process at " + SocketAddress::peer_of(hub.fd()).text();
  add(0, std::move(hub));
  read_link(0);   // frames may have come with the welcome
  wake_thread();  // it processes what has arrived
  await(
      lock, [&] { return contacts_.has_value(); },
      [&] {
        if (deadline.passed()) ask_who_is_missing(deadline);
      });
  return *contacts_;
}

// The deadline has passed. The ranks that have come answer.
void ControlMesh::ask_who_is_missing(const Deadline& deadline) {
  const std::vector<uint32_t> missing = absent_from(0);
  check_others();
  {
    const std::lock_guard lock(mutex_);
    if (contacts_) return;
  }
  const std::string who = !missing.empty() && missing[0] == 0
                              ? "rank 0 does not answer"
                              : fmt::format("{} of {} did not come", rank_list(missing), nranks_);
  const std::string why = fmt::format("the meeting timed out after {}: {}", deadline.text(), who);
  // The others learn from this rank's last words what it has waited for, and not just of its end.
  announce(rank_, TUTTI_PEER_FAILED, "gave up: " + why);
  throw Failure(TUTTI_TIMEOUT, me() + why);
}

// ---- The ring ----------------------------------------------------------------------------------------------

void ControlMesh::link_up(const std::string& secret, const Contacts& contacts, FileDescriptor listener,
                          const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  const uint32_t first_next = (rank_ + 1) % nranks_;
  addresses_.try_emplace(first_next, address_of(first_next, contacts.next));
  token_ = address_of(0, contacts.first).token;
  ring_secret_ = secret + token_;
  if (listener) open_door(std::move(listener), ring_secret_, kMaxGuests);
  const auto await_rank = [&](uint32_t peer, const char* why, const std::function<bool()>& done) {
    await(lock, done, [&] {
      if (deadline.passed()) not_linked(peer, deadline, why);
    });
  };
  for (const auto& [next, before, blocks] : gather_rounds(rank_, nranks_)) {
    await_rank(next, "no rank has told how it is reached", [&] { return addresses_.count(next) != 0; });
    // They may be linked the other way round the ring, or since they met.
    if (!links_.count(next) && (next != before || rank_ < next)) {
      lock.unlock();
      connect_to_rank(next, deadline);
      lock.lock();
    }
    for (const uint32_t peer : {next, before})
      await_rank(peer, "it did not connect to this rank", [&] { return links_.count(peer) != 0; });
    const uint64_t distance = ring_distance(rank_, next, nranks_, Route::up);
    if (2 * distance < nranks_) put(before, FrameKind::address, encode(addresses_.at(next)));
  }
  close_door();
  if (!std::ranges::binary_search(neighbours_, 0u) && links_.count(0)) {
    links_.at(0).left = true;  // its end is none of rank 0
    put(0, FrameKind::met, "");
  }
}

void ControlMesh::connect_to_rank(uint32_t peer, const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  const MeshAddress address = addresses_.at(peer);
  lock.unlock();
  const MeetingPlace place{address.addresses, "", ring_secret_, token_, MeetingPlace::Trust::stale};
  const auto check = [&](const std::string& problem) {
    check_others();
    if (deadline.passed()) not_linked(peer, deadline, "last attempt: " + problem);
  };
  FrameStream stream = introduce(
                           {rank_, nranks_, peer, tls_}, [&] { return place; }, kFirstAttempt, deadline, check)
                           .stream;
  lock.lock();
  ranks_[peer].who = address.who;
  add(peer, std::move(stream));
  read_link(peer);
  wake_thread();
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
  for (const std::string& bytes : all_gather(encode(mine), deadline))
    all.push_back(decode<MeshIdentity>(bytes, "identity of a rank"));
  const std::lock_guard lock(mutex_);
  ranks_ = std::move(all);
  if (mine.space.empty()) return;
  for (const uint32_t peer : neighbours_) {
    if (!links_.count(peer) || ranks_[peer].space != mine.space || ranks_[peer].process == mine.process) continue;
    FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, ranks_[peer].process, 0)));
    if (process) watch_process(peer, std::move(process));
  }
}

void ControlMesh::admit(TcpGuest& guest) {
  if (attendance_) return admit_to_meeting(guest);
  const Hello& hello = guest.hello();
  const bool expected = hello.job == token_ && hello.nranks == nranks_ &&
                        std::ranges::binary_search(neighbours_, hello.rank) && !links_.count(hello.rank);
  if (!expected)
    return refuse(guest, make_failure(TUTTI_MISMATCH, "{}rank {} of another communicator came", me(), hello.rank));
  ranks_[hello.rank].who = hello.who;
  welcome(guest, rank_, hello.rank, nranks_);
  linked_.notify_all();
}

}  // namespace tutti::core
