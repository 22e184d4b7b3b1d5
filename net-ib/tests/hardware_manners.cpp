// SPDX-License-Identifier: Apache-2.0
#include "hardware_manners.hpp"

#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <vector>

namespace tutti_test {
namespace {

using Clock = std::chrono::steady_clock;

struct Halted {
  ibv_qp* qp = nullptr;
  Clock::time_point at;
  bool told = false;
  bool is_over() const { return Clock::now() - at >= manners.late; }
};

struct Queue {
  std::deque<ibv_wc> ready, held;
  std::map<uint32_t, Halted> halted;  // by queue pair number
};
std::map<ibv_cq*, Queue> queues;
std::vector<ibv_qp*> told;  // their events are not libibverbs'

decltype(ibv_context_ops::poll_cq) real_poll = nullptr;
decltype(ibv_context_ops::post_send) real_post = nullptr;

template <typename Function>
Function* real(Function*, const char* name) {
  static Function* const function = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
  return function;
}

bool is(const ibv_context* context, const std::string& device) {
  return device == ibv_get_device_name(context->device);
}

void take(Queue& queue, const ibv_wc& wc) {
  const auto halted = queue.halted.find(wc.qp_num);
  if (halted != queue.halted.end() && manners.is_dead) return;
  const bool received = wc.status == IBV_WC_SUCCESS && wc.opcode & IBV_WC_RECV;
  const bool is_late = manners.late.count() > 0 && (halted == queue.halted.end() || !halted->second.is_over());
  (received && is_late ? queue.held : queue.ready).push_back(wc);
}

int poll(ibv_cq* cq, int n, ibv_wc* wcs) {
  if (!is(cq->context, manners.device)) return real_poll(cq, n, wcs);
  Queue& queue = queues[cq];
  ibv_wc batch[16];
  for (int got; (got = real_poll(cq, 16, batch)) != 0;) {
    if (got < 0) return got;
    for (int i = 0; i < got; ++i) take(queue, batch[i]);
  }
  std::deque<ibv_wc> held;
  held.swap(queue.held);
  for (const ibv_wc& wc : held) take(queue, wc);
  int given = 0;
  for (; given < n && !queue.ready.empty(); queue.ready.pop_front()) wcs[given++] = queue.ready.front();
  return given;
}

int post(ibv_qp* qp, ibv_send_wr* requests, ibv_send_wr** bad) {
  if (!is(qp->context, manners.refuses_a_send)) return real_post(qp, requests, bad);
  manners.refuses_a_send.clear();
  *bad = requests;
  return EIO;
}

}  // namespace
}  // namespace tutti_test

using namespace tutti_test;

#define IN_ITS_PLACE extern "C" __attribute__((visibility("default")))

IN_ITS_PLACE ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* user, ibv_comp_channel* channel,
                                   int vector) {
  if (context->ops.poll_cq != poll) {
    real_poll = context->ops.poll_cq;
    real_post = context->ops.post_send;
    context->ops.poll_cq = poll;
    context->ops.post_send = post;
  }
  ibv_cq* cq = real(&ibv_create_cq, "ibv_create_cq")(context, entries, user, channel, vector);
  queues[cq] = {};
  return cq;
}

IN_ITS_PLACE int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  if (mask & IBV_QP_STATE && is(qp->context, manners.device)) {
    Queue& queue = queues[qp->recv_cq];
    if (attr->qp_state == IBV_QPS_ERR) queue.halted.try_emplace(qp->qp_num, Halted{qp, Clock::now()});
    if (attr->qp_state == IBV_QPS_RESET) {
      ibv_wc none;
      poll(qp->recv_cq, 0, &none);  // takes over what came
      const auto its = [&](const ibv_wc& wc) { return wc.qp_num == qp->qp_num; };
      for (auto* completions : {&queue.ready, &queue.held})
        completions->erase(std::remove_if(completions->begin(), completions->end(), its), completions->end());
      queue.halted.erase(qp->qp_num);
    }
  }
  return real(&ibv_modify_qp, "ibv_modify_qp")(qp, attr, mask);
}

IN_ITS_PLACE int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  if (is(context, manners.device) && manners.tells_the_last && !manners.is_dead)
    for (auto& [cq, queue] : queues)
      for (auto& [number, halted] : queue.halted) {
        if (cq->context != context || halted.told || !halted.is_over()) continue;
        halted.told = true;
        event->event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
        event->element.qp = halted.qp;
        told.push_back(halted.qp);
        return 0;
      }
  return real(&ibv_get_async_event, "ibv_get_async_event")(context, event);
}

IN_ITS_PLACE void ibv_ack_async_event(ibv_async_event* event) {
  const auto at = std::find(told.begin(), told.end(), event->element.qp);
  if (event->event_type == IBV_EVENT_QP_LAST_WQE_REACHED && at != told.end())
    told.erase(at);
  else
    real(&ibv_ack_async_event, "ibv_ack_async_event")(event);
}

// The completions go with the queue.
IN_ITS_PLACE int ibv_destroy_cq(ibv_cq* cq) {
  queues.erase(cq);
  return real(&ibv_destroy_cq, "ibv_destroy_cq")(cq);
}
