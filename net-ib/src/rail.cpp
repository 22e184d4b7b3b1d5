// SPDX-License-Identifier: Apache-2.0
#include "rail.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <tutti/sdk/plugin.hpp>

#include "proof.hpp"
#include "queue_pair.hpp"

namespace tutti::ib {
namespace {

constexpr uint32_t kGreetingsIn = 64, kGreetingsOut = 16;
constexpr uint32_t kRouteBytes = 40;  // a datagram's buffer begins with its global routing header
constexpr uint32_t kGreetingBytes = 512;
static_assert(kRouteBytes + sizeof(Greeting) <= kGreetingBytes);

}  // namespace

Rail::Rail(const Domain& domain, uint32_t index, const Shape& shape, uint32_t links)
    : domain_(domain),
      index_(index),
      port_(domain.rails()[index]),
      credits_(shape.credits),
      slot_bytes_((sizeof(Frame) + shape.eager_bytes + 63) / 64 * 64) {
  ibv_context* context = device().context.get();
  ibv_device_attr limits{};
  if (const int error = ibv_query_device(context, &limits))
    throw sdk::system_error(port_.name() + ": cannot query the device", error);
  // Every frame in flight in either direction, a heartbeat for each peer, and greetings.
  const uint64_t completions = uint64_t{links} * (credits_ * 2 + 1) + kGreetingsIn + kGreetingsOut + 64;
  const uint64_t receives = uint64_t{links + 1} * credits_;
  const auto check = [&](const char* what, uint64_t needed, int offered) {
    if (needed <= static_cast<uint64_t>(std::max(offered, 0))) return;
    throw sdk::Error(TUTTI_NO_RESOURCES, port_.name() + ": " + std::to_string(links) + " peers with " +
                                             std::to_string(credits_) + " credits each need " + std::to_string(needed) +
                                             " " + what + ", the device has " + std::to_string(offered) +
                                             "; lower TUTTI_IB_CREDITS on all ranks");
  };
  check("completion queue entries", completions, limits.max_cqe);
  check("shared receive queue entries", receives, limits.max_srq_wr);
  channel_.reset(ibv_create_comp_channel(context));
  if (!channel_) throw sdk::system_error(port_.name() + ": cannot create a completion channel", errno);
  const int flags = fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0)
    throw sdk::system_error(port_.name() + ": cannot make the completion channel non-blocking", errno);
  cq_.reset(ibv_create_cq(context, static_cast<int>(completions), nullptr, channel_.get(), 0));
  if (!cq_) throw sdk::system_error(port_.name() + ": cannot create a completion queue", errno);
  ibv_srq_init_attr attr{};
  attr.attr.max_wr = static_cast<uint32_t>(receives);
  attr.attr.max_sge = 1;
  srq_.reset(ibv_create_srq(device().pd.get(), &attr));
  if (!srq_) throw sdk::system_error(port_.name() + ": cannot create a shared receive queue", errno);
  open_greeter();
  if (!links) return;
  add_share();
  // What one peer takes: a limit on locked memory shows here, before anybody connects.
  Slab(device().pd.get(), 2 * credits_ * slot_bytes_, port_.name());
}

// Frames
// ---------------------------------------------------------------------------------------------------------------

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
    if (const int error = ibv_post_srq_recv(srq_.get(), requests, &bad))
      throw sdk::system_error(port_.name() + ": cannot post receive buffers", error);
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
  if (n < 0) throw sdk::Error(TUTTI_SYSTEM, port_.name() + ": the completion queue cannot be polled any more");
  return static_cast<uint32_t>(n);
}

void Rail::arm() {
  if (const int error = ibv_req_notify_cq(cq_.get(), 0))
    throw sdk::system_error(port_.name() + ": cannot ask for completion events", error);
}

void Rail::take_events() {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  unsigned n = 0;
  while (ibv_get_cq_event(channel_.get(), &cq, &context) == 0) ++n;
  if (n) ibv_ack_cq_events(cq_.get(), n);
}

void Rail::place(const Region& region, char* to, const char* from, uint64_t bytes) {
  with_placer([&](Placer& placer) { placer.place(region, to, from, bytes); });
}

void Rail::flush(const Region& region, const char* at) {
  with_placer([&](Placer& placer) { placer.flush(region, at); });
}

