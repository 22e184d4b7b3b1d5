// SPDX-License-Identifier: Apache-2.0
#include "path.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>

namespace tutti::ib {

Path::Path(Rail& rail, std::vector<Path*>& all)
    : rail_(rail),
      all_(all),
      id_(static_cast<uint32_t>(all.size())),
      credits_(rail.domain().settings().credits),
      slots_(std::bit_ceil(credits_)),
      slot_bytes_(rail.slot_bytes()),
      slab_(rail.device().pd.get(), slots_ * slot_bytes_, rail.port().name()),
      qp_(rail.make_queue_pair(rail.completions(), rail.receives(), slots_ + 2 /* a heartbeat, a marker */,
                               &max_inline_, IBV_ACCESS_REMOTE_WRITE, &events_)),
      psn_(std::random_device{}() & 0xffffff),
      flights_(slots_),
      requests_(slots_),
      parts_(slots_) {
  if (id_ >= kMaxPaths) throw error(TUTTI_NO_RESOURCES, "all numbers for queue pairs are in use");
  rail_.add_path(qp_->qp_num, this);
  all_.push_back(this);
}

Path::~Path() {
  if (qp_) rail_.forget_path(qp_->qp_num);
  all_[id_] = nullptr;
}

OfferedRail Path::offer() const {
  OfferedRail rail = rail_.port().offer(rail_.domain().settings());
  rail.queue_pairs[0] = {qp_->qp_num, psn_};
  return rail;
}

bool Path::connect(Place place, const Pairing& pairing, const OfferedRail& peer, const OfferedQueuePair& to,
                   std::string* why) {
  place_ = place;
  own_gid_ = pairing.own.gid;
  own_lid_ = rail_.port().lid;
  load_.weight = std::max(1.0, rail_.port().megabits / 8.0 / rail_.domain().settings().queue_pairs);
  try {
    rail_.connect_queue_pair(qp_.get(), psn_, peer, to, pairing.own.gid, pairing.peer.gid);
    return true;
  } catch (const sdk::Error& refusal) {
    *why = refusal.what();
    die();
    return false;
  }
}

std::string Path::fault() const {
  const Port& port = rail_.port();
  if (rail_.is_lost()) return "its adapter has failed (IBV_EVENT_DEVICE_FATAL)";
  if (events_.failed) return "the adapter reports an error of its queue pair";
  if (!port.up) return "its port is " + port.state;
  if (port.infiniband && port.lid != own_lid_) return fmt::format("its LID has changed from {} to {}", own_lid_, port.lid);
  const auto is_own = [&](const Gid& gid) { return gid.index == own_gid_.index && gid.raw == own_gid_.raw; };
  if (std::none_of(port.gids.begin(), port.gids.end(), is_own))
    return "its address has changed: " + gid_text(own_gid_.raw) + " is gone";
  return "";
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
  // Every quarter of the slots one completion is asked for, so slots become free in time.
  if (signal || (sent_ & (slots_ / 4 - 1)) == 0) request.send_flags = IBV_SEND_SIGNALED;
  // The processor copies inline bytes, so they must not be in registered memory, which may be a device's.
  if (!flight_.region && bytes <= max_inline_) request.send_flags |= IBV_SEND_INLINE;
  if (sent_ != flushed_) requests_[(sent_ - 1) & (slots_ - 1)].next = &request;
  ++sent_;
  load_.bytes += flight_.frame.bytes;
  rail_.bytes_sent += flight_.frame.bytes;
  ++rail_.frames_sent;
  return request;
}

void Path::acknowledge_one() {
  const Flight& done = flight(acked_++);
  load_.bytes -= done.frame.bytes;
  if (!done.is_measured) return;
  measured_ += done.frame.bytes;
  if (--pieces_ > 0 && measured_ < kMeasured) return;
  const auto now = std::chrono::steady_clock::now();
  load_.measured(std::exchange(measured_, 0), now - measured_from_);
  measured_from_ = now;
}

void Path::send(const Frame& frame, const void* payload, const Region* region) {
  char* buffer = slot(sent_);
  Flight flight_{frame, {}, region ? static_cast<const char*>(payload) : nullptr, region, false};
  flight_.frame.freed = told_ = taken_;
  std::memcpy(buffer, &flight_.frame, sizeof(Frame));
  const uint32_t copied = region ? 0 : frame.bytes;
  if (payload && copied) std::memcpy(buffer + sizeof(Frame), payload, copied);
  auto& parts = parts_[sent_ & (slots_ - 1)];
  ibv_send_wr& request =
      stage(flight_, reinterpret_cast<uint64_t>(buffer), static_cast<uint32_t>(sizeof(Frame)) + copied, slab_.key(),
            region || frame.kind == FrameKind::kBye || frame.kind == FrameKind::kCredit);
  if (!region) return;
  // The adapter reads the payload from registered memory.
  parts[1] = {reinterpret_cast<uint64_t>(payload), frame.bytes,
              rail_.domain().registration(*region, rail_.index()).lkey};
  request.num_sge = 2;
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
  // Short pieces tell more of the way's length than of its speed.
  const bool is_measured = frame.bytes < frame.total && frame.bytes >= 4096;
  if (is_measured && pieces_++ == 0) measured_from_ = std::chrono::steady_clock::now();
  ibv_send_wr& request = stage({frame, target, region ? local : nullptr, region, true, is_measured},
                               reinterpret_cast<uint64_t>(from), frame.bytes, key, true);
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.imm_data = htonl(immediate(frame.lane, frame.sequence));
  request.wr.rdma.remote_addr = target.address + frame.offset;
  request.wr.rdma.rkey = target.keys[place_.pair];
}

bool Path::flush(std::string* why) {
  if (flushed_ == sent_) return true;
  ibv_send_wr* first = &requests_[flushed_ & (slots_ - 1)];
  flushed_ = sent_;
  if (state_ != State::kUp) return true;
  ibv_send_wr* bad = nullptr;
  const int code = ibv_post_send(qp_.get(), first, &bad);
  if (code) *why = "the adapter refused a send: " + system_text(code);
  return code == 0;
}

void Path::tell_credit() {
  if (!has_room(0)) return;
  Frame frame{};
  frame.kind = FrameKind::kCredit;
  send(frame, nullptr);
  owes_answer = false;
}

int Path::write_nothing(Work work) {
  ibv_send_wr request{};
  request.wr_id = work_id(work, id_, 0);
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp_.get(), &request, &bad);
}

