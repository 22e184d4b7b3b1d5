// SPDX-License-Identifier: Apache-2.0
#include "path.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <tutti/sdk/plugin.hpp>

#include "proof.hpp"
#include "queue_pair.hpp"

namespace tutti::ib {
Path::Path(Rail& rail, uint32_t index, uint32_t id, const Shape& shape)
    : rail_(rail),
      index_(index),
      id_(id),
      credits_(shape.credits),
      slots_(std::bit_ceil(shape.credits)),
      slot_bytes_(rail.slot_bytes()),
      slab_(rail.device().pd.get(), slots_ * slot_bytes_, rail.port().name()),
      qp_(make_queue_pair(rail, rail.completions(), rail.receives(), slots_ + 1 /* a heartbeat */, &max_inline_)),
      psn_(random_number() & 0xffffff),
      flights_(slots_),
      requests_(slots_),
      parts_(slots_) {
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
  connect_queue_pair(qp_.get(), rail_, psn_, {peer.qp, peer.psn, peer.mtu, peer.lid, peer.gid, pairing.gid_index});
  load_.weight = std::max(1u, rail_.port().megabits / 100);
}

ibv_send_wr& Path::stage(const Flight& flight_, uint64_t address, uint32_t bytes, uint32_t key, bool signal) {
  const uint32_t at = sent_ & (slots_ - 1);
  flights_[at] = flight_;
  parts_[at][0] = {address, bytes, key};
  ibv_send_wr& request = requests_[at];
  request = {};
  request.wr_id = work_id(Work::kSent, id_, sent_);
  request.sg_list = parts_[at].data();
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

void Path::send(const Frame& frame, const void* payload, const Region* region) {
  char* buffer = slot(sent_);
  Flight flight_{frame, {}, nullptr, nullptr, false};
  flight_.frame.freed = told_ = taken_;
  std::memcpy(buffer, &flight_.frame, sizeof(Frame));
  if (region) return gather(flight_, buffer, static_cast<const char*>(payload), *region);
  if (payload) std::memcpy(buffer + sizeof(Frame), payload, frame.bytes);
  stage(flight_, reinterpret_cast<uint64_t>(buffer), static_cast<uint32_t>(sizeof(Frame)) + frame.bytes, slab_.key(),
        frame.kind == FrameKind::kBye || frame.kind == FrameKind::kCredit);
}

// The adapter fetches the payload from where it lies.
void Path::gather(Flight flight_, char* buffer, const char* payload, const Region& region) {
  flight_.local = payload;
  flight_.region = &region;
  auto& parts = parts_[sent_ & (slots_ - 1)];
  ibv_send_wr& request = stage(flight_, reinterpret_cast<uint64_t>(buffer), sizeof(Frame), slab_.key(), true);
  parts[1] = {reinterpret_cast<uint64_t>(payload), flight_.frame.bytes,
              rail_.domain().registration(region, rail_.index()).lkey};
  request.num_sge = 2;
  request.send_flags &= ~static_cast<unsigned>(IBV_SEND_INLINE);
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
