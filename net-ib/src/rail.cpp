// SPDX-License-Identifier: Apache-2.0
#include "rail.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::ib {

Rail::Rail(const Domain& domain, uint32_t index, uint32_t nranks, uint8_t traffic_class)
    : domain_(domain),
      index_(index),
      port_(domain.rails()[index]),
      credits_(domain.settings().credits),
      slot_bytes_((sizeof(Frame) + domain.settings().eager_bytes + 63) / 64 * 64),
      traffic_class_(domain.settings().traffic_class.value_or(traffic_class)) {
  const uint32_t links = nranks - 1;
  ibv_context* context = device().context.get();
  ibv_device_attr limits{};
  if (const int code = ibv_query_device(context, &limits))
    throw system_error(code, "{}: cannot query the device", port_.name());
  // For each peer: every frame in flight in either direction, a heartbeat and a marker.
  const uint64_t paths = uint64_t{links} * domain.settings().queue_pairs;
  const uint64_t completions = paths * (credits_ * 2 + 2) + 64;
  const uint64_t receives = (paths + 1) * credits_;
  const auto check = [&](const char* what, uint64_t needed, int offered) {
    if (needed > static_cast<uint64_t>(std::max(offered, 0)))
      throw error(
          TUTTI_NO_RESOURCES,
          "{}: {} peers with {} credits each need {} {}, the device has {}; lower TUTTI_IB_CREDITS on all ranks",
          port_.name(), links, credits_, needed, what, offered);
  };
  check("completion queue entries", completions, limits.max_cqe);
  check("shared receive queue entries", receives, limits.max_srq_wr);
  channel_.reset(ibv_create_comp_channel(context));
  if (!channel_) throw system_error(errno, "{}: cannot create a completion channel", port_.name());
  set_non_blocking(channel_->fd, port_.name() + ": cannot make the completion channel non-blocking");
  cq_.reset(ibv_create_cq(context, static_cast<int>(completions), nullptr, channel_.get(), 0));
  if (!cq_) throw system_error(errno, "{}: cannot create a completion queue", port_.name());
  ibv_srq_init_attr attr{};
  attr.attr.max_wr = static_cast<uint32_t>(receives);
  attr.attr.max_sge = 1;
  srq_.reset(ibv_create_srq(device().pd.get(), &attr));
  if (!srq_) throw system_error(errno, "{}: cannot create a shared receive queue", port_.name());
  if (!links) return;
  add_share();
  // A trial with one peer's memory: a limit on locked memory shows here, before any rank connects.
  Slab(device().pd.get(), 2 * credits_ * slot_bytes_, port_.name());
}

// ---- Frames

void Rail::add_path(uint32_t qp, Path* path) {
  paths_[qp] = path;
  if (paths_.size() < slabs_.size()) return;  // left by a queue pair that was never connected
  add_share();
}

void Rail::add_share() {
  const auto first = static_cast<uint32_t>(slabs_.size()) * credits_;
  slabs_.push_back(std::make_unique<Slab>(device().pd.get(), credits_ * slot_bytes_, port_.name()));
  std::vector<uint32_t> slots(credits_);
  for (uint32_t i = 0; i < credits_; ++i) slots[i] = first + i;
  post_receive(slots);
}

void Rail::post_receive(std::span<const uint32_t> slots) {
  constexpr size_t kBatch = 32;
  ibv_recv_wr requests[kBatch];
  ibv_sge parts[kBatch];
  for (size_t done = 0; done < slots.size();) {
    const size_t n = std::min(kBatch, slots.size() - done);
    for (size_t i = 0; i < n; ++i) {
      const uint32_t slot_index = slots[done + i];
      parts[i] = {reinterpret_cast<uint64_t>(slot(slot_index)), static_cast<uint32_t>(slot_bytes_),
                  slabs_[slot_index / credits_]->key()};
      requests[i] = {work_id(Work::kReceive, 0, slot_index), i + 1 < n ? &requests[i + 1] : nullptr, &parts[i], 1};
    }
    ibv_recv_wr* bad = nullptr;
    if (const int code = ibv_post_srq_recv(srq_.get(), requests, &bad))
      throw system_error(code, "{}: cannot post receive buffers", port_.name());
    done += n;
  }
}

void Rail::recycle() {
  if (returned_.size() < credits_ / 2) return;
  post_receive(returned_);
  returned_.clear();
}

uint32_t Rail::poll(std::span<ibv_wc> wcs) {
  const int n = ibv_poll_cq(cq_.get(), static_cast<int>(wcs.size()), wcs.data());
  if (n < 0) throw error(TUTTI_SYSTEM, "{}: the completion queue cannot be polled any more", port_.name());
  return static_cast<uint32_t>(n);
}

