// SPDX-License-Identifier: Apache-2.0
#include "queue_pair.hpp"

#include <algorithm>
#include <cstring>
#include <tutti/sdk/plugin.hpp>

#include "rail.hpp"

namespace tutti::ib {
namespace {

constexpr uint32_t kInlineWish = 256;

QueuePair create(const Rail& rail, ibv_cq* completions, ibv_srq* receives, uint32_t sends, uint32_t* max_inline) {
  for (uint32_t wish = kInlineWish;; wish /= 2) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = completions;
    init.srq = receives;
    init.qp_type = IBV_QPT_RC;
    init.cap.max_send_wr = sends;
    init.cap.max_send_sge = 2;
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

ibv_ah_attr address_of(const Port& port, const Settings& settings, uint32_t gid_index, const RawGid& gid,
                       uint32_t lid) {
  ibv_ah_attr ah{};
  ah.port_num = static_cast<uint8_t>(port.port);
  ah.sl = settings.service_level;
  ah.dlid = static_cast<uint16_t>(lid);
  if (port.infiniband) return ah;
  ah.is_global = 1;
  std::memcpy(ah.grh.dgid.raw, gid.data(), gid.size());
  ah.grh.sgid_index = static_cast<uint8_t>(gid_index);
  ah.grh.hop_limit = 64;
  ah.grh.traffic_class = settings.traffic_class;
  return ah;
}

QueuePair make_queue_pair(const Rail& rail, ibv_cq* completions, ibv_srq* receives, uint32_t sends,
                          uint32_t* max_inline, unsigned access) {
  QueuePair qp = create(rail, completions, receives, sends, max_inline);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.pkey_index = static_cast<uint16_t>(rail.domain().settings().pkey_index);
  attr.port_num = static_cast<uint8_t>(rail.port().port);
  attr.qp_access_flags = access;
  if (const int error =
          ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
    throw sdk::system_error(rail.port().name() + ": cannot set a queue pair up (TUTTI_IB_PKEY right?)", error);
  return qp;
}

void connect_queue_pair(ibv_qp* qp, const Rail& rail, uint32_t psn, const FarEnd& to) {
  const Settings& settings = rail.domain().settings();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = static_cast<ibv_mtu>(std::min(rail.port().mtu, to.mtu));
  attr.dest_qp_num = to.qp;
  attr.rq_psn = to.psn;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr = address_of(rail.port(), settings, to.own_gid_index, to.gid, to.lid);
  if (const int error = ibv_modify_qp(qp, &attr,
                                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
    throw sdk::system_error(rail.port().name() + ": cannot direct a queue pair to " + gid_text(to.gid), error);
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = psn;
  attr.timeout = settings.timeout;
  attr.retry_cnt = settings.retry_count;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  if (const int error = ibv_modify_qp(qp, &attr,
                                      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                          IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC))
    throw sdk::system_error(rail.port().name() + ": cannot start a queue pair", error);
}

}  // namespace tutti::ib
