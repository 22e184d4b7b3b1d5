// SPDX-License-Identifier: Apache-2.0
#include "path.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <tutti/sdk/plugin.hpp>

#include "proof.hpp"

namespace tutti::ib {
namespace {

constexpr uint32_t kInlineWish = 256;

QueuePair make_queue_pair(Rail& rail, uint32_t sends, uint32_t* max_inline) {
  for (uint32_t wish = kInlineWish;; wish /= 2) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = rail.completions();
    init.srq = rail.receives();
    init.qp_type = IBV_QPT_RC;
    init.cap.max_send_wr = sends;
    init.cap.max_send_sge = 1;
    init.cap.max_inline_data = wish < 32 ? 0 : wish;
    QueuePair qp(ibv_create_qp(rail.device().pd.get(), &init));
    if (qp) {
      *max_inline = init.cap.max_inline_data;
      return qp;
    }
    if (wish < 32) throw sdk::system_error(rail.port().name() + ": cannot create a queue pair", errno);
  }
}

}  // namespace

Path::Path(Rail& rail, uint32_t index, uint32_t id, const Shape& shape)
    : rail_(rail),
      index_(index),
      id_(id),
      credits_(shape.credits),
      slots_(std::bit_ceil(shape.credits)),
      slot_bytes_(rail.slot_bytes()),
      slab_(rail.device().pd.get(), slots_ * slot_bytes_, rail.port().name()),
      qp_(make_queue_pair(rail, slots_ + 1 /* a heartbeat */, &max_inline_)),
      psn_(random_number() & 0xffffff),
      flights_(slots_),
      requests_(slots_),
      parts_(slots_) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.pkey_index = static_cast<uint16_t>(rail.domain().settings().pkey_index);
  attr.port_num = static_cast<uint8_t>(rail.port().port);
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  if (const int error =
          ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
    throw sdk::system_error(rail.port().name() + ": cannot set a queue pair up (TUTTI_IB_PKEY right?)", error);
  rail_.add_path(qp_->qp_num, this);
}

Path::~Path() {
  rail_.forget_path(qp_->qp_num);
  if (owner) (*owner)[id_] = nullptr;
}

PathOffer Path::offer(const Pairing& pairing) const {
  PathOffer offer{};
  offer.rail = static_cast<uint8_t>(pairing.rail);
  offer.peer_rail = static_cast<uint8_t>(pairing.peer_rail);
  offer.mtu = rail_.port().mtu;
  offer.qp = qp_->qp_num;
  offer.psn = psn_;
  offer.lid = rail_.port().lid;
  offer.gid = pairing.gid;
  offer.peer_gid = pairing.peer_gid;
  return offer;
}

void Path::connect(const Pairing& pairing, const PathOffer& peer) {
  const Settings& settings = rail_.domain().settings();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = static_cast<ibv_mtu>(std::min(rail_.port().mtu, peer.mtu));
  attr.dest_qp_num = peer.qp;
  attr.rq_psn = peer.psn;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr = address_of(rail_.port(), settings, pairing.gid_index, peer.gid, peer.lid);
  if (const int error = ibv_modify_qp(qp_.get(), &attr,
                                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
    throw sdk::system_error(rail_.port().name() + ": cannot direct a queue pair to " + gid_text(peer.gid), error);
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = psn_;
  attr.timeout = settings.timeout;
  attr.retry_cnt = settings.retry_count;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  if (const int error = ibv_modify_qp(qp_.get(), &attr,
                                      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                          IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC))
    throw sdk::system_error(rail_.port().name() + ": cannot start a queue pair", error);
  load_.weight = std::max(1u, rail_.port().megabits / 100);
}

ibv_send_wr& Path::stage(const Flight& flight_, uint64_t address, uint32_t bytes, uint32_t key, bool signal) {
  const uint32_t at = sent_ & (slots_ - 1);
  flights_[at] = flight_;
  parts_[at] = {address, bytes, key};
  ibv_send_wr& request = requests_[at];
  request = {};
  request.wr_id = work_id(Work::kSent, id_, sent_);
  request.sg_list = &parts_[at];
  request.num_sge = bytes ? 1 : 0;
  request.opcode = IBV_WR_SEND;
  // Acknowledgements are asked for now and then: slots are free again in time, and four wait at most.
  if (signal || (sent_ & (slots_ / 4 - 1)) == 0) request.send_flags = IBV_SEND_SIGNALED;
  if (bytes <= max_inline_) request.send_flags |= IBV_SEND_INLINE;
  if (sent_ != flushed_) requests_[(sent_ - 1) & (slots_ - 1)].next = &request;
  ++sent_;
  load_.bytes += flight_.frame.bytes;
  rail_.bytes_sent += flight_.frame.bytes;
  ++rail_.frames_sent;
  return request;
}

void Path::send(const Frame& frame, const void* payload) {
  char* buffer = slot(sent_);
  Flight flight_{frame, {}, nullptr, nullptr, false};
  flight_.frame.freed = told_ = taken_;
  std::memcpy(buffer, &flight_.frame, sizeof(Frame));
  if (payload) std::memcpy(buffer + sizeof(Frame), payload, frame.bytes);
  stage(flight_, reinterpret_cast<uint64_t>(buffer), static_cast<uint32_t>(sizeof(Frame)) + frame.bytes, slab_.key(),
        frame.kind == FrameKind::kBye || frame.kind == FrameKind::kCredit);
}

void Path::write(const Frame& frame, const Announcement& target, const char* local, const Region* region) {
  uint32_t key = slab_.key();
  const char* from = local;
  if (region) {
    key = rail_.domain().registration(*region, rail_.index()).lkey;
  } else {
    char* buffer = slot(sent_) + sizeof(Frame);
    std::memcpy(buffer, local, frame.bytes);
    from = buffer;
  }
  ibv_send_wr& request = stage({frame, target, region ? local : nullptr, region, true},
                               reinterpret_cast<uint64_t>(from), frame.bytes, key, true);
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.imm_data = htonl(immediate(frame.lane, frame.sequence));
  request.wr.rdma.remote_addr = target.address + frame.offset;
  request.wr.rdma.rkey = target.keys[index_];
}

bool Path::flush(std::string* why) {
  if (flushed_ == sent_) return true;
  ibv_send_wr* first = &requests_[flushed_ & (slots_ - 1)];
  flushed_ = sent_;
  if (state_ != State::kUp) return true;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(qp_.get(), first, &bad);
  if (error) *why = "the adapter refused a send: " + std::generic_category().message(error);
  return error == 0;
}

void Path::tell_credit() {
  if (!has_room(0)) return;
  Frame frame{};
  frame.kind = FrameKind::kCredit;
  send(frame, nullptr);
}

bool Path::heartbeat(std::string* why) {
  const bool idle = sent_ == seen_sent_ && taken_ == seen_taken_;
  seen_sent_ = sent_;
  seen_taken_ = taken_;
  if (!idle || beating_) return true;
  ibv_send_wr request{};
  request.wr_id = work_id(Work::kHeartbeat, id_, 0);
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(qp_.get(), &request, &bad);
  if (error) *why = "the adapter refused a heartbeat: " + std::generic_category().message(error);
  beating_ = error == 0;
  return beating_;
}

bool Path::set_freed(uint32_t freed) {
  if (freed - freed_ > sent_ - freed_) return false;
  freed_ = freed;
  return true;
}

void Path::halt() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE);
}

void Path::reset() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE);
}

}  // namespace tutti::ib
