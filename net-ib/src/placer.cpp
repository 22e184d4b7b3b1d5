// SPDX-License-Identifier: Apache-2.0
#include "placer.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>

#include "rail.hpp"

namespace tutti::ib {
namespace {

// A request takes microseconds, but with TUTTI_IB_RETRY_CNT=7 some adapters try for ever once their port is down.
constexpr std::chrono::seconds kPlaceLimit{2};

}  // namespace

Placer::Placer(const Rail& rail, uint64_t bytes)
    : rail_(rail), slab_(rail.device().pd.get(), bytes, rail.port().name()) {
  cq_.reset(ibv_create_cq(rail.device().context.get(), 1, nullptr, nullptr, 0));
  if (!cq_) throw system_error(errno, "{}: cannot create a completion queue", rail.port().name());
  uint32_t max_inline = 0;
  qp_ = rail.make_queue_pair(cq_.get(), nullptr, 1, &max_inline, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  OfferedRail self = rail.port().offer(rail.domain().settings());
  rail.connect_queue_pair(qp_.get(), 0, self, {qp_->qp_num, 0}, self.gids[0], self.gids[0]);
}

void Placer::place(const Region& region, char* to, const char* from, uint64_t bytes) {
  std::memcpy(slab_.data(), from, bytes);
  carry_out(IBV_WR_RDMA_WRITE, region, to, bytes, "cannot copy a message into device memory");
}

void Placer::flush(const Region& region, const char* at) {
  carry_out(IBV_WR_RDMA_READ, region, at, 1, "cannot read device memory, by which writes to it are flushed");
}

// Between the slab and the device's memory `there`.
void Placer::carry_out(ibv_wr_opcode opcode, const Region& region, const char* there, uint64_t bytes,
                       const char* cannot) {
  ibv_sge part{reinterpret_cast<uint64_t>(slab_.data()), static_cast<uint32_t>(bytes), slab_.key()};
  ibv_send_wr request{};
  request.sg_list = &part;
  request.num_sge = 1;
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(there);
  request.wr.rdma.rkey = rail_.domain().registration(region, rail_.index()).rkey;
  ibv_send_wr* bad = nullptr;
  const auto fail = [&](tutti_status status, const std::string& why) {
    is_broken_ = true;
    throw error(status, "{}: {}: {}", rail_.port().name(), cannot, why);
  };
  if (const int code = ibv_post_send(qp_.get(), &request, &bad)) fail(TUTTI_SYSTEM, system_text(code));
  ibv_wc wc{};
  int n = 0;
  const auto limit = std::chrono::steady_clock::now() + kPlaceLimit;
  while ((n = ibv_poll_cq(cq_.get(), 1, &wc)) == 0)
    if (std::chrono::steady_clock::now() > limit)
      fail(TUTTI_TIMEOUT, fmt::format("not done within {} s; is the port down?", kPlaceLimit.count()));
  if (n < 0) fail(TUTTI_SYSTEM, "its completion queue cannot be polled");
  if (wc.status != IBV_WC_SUCCESS) fail(TUTTI_SYSTEM, completion_text(wc.status));
}

}  // namespace tutti::ib