void Rail::arm() {
  if (const int code = ibv_req_notify_cq(cq_.get(), 0))
    throw system_error(code, "{}: cannot ask for completion events", port_.name());
}

void Rail::take_events() {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  unsigned n = 0;
  while (ibv_get_cq_event(channel_.get(), &cq, &context) == 0) ++n;
  if (n) ibv_ack_cq_events(cq_.get(), n);
}

Placer& Rail::placer() {
  if (!placer_ || placer_->is_broken()) placer_ = std::make_unique<Placer>(*this, slot_bytes_);
  return *placer_;
}

bool Rail::is_down() const {
  ibv_port_attr attr{};
  return ibv_query_port(device().context.get(), static_cast<uint8_t>(port_.port), &attr) == 0 &&
         attr.state != IBV_PORT_ACTIVE;
}

bool Rail::look_again() {
  ib::take_events(device().context.get(), *device().events);
  const uint32_t changes = device().events->changes;
  if (std::exchange(seen_changes_, changes) == changes) return false;
  ib::look_again(device().context.get(), port_);
  return true;
}

// ---- Queue pairs

QueuePair Rail::make_queue_pair(ibv_cq* completions, ibv_srq* receives, uint32_t sends, uint32_t* max_inline,
                                unsigned access, QueuePairEvents* events) const {
  constexpr uint32_t kInlineWish = 256;
  QueuePair qp;
  for (uint32_t wish = kInlineWish; !qp; wish /= 2) {  // some devices have room for fewer inline bytes, or for none
    ibv_qp_init_attr init{};
    init.qp_context = events;
    init.send_cq = init.recv_cq = completions;
    init.srq = receives;
    init.qp_type = IBV_QPT_RC;
    init.cap.max_send_wr = sends;
    init.cap.max_send_sge = 2;
    init.cap.max_inline_data = wish < 32 ? 0 : wish;
    qp.reset(ibv_create_qp(device().pd.get(), &init));
    if (!qp && wish < 32) throw system_error(errno, "{}: cannot create a queue pair", port_.name());
    *max_inline = init.cap.max_inline_data;
  }
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.pkey_index = static_cast<uint16_t>(domain_.settings().pkey_index);
  attr.port_num = static_cast<uint8_t>(port_.port);
  attr.qp_access_flags = access;
  if (const int code =
          ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
    throw system_error(code, "{}: cannot set a queue pair up (TUTTI_IB_PKEY right?)", port_.name());
  return qp;
}

void Rail::connect_queue_pair(ibv_qp* qp, uint32_t psn, const OfferedRail& peer, const OfferedQueuePair& to,
                              const OfferedGid& own_gid, const OfferedGid& peer_gid) const {
  const Settings& settings = domain_.settings();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = static_cast<ibv_mtu>(std::min<uint32_t>(port_.mtu, peer.mtu));
  attr.dest_qp_num = to.number;
  attr.rq_psn = to.psn;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  ibv_ah_attr& address = attr.ah_attr;
  address.port_num = static_cast<uint8_t>(port_.port);
  // InfiniBand's service level follows from the upper three bits of the traffic class, the IP precedence.
  address.sl = settings.service_level.value_or(port_.infiniband ? traffic_class_ >> 5 : 0);
  address.dlid = static_cast<uint16_t>(peer.lid);
  if (!port_.infiniband || port_.needs_route || peer.needs_route) {
    address.is_global = 1;
    // Of RoCE the kernel makes the UDP source port from it, which spreads queue pairs over equal routes.
    address.grh.flow_label = (qp->qp_num * 2654435761u ^ psn) & 0xfffff;
    std::memcpy(address.grh.dgid.raw, peer_gid.raw.data(), peer_gid.raw.size());
    address.grh.sgid_index = static_cast<uint8_t>(own_gid.index);
    address.grh.hop_limit = 64;
    address.grh.traffic_class = traffic_class_;
  }
  if (const int code = ibv_modify_qp(qp, &attr,
                                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
    throw system_error(code, "{}: cannot direct a queue pair to {}", port_.name(), gid_text(peer_gid.raw));
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = psn;
  attr.timeout = settings.timeout;
  attr.retry_cnt = settings.retry_count;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  if (const int code = ibv_modify_qp(qp, &attr,
                                     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                         IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC))
    throw system_error(code, "{}: cannot start a queue pair", port_.name());
}

}  // namespace tutti::ib
