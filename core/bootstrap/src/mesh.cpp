// SPDX-License-Identifier: Apache-2.0
#include "mesh.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>

#include "make_failure.hpp"
#include "wire.hpp"

namespace tutti::core {
namespace {

constexpr size_t kReadTurn = 256 << 10;
constexpr size_t kMaxGuests = 256;
constexpr std::chrono::milliseconds kLastWords(200);
// How long a rank that leaves waits for its neighbours to close their ends.
constexpr std::chrono::seconds kLinger(1);
// Roll calls whose way back is remembered; older ones have long been given up.
constexpr size_t kMaxRoutes = 1 << 16;

}  // namespace

ControlMesh::ControlMesh(const Meeting& meeting, const Rendezvous& rendezvous, Descriptor listener,
                         const std::string& token)
    : ControlPlane(meeting.rank(), meeting.nranks()),
      Links(me(), max_mesh_frame(nranks_), kReadTurn, rendezvous.log),
      secret_(meeting.secret() + token),
      token_(token),
      tls_(rendezvous.tls),
      log_(rendezvous.log),
      stop_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      ranks_(nranks_),
      seen_(nranks_) {
  if (!stop_event_) throw make_failure(TUTTI_NO_RESOURCES, "{}eventfd: {}", me(), std::strerror(errno));
  watch(stop_event_.get());
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

// ---- Sending -----------------------------------------------------------------------------------------------

void ControlMesh::spread(NoticeKind kind, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  const EncodedFrame frame = encode_frame(FrameKind::notice, encode(MeshNotice{rank_, ++sent_, kind, bytes}));
  for (auto& [peer, link] : links_) put(peer, frame);
}

void ControlMesh::reply(uint32_t asker, uint64_t number, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  const auto route = routes_.find({asker, number});
  if (route != routes_.end())
    put(route->second, encode_frame(FrameKind::reply, encode(MeshReply{asker, number, rank_, bytes})));
}

void ControlMesh::pass(uint32_t peer, uint64_t gather, uint32_t round, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  put(peer, encode_frame(FrameKind::part, encode(MeshPart{gather, round, bytes})));
}

void ControlMesh::carry(const PairFrame& frame) {
  if (frame.way == PairWay::flood) return spread(NoticeKind::pair, encode(frame));
  const std::lock_guard lock(mutex_);
  forward(frame);
}

// Over the first hop whose link is up. Without one the frame is lost, and its sender sends it again by another route.
void ControlMesh::forward(const PairFrame& frame) {
  for (const uint32_t hop : pair_hops(rank_, frame.target, nranks_, frame.way)) {
    const auto link = links_.find(hop);
    if (link == links_.end() || link->second.left) continue;
    return put(hop, encode_frame(FrameKind::pair, encode(frame)));
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
    case FrameKind::notice:
      return take_notice(peer, frame);
    case FrameKind::reply:
      return take_reply(frame);
    case FrameKind::part:
      arrivals_.push_back({peer, [this, peer, bytes = frame.payload] {
                             const auto part = decode<MeshPart>(bytes, "a part of an all_gather");
                             deliver_part(peer, part.gather, part.round, part.bytes);
                           }});
      return;
    case FrameKind::pair:
      return take_pair(peer, frame);
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

void ControlMesh::take_notice(uint32_t peer, const Frame& frame) {
  const MeshNotice notice = decode_notice(frame.payload, nranks_);
  if (notice.origin == rank_ || notice.number <= seen_[notice.origin]) return;  // it came another way before
  seen_[notice.origin] = notice.number;
  if (notice.kind == NoticeKind::ask) {
    if (routes_.size() >= kMaxRoutes) routes_.clear();
    routes_[{notice.origin, roll_call_number(notice.bytes)}] = peer;
  }
  const EncodedFrame onward = encode_frame(FrameKind::notice, frame.payload);
  for (auto& [other, link] : links_)
    if (other != peer && other != notice.origin) put(other, onward);
  arrivals_.push_back({notice.origin, [this, origin = notice.origin, kind = notice.kind,
                                       bytes = std::string(notice.bytes)] { deliver(origin, kind, bytes); }});
}

void ControlMesh::take_reply(const Frame& frame) {
  const MeshReply reply = decode_reply(frame.payload, nranks_);
  if (reply.asker == rank_) {
    arrivals_.push_back({reply.origin, [this, origin = reply.origin, number = reply.number,
                                        bytes = std::string(reply.bytes)] { deliver_reply(origin, number, bytes); }});
    return;
  }
  const auto route = routes_.find({reply.asker, reply.number});
  if (route != routes_.end()) put(route->second, encode_frame(FrameKind::reply, frame.payload));
}

// The rank after this one at some distance says how the one twice as far is reached.
void ControlMesh::take_address(uint32_t peer, const Frame& frame) {
  WireReader reader(frame.payload, "address of a rank");
  const uint32_t rank = reader.u32();
  const uint64_t distance = (uint64_t{peer} + nranks_ - rank_) % nranks_;
  if (!std::has_single_bit(distance) || 2 * distance >= nranks_ || rank != (peer + distance) % nranks_)
    throw make_failure(TUTTI_MISMATCH, "it told how rank {} is reached, for which it was not asked", rank);
  addresses_.try_emplace(rank, decode_address(reader.rest()));
  linked_.notify_all();
}

void ControlMesh::take_pair(uint32_t peer, const Frame& frame) {
  const PairFrame pair = decode_pair(frame.payload, nranks_);
  const auto left = [&](uint32_t from) { return pair_distance(from, pair.target, nranks_, pair.way); };
  if (pair.way == PairWay::flood || left(rank_) >= left(peer) || left(peer) > left(pair.origin))
    throw make_failure(TUTTI_MISMATCH,
                       "a pair message from rank {} to rank {} came, whose way does not lead from "
                       "it to here",
                       pair.origin, pair.target);
  if (pair.target != rank_) return forward(pair);
  arrivals_.push_back({pair.origin, [this, bytes = frame.payload] { deliver_pair(decode_pair(bytes, nranks_)); }});
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

}  // namespace tutti::core
