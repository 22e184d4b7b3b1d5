// SPDX-License-Identifier: Apache-2.0
#include "rail.hpp"

#include <algorithm>

namespace tutti::ib {

Rail::Rail(const Domain& domain, uint32_t index, const Shape& shape, uint8_t traffic_class)
    : domain_(domain),
      index_(index),
      port_(domain.rails()[index]),
      credits_(shape.credits),
      slot_bytes_((sizeof(Frame) + shape.eager_bytes + 63) / 64 * 64),
      traffic_class_(domain.settings().traffic_class.value_or(traffic_class)) {
  const uint32_t links = shape.nranks - 1;
  ibv_context* context = device().context.get();
  ibv_device_attr limits{};
  if (const int code = ibv_query_device(context, &limits))
    throw system_error(code, "{}: cannot query the device", port_.name());
  // Every frame in flight in either direction, a heartbeat and a marker for each peer.
  const uint64_t completions = uint64_t{links} * (credits_ * 2 + 2) + 64;
  const uint64_t receives = uint64_t{links + 1} * credits_;
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

uint8_t Rail::service_level() const {
  const uint8_t precedence = port_.infiniband ? traffic_class_ >> 5 : 0;
  return domain_.settings().service_level.value_or(precedence);
}

}  // namespace tutti::ib
