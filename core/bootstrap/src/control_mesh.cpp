// SPDX-License-Identifier: Apache-2.0
//
// The frames on the links of the mesh, and the thread that serves them.
#include "control_mesh.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>
#include <set>
#include <tutti/base/system_text.hpp>

#include "base/make_failure.hpp"

namespace tutti::core {
namespace {

constexpr std::chrono::milliseconds kLastWords(200);
// A rank that leaves waits this long for its neighbours to close their ends.
constexpr std::chrono::seconds kLinger(1);
// Roll calls whose way back is remembered; older ones have long been given up.
constexpr size_t kMaxRoutes = 1 << 16;

}  // namespace

std::vector<uint32_t> mesh_neighbours(uint32_t rank, uint32_t nranks) {
  std::set<uint32_t> all;
  for (const GatherRound& round : gather_rounds(rank, nranks)) all.insert({round.to, round.from});
  return {all.begin(), all.end()};
}

ControlMesh::ControlMesh(const Rendezvous& rendezvous, uint32_t rank, uint32_t nranks)
    : ControlPlane(rank, nranks),
      Links(me(), rendezvous),
      neighbours_(mesh_neighbours(rank, nranks)),
      wake_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      ranks_(nranks_),
      floods_(nranks_) {
  if (!wake_event_) throw make_failure(TUTTI_NO_RESOURCES, "{}eventfd: {}", me(), system_text(errno));
  longest_ = max_packet(nranks_);
  watch(wake_event_.get(), [this] {
    uint64_t count = 0;
    (void)!::read(wake_event_.get(), &count, sizeof count);
  });
  thread_ = std::thread([this] { run(); });
}

ControlMesh::~ControlMesh() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_thread();
  thread_.join();
}

void ControlMesh::wake_thread() {
  const uint64_t one = 1;
  (void)!::write(wake_event_.get(), &one, sizeof one);
}

// ---- What goes over the links ------------------------------------------------------------------------------

void ControlMesh::send(Packet packet) {
  const std::lock_guard lock(mutex_);
  if (packet.route == Route::flood) packet.serial = ++floods_[rank_];
  pass_on(packet, rank_);
}

void ControlMesh::pass_on(const Packet& packet, uint32_t from) {
  const std::string frame = encode_frame(FrameKind::packet, encode(packet));
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
  for (auto& [peer, link] : links_) put(peer, FrameKind::goodbye, "");
  while (has_unsent() && !deadline.passed()) {
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
  std::vector<LinkEvent> events;
  int patience = -1;
  while (true) {
    const std::vector<int> ready = wait(patience);
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      for (const int fd : ready) try {
          dispatch(fd);
        } catch (const std::exception& e) {  // out of memory or descriptors: what else lives goes on
          log_(TUTTI_LOG_ERROR, me() + e.what());
        }
      turn_away_late();
      patience = patience_ms(-1);
      events.swap(events_);
    }
    for (const auto& [rank, process] : events) try {
        process();
      } catch (const std::exception& e) {
        notice_loss(rank, std::string("broke the bootstrap protocol: ") + e.what());
      }
    events.clear();
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
    case FrameKind::contacts:
      if (peer != 0 || contacts_) throw Failure(TUTTI_MISMATCH, "it sent contacts; only rank 0 sends them, once");
      contacts_ = decode<Contacts>(frame.payload, "contacts");
      longest_ = max_packet(nranks_);
      return linked_.notify_all();
    case FrameKind::met:
      if (rank_ == 0 && !std::ranges::binary_search(neighbours_, peer)) return drop(peer);
      throw Failure(TUTTI_MISMATCH, "it gave up a connection that the control plane needs");
    case FrameKind::goodbye:
      links_.at(peer).left = true;
      events_.push_back({peer, [this, peer] { deliver_goodbye(peer); }});
      return;
    default:
      throw make_failure(TUTTI_MISMATCH, "frame {} came, but the control plane has no such frame",
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
      throw make_failure(TUTTI_MISMATCH, "it sent a packet from rank {} to rank {}, which does not take this way",
                         packet.origin, packet.target);
    if (packet.target != rank_) return pass_on(packet, peer);
  }
  events_.push_back({packet.origin, [this, bytes = frame.payload] { deliver(decode_packet(bytes, nranks_)); }});
}

// The rank after this one at some distance says how the one twice as far is reached.
void ControlMesh::take_address(uint32_t peer, const Frame& frame) {
  const uint64_t distance = ring_distance(rank_, peer, nranks_, Route::up);
  if (!std::has_single_bit(distance) || 2 * distance >= nranks_)
    throw Failure(TUTTI_MISMATCH, "it sent the address of a rank without being asked");
  addresses_.try_emplace(static_cast<uint32_t>((peer + distance) % nranks_), decode_address(frame.payload));
  linked_.notify_all();
}

void ControlMesh::ended(uint32_t peer, const std::string& why, bool broke) {
  const ControlLink& link = links_.at(peer);
  if (!link.left && !leaves_) {
    pollfd process = {link.process.get(), POLLIN, 0};
    const bool ended = !link.process || ::poll(&process, 1, 100) == 1;
    const std::string& who = ranks_[peer].who;
    std::string reason =
        broke   ? "broke the bootstrap protocol: " + why
        : ended ? fmt::format("died: {} ended without a goodbye ({})", who, why)
                : fmt::format("is out of reach: the control connection from rank {} to {} broke: {}", rank_, who, why);
    events_.push_back({peer, [this, peer, reason] { notice_loss(peer, reason); }});
  }
  drop(peer);
  if (leaves_) linked_.notify_all();
}

}  // namespace tutti::core
