// SPDX-License-Identifier: Apache-2.0
#include "queue_pair.hpp"

#include <algorithm>
#include <cstring>

#include "rail.hpp"

namespace tutti::ib {
namespace {

constexpr uint32_t kInlineWish = 256;

QueuePair create(const Rail& rail, ibv_cq* completions, ibv_srq* receives, uint32_t sends, uint32_t* max_inline,
                 void* context) {
  for (uint32_t wish = kInlineWish;; wish /= 2) {
    ibv_qp_init_attr init{};
    init.qp_context = context;
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
    if (wish < 32) throw system_error(errno, "{}: cannot create a queue pair", rail.port().name());
  }
}

ibv_ah_attr address_of(const Rail& rail, const FarEnd& to) {
  ibv_ah_attr ah{};
  ah.port_num = static_cast<uint8_t>(rail.port().port);
  ah.sl = rail.service_level();
  ah.dlid = static_cast<uint16_t>(to.lid);
  if (rail.port().infiniband) return ah;
  ah.is_global = 1;
  std::memcpy(ah.grh.dgid.raw, to.gid.data(), to.gid.size());
  ah.grh.sgid_index = static_cast<uint8_t>(to.own_gid_index);
  ah.grh.hop_limit = 64;
  ah.grh.traffic_class = rail.traffic_class();
  return ah;
}

}  // namespace

QueuePair make_queue_pair(const Rail& rail, ibv_cq* completions, ibv_srq* receives, uint32_t sends,
                          uint32_t* max_inline, unsigned access, std::atomic<bool>* last_receive_reached) {
  QueuePair qp = create(rail, completions, receives, sends, max_inline, last_receive_reached);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.pkey_index = static_cast<uint16_t>(rail.domain().settings().pkey_index);
  attr.port_num = static_cast<uint8_t>(rail.port().port);
  attr.qp_access_flags = access;
  if (const int code =
          ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
    throw system_error(code, "{}: cannot set a queue pair up (TUTTI_IB_PKEY right?)", rail.port().name());
  return qp;
}

void connect_queue_pair(ibv_qp* qp, const Rail& rail, uint32_t psn, const FarEnd& to) {
  const Settings& settings = rail.domain().settings();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = static_cast<ibv_mtu>(std::min<uint32_t>(rail.port().mtu, to.mtu));
  attr.dest_qp_num = to.qp;
  attr.rq_psn = to.psn;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr = address_of(rail, to);
  if (const int code = ibv_modify_qp(qp, &attr,
                                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
    throw system_error(code, "{}: cannot direct a queue pair to {}", rail.port().name(), gid_text(to.gid));
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
    throw system_error(code, "{}: cannot start a queue pair", rail.port().name());
}

}  // namespace tutti::ib