void Rail::with_placer(const std::function<void(Placer&)>& work) {
  if (!placer_) placer_ = std::make_unique<Placer>(*this, slot_bytes_);
  try {
    work(*placer_);
  } catch (const sdk::Error&) {
    placer_.reset();  // its queue pair is of no more use
    throw;
  }
}

bool Rail::is_down() const {
  ibv_port_attr attr{};
  return ibv_query_port(device().context.get(), static_cast<uint8_t>(port_.port), &attr) == 0 &&
         attr.state != IBV_PORT_ACTIVE;
}

// Greetings
// ------------------------------------------------------------------------------------------------------------

void Rail::open_greeter() {
  key_ = random_number() & 0x7fffffff;  // the upper bit is for privileged keys
  greetings_ = std::make_unique<Slab>(device().pd.get(), (kGreetingsIn + kGreetingsOut) * kGreetingBytes, port_.name());
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq_.get();
  init.qp_type = IBV_QPT_UD;
  init.sq_sig_all = 1;
  init.cap = {kGreetingsOut, kGreetingsIn, 1, 1, 0};
  greeter_.reset(ibv_create_qp(device().pd.get(), &init));
  if (!greeter_) throw sdk::system_error(port_.name() + ": cannot create a datagram queue pair", errno);
  ibv_qp_attr attr{};
  const auto change = [&](ibv_qp_state state, int mask) {
    attr.qp_state = state;
    if (const int error = ibv_modify_qp(greeter_.get(), &attr, mask | IBV_QP_STATE))
      throw sdk::system_error(port_.name() + ": cannot bring the datagram queue pair up", error);
  };
  attr.pkey_index = static_cast<uint16_t>(domain_.settings().pkey_index);
  attr.port_num = static_cast<uint8_t>(port_.port);
  attr.qkey = key_;
  change(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  change(IBV_QPS_RTR, 0);
  attr.sq_psn = 0;
  change(IBV_QPS_RTS, IBV_QP_SQ_PSN);
  for (uint32_t i = 0; i < kGreetingsIn; ++i) give_back_greeting(i);
}

PeerRail Rail::describe() const {
  PeerRail r{port_.infiniband, port_.mtu, port_.lid, port_.megabits, greeter_->qp_num, key_, {}};
  for (const Gid& gid : port_.gids)
    if (port_.offers(gid, domain_.settings())) r.gids.push_back(gid.raw);
  return r;
}

AddressHandle Rail::make_address(uint32_t gid_index, const RawGid& gid, uint32_t lid) const {
  ibv_ah_attr attr = address_of(port_, domain_.settings(), gid_index, gid, lid);
  AddressHandle handle(ibv_create_ah(device().pd.get(), &attr));
  if (!handle) throw sdk::system_error(port_.name() + ": cannot find the way to " + gid_text(gid), errno);
  return handle;
}

void Rail::send_greeting(const Greeting& greeting, ibv_ah* to, uint32_t qp, uint32_t key) {
  if (greetings_out_ == kGreetingsOut) return;  // it will be repeated
  char* buffer = greetings_->data() + (kGreetingsIn + next_greeting_++ % kGreetingsOut) * kGreetingBytes;
  std::memcpy(buffer, &greeting, sizeof greeting);
  ibv_sge part{reinterpret_cast<uint64_t>(buffer), sizeof greeting, greetings_->key()};
  ibv_send_wr request{};
  request.wr_id = work_id(Work::kGreetingOut, 0, 0);
  request.sg_list = &part;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.ud.ah = to;
  request.wr.ud.remote_qpn = qp;
  request.wr.ud.remote_qkey = key;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(greeter_.get(), &request, &bad) == 0) ++greetings_out_;
}

const Greeting& Rail::greeting(uint32_t slot_index) const {
  return *reinterpret_cast<const Greeting*>(greetings_->data() + slot_index * kGreetingBytes + kRouteBytes);
}

void Rail::give_back_greeting(uint32_t slot_index) {
  ibv_sge part{reinterpret_cast<uint64_t>(greetings_->data() + slot_index * kGreetingBytes), kGreetingBytes,
               greetings_->key()};
  ibv_recv_wr request{work_id(Work::kGreetingIn, 0, slot_index), nullptr, &part, 1};
  ibv_recv_wr* bad = nullptr;
  if (const int error = ibv_post_recv(greeter_.get(), &request, &bad))
    throw sdk::system_error(port_.name() + ": cannot post a datagram buffer", error);
}

}  // namespace tutti::ib