bool Path::heartbeat(std::string* why) {
  const bool idle = sent_ == seen_sent_ && taken_ == seen_taken_;
  seen_sent_ = sent_;
  seen_taken_ = taken_;
  if (!idle || beating_) return true;
  const int code = write_nothing(Work::kHeartbeat);
  if (code) *why = "the adapter refused a heartbeat: " + system_text(code);
  beating_ = code == 0;
  return beating_;
}

bool Path::set_freed(uint32_t freed) {
  if (freed - freed_ > sent_ - freed_) return false;
  freed_ = freed;
  return true;
}

void Path::halt() {
  state_ = State::kDraining;
  halted_at_ = std::chrono::steady_clock::now();
  if (rail_.is_lost()) return;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  if (const int code = ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE)) {
    stuck_ = "the adapter cannot stop its queue pair: " + system_text(code);
    return;
  }
  if (const int code = write_nothing(Work::kMarker))
    stuck_ = "the adapter refused the last request to a queue pair: " + system_text(code);
}

Path::Drain Path::drain(std::string* why) {
  if (rail_.is_lost()) return Drain::kDone;
  const auto now = std::chrono::steady_clock::now();
  if (stuck_.empty() && !flushed_at_ && now - halted_at_ > kDrainLimit)
    stuck_ = fmt::format(
        "the adapter did not complete what was under way within {} ms after its queue pair was stopped: "
        "it seems to be dead",
        kDrainLimit.count());
  if (!stuck_.empty()) {
    *why = stuck_;
    return Drain::kStuck;
  }
  if (!flushed_at_) return Drain::kWaiting;
  if (events_.last_receive_reached || now - *flushed_at_ > kLastReceiveLimit) return Drain::kDone;
  return Drain::kWaiting;
}

void Path::die() {
  state_ = State::kDead;
  if (!qp_) return;
  rail_.forget_path(qp_->qp_num);
  qp_.reset();
}

}  // namespace tutti::ib
