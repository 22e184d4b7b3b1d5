// SPDX-License-Identifier: Apache-2.0
//
// One port of an endpoint: a completion queue, a shared receive queue for all peers, and its receive buffers.
//
// There are always enough receive buffers: as many for each queue pair as its peer has credits, and one share more, so
// that used ones can be posted again many at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "domain.hpp"
#include "placer.hpp"
#include "verbs.hpp"
#include "wire.hpp"

namespace tutti::ib {

class Path;

// The kind of a work request: the upper byte of its wr_id.
enum class Work : uint64_t { kReceive = 1, kSent = 2, kHeartbeat = 3, kMarker = 4 };
constexpr uint64_t work_id(Work work, uint32_t path, uint32_t index) {
  return static_cast<uint64_t>(work) << 56 | uint64_t{path} << 32 | index;
}
inline constexpr uint32_t kMaxPaths = 1 << 24;

class Rail {
 public:
  // `traffic_class` counts unless the user has chosen one. Throws sdk::Error.
  Rail(const Domain& domain, uint32_t index, uint32_t nranks, uint8_t traffic_class);
  Rail(const Rail&) = delete;
  Rail& operator=(const Rail&) = delete;

  uint32_t index() const { return index_; }
  const Port& port() const { return port_; }
  const Domain& domain() const { return domain_; }
  const Device& device() const { return domain_.device(index_); }
  ibv_cq* completions() const { return cq_.get(); }
  ibv_srq* receives() const { return srq_.get(); }
  int event_descriptor() const { return channel_->fd; }
  int async_descriptor() const { return device().context->async_fd; }
  uint64_t slot_bytes() const { return slot_bytes_; }

  // A reliable queue pair with room for `sends` requests of two parts each; `max_inline` is 0 if the device has none.
  // Without `receives` its far end can only access memory, as `access` allows. take_events (verbs.hpp) fills `events`.
  // Throws sdk::Error.
  QueuePair make_queue_pair(ibv_cq* completions, ibv_srq* receives, uint32_t sends, uint32_t* max_inline,
                            unsigned access, QueuePairEvents* events = nullptr) const;
  // Connects it to the queue pair of an offer, from a GID of this port to one of the offer. Throws sdk::Error.
  void connect_queue_pair(ibv_qp* qp, uint32_t psn, const OfferedRail& peer, const OfferedQueuePair& to,
                          const OfferedGid& own_gid, const OfferedGid& peer_gid) const;

  // Adds a queue pair: posts its share of receive buffers.
  void add_path(uint32_t qp, Path* path);
  Path* path_of(uint32_t qp) const {
    const auto at = paths_.find(qp);
    return at == paths_.end() ? nullptr : at->second;
  }
  void forget_path(uint32_t qp) { paths_.erase(qp); }
  const char* slot(uint32_t index) const { return slabs_[index / credits_]->data() + (index % credits_) * slot_bytes_; }
  // Returns a receive buffer. recycle() posts the returned ones once they are many. It is called before a frame leaves
  // that gives a peer credit for them.
  void give_back(uint32_t slot) { returned_.push_back(slot); }
  void recycle();

  // Up to `wcs.size()` completions. Throws sdk::Error when the queue is broken.
  uint32_t poll(std::span<ibv_wc> wcs);
  // Makes the next completion an event on the descriptor.
  void arm();
  void take_events();

  // For at most a frame's payload. Throws sdk::Error.
  Placer& placer();

  // Is the port down now? Asks the adapter: not for hot paths.
  bool is_down() const;
  // Takes the device's events. True: they told of a change, and port() has been read again.
  bool look_again();
  // The adapter has failed for good.
  bool is_lost() const { return device().events->fatal; }
  bool is_usable() const { return port_.up && !is_lost(); }

  // For reports.
  uint64_t bytes_sent = 0, bytes_received = 0, frames_sent = 0, frames_received = 0;

 private:
  void add_share();
  void post_receive(std::span<const uint32_t> slots);

  const Domain& domain_;
  const uint32_t index_;
  Port port_;
  const uint32_t credits_;
  const uint64_t slot_bytes_;
  const uint8_t traffic_class_;
  Channel channel_;
  CompletionQueue cq_;
  SharedReceives srq_;
  std::vector<std::unique_ptr<Slab>> slabs_;  // of `credits_` receive buffers each
  std::vector<uint32_t> returned_;
  uint32_t seen_changes_ = 0;  // of the device's events
  std::unordered_map<uint32_t, Path*> paths_;  // by queue pair number
  std::unique_ptr<Placer> placer_;             // made on first use, and anew after an error
};

}  // namespace tutti::ib
