// SPDX-License-Identifier: Apache-2.0
#include "control_mesh.hpp"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include "bootstrap/authentication.hpp"
#include "child_descriptors.hpp"
#include "handshake.hpp"
#include "make_failure.hpp"
#include "mesh.hpp"

namespace tutti::core {
namespace {

// How long one of several addresses is tried at first.
constexpr std::chrono::milliseconds kFirstAttempt(500);

// In which kernel and process-id space this is: ranks for which it is equal see each other's processes.
std::string process_space() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat status = {};
  if (boot.empty() || ::stat("/proc/self/ns/pid", &status) != 0) return "";
  return fmt::format("{}:{}", boot, status.st_ino);
}

}  // namespace

void ControlMesh::link_up(Meeting& meeting, const MeshAddress& first_next, const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  addresses_.try_emplace((rank_ + 1) % nranks_, first_next);
  lock.unlock();
  for (uint64_t distance = 1; distance < nranks_; distance *= 2) {
    const auto next = static_cast<uint32_t>((rank_ + distance) % nranks_);
    const auto before = static_cast<uint32_t>((rank_ + nranks_ - distance) % nranks_);
    await(meeting, next, deadline, "no rank has told how it is reached", [&] { return addresses_.count(next) != 0; });
    lock.lock();
    const bool linked = links_.count(next) != 0;  // the other way round the ring
    lock.unlock();
    if (!linked && (next != before || rank_ < next)) connect_to_rank(meeting, next, deadline);
    const std::string waits = "it did not connect to this rank";
    await(meeting, next, deadline, waits, [&] { return links_.count(next) != 0; });
    await(meeting, before, deadline, waits, [&] { return links_.count(before) != 0; });
    if (2 * distance >= nranks_) break;
    lock.lock();
    put(before, FrameKind::address, encode(addresses_.at(next)));
    lock.unlock();
  }
  lock.lock();
  close_door();
}

template <typename Done>
void ControlMesh::await(Meeting& meeting, uint32_t peer, const Deadline& deadline, const std::string& why,
                        Done&& done) {
  std::unique_lock lock(mutex_);
  while (!linked_.wait_for(lock, std::chrono::milliseconds(20), done)) {
    if (starved_)
      throw make_failure(TUTTI_NO_RESOURCES,
                         "{}a rank's connection cannot be accepted: {}; a rank needs some 30 "
                         "descriptors (ulimit -n)",
                         me(), std::strerror(starved_));
    lock.unlock();
    check_others(meeting);
    if (deadline.passed()) not_linked(peer, deadline, why);
    lock.lock();
  }
}

void ControlMesh::check_others(Meeting& meeting) {
  if (const std::string lost = meeting.problem(); !lost.empty()) throw Failure(TUTTI_PEER_FAILED, me() + lost);
  if (const auto loss = first_cause()) throw Failure(loss->status, me() + loss->text());
}

void ControlMesh::connect_to_rank(Meeting& meeting, uint32_t peer, const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  const MeshAddress address = addresses_.at(peer);
  lock.unlock();
  const auto find = [&](std::string&) -> std::optional<MeetingPlace> {
    return MeetingPlace{address.addresses, "", secret_, token_, MeetingPlace::Trust::stale};
  };
  const auto check = [&](const std::string& problem) {
    check_others(meeting);
    if (deadline.passed()) not_linked(peer, deadline, "last attempt: " + problem);
  };
  FrameStream stream = introduce({rank_, nranks_, peer, tls_}, find, kFirstAttempt, deadline, check).stream;
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
