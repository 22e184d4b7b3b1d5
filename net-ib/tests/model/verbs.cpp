// SPDX-License-Identifier: Apache-2.0
//
// libibverbs' calls, by the model.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fabric.hpp"

#undef ibv_get_device_list
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port

using namespace tutti_test::model;

#define VERB extern "C" __attribute__((visibility("default")))
#define WITH_LOCK                   \
  Fabric& fabric = Fabric::get();   \
  const std::lock_guard lock(fabric.mutex); \
  fabric.advance()

namespace {

[[noreturn]] void misuse(const char* what) {
  std::fprintf(stderr, "model: %s\n", what);
  std::abort();
}

int poll_cq(ibv_cq* verbs, int n, ibv_wc* wcs) {
  WITH_LOCK;
  auto& cq = *owner<CompletionQueue>(verbs);
  if (cq.broken) return -1;
  int given = 0;
  for (; given < n && !cq.entries.empty(); ++given) {
    const CompletionQueue::Entry entry = cq.entries.front();
    cq.entries.pop_front();
    wcs[given] = entry.wc;
    const auto it = fabric.queue_pairs.find(entry.wc.qp_num);
    if (it == fabric.queue_pairs.end()) misuse("a completion of a queue pair that is gone");
    QueuePair& qp = *it->second;
    if (entry.receive)
      --owner<SharedReceives>(qp.verbs.srq)->occupied;
    else
      qp.retired = entry.serial + 1;
  }
  return given;
}

int req_notify_cq(ibv_cq* verbs, int) {
  WITH_LOCK;
  owner<CompletionQueue>(verbs)->armed = true;
  return 0;
}

int post_srq_recv(ibv_srq* verbs, ibv_recv_wr* requests, ibv_recv_wr** bad) {
  WITH_LOCK;
  auto& srq = *owner<SharedReceives>(verbs);
  for (ibv_recv_wr* wr = requests; wr; wr = wr->next) {
    *bad = wr;
    if (srq.occupied >= srq.most) return ENOMEM;
    if (wr->num_sge != 1) return EINVAL;
    srq.requests.push_back({wr->wr_id, wr->sg_list[0]});
    ++srq.occupied;
  }
  return 0;
}

int post_send(ibv_qp* qp, ibv_send_wr* requests, ibv_send_wr** bad) {
  WITH_LOCK;
  return fabric.post(*owner<QueuePair>(qp), requests, bad);
}

int query_port(ibv_context* context, uint8_t number, ibv_port_attr* attr, size_t bytes) {
  WITH_LOCK;
  const Device& device = *of(context)->device;
  if (device.fatal) return EIO;
  if (number != 1) return EINVAL;
  std::memset(attr, 0, bytes);
  attr->state = device.up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attr->active_mtu = attr->max_mtu = IBV_MTU_1024;
  attr->gid_tbl_len = 2;
  attr->lid = device.adapter.infiniband ? device.adapter.address[3] : 0;
  attr->active_speed = device.adapter.speed;
  attr->active_width = device.adapter.width;
  attr->link_layer = !device.adapter.has_reliable_queue_pairs ? IBV_LINK_LAYER_UNSPECIFIED
                     : device.adapter.infiniband              ? IBV_LINK_LAYER_INFINIBAND
                                                              : IBV_LINK_LAYER_ETHERNET;
  attr->flags = device.adapter.grh_required ? IBV_QPF_GRH_REQUIRED : 0;
  return 0;
}

// Ordinary users may lock no more than RLIMIT_MEMLOCK.
bool may_lock(Fabric& fabric, uint64_t bytes) {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  if (geteuid() == 0 || fabric.locked_bytes + bytes <= limit.rlim_cur) return true;
  errno = ENOMEM;
  return false;
}

ibv_mr* add_region(ibv_pd* pd, uint64_t begin, size_t bytes, char* memory, int access, bool on_device, void* mapping) {
  Fabric& fabric = Fabric::get();
  auto* region = new Region;
  region->device = of(pd->context)->device;
  region->begin = begin;
  region->bytes = bytes;
  region->memory = memory;
  region->on_device = on_device;
  region->access = access;
  region->mapping = mapping;
  region->verbs.context = pd->context;
  region->verbs.pd = pd;
  region->verbs.length = bytes;
  region->verbs.lkey = region->verbs.rkey = fabric.next_number++ << 8;
  region->device->counts.relaxed_regions += (access & IBV_ACCESS_RELAXED_ORDERING) != 0;
  fabric.regions[region->verbs.lkey] = region;
  fabric.locked_bytes += bytes;
  return &region->verbs;
}

// Memory that the processor cannot read cannot be pinned either.
bool is_readable(const void* address) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  const bool readable = write(ends[1], address, 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return readable;
}

}  // namespace

// ---- Devices

VERB ibv_device** ibv_get_device_list(int* n) {
  WITH_LOCK;
  auto** list = new ibv_device*[fabric.devices.size() + 1]();
  for (size_t i = 0; i < fabric.devices.size(); ++i) list[i] = &fabric.devices[i]->verbs;
  if (n) *n = static_cast<int>(fabric.devices.size());
  return list;
}
VERB void ibv_free_device_list(ibv_device** list) { delete[] list; }
VERB const char* ibv_get_device_name(ibv_device* device) { return device->name; }

VERB ibv_context* ibv_open_device(ibv_device* verbs) {
  WITH_LOCK;
  auto* context = new Context;
  context->device = owner<Device>(verbs);
  context->verbs.sz = sizeof context->verbs;
  context->verbs.query_port = query_port;
  ibv_context& outer = context->verbs.context;
  outer.device = verbs;
  outer.abi_compat = __VERBS_ABI_IS_EXTENDED;
  outer.ops.poll_cq = poll_cq;
  outer.ops.req_notify_cq = req_notify_cq;
  outer.ops.post_srq_recv = post_srq_recv;
  outer.ops.post_send = post_send;
  outer.async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  fabric.contexts.insert(context);
  return &outer;
}
VERB int ibv_close_device(ibv_context* verbs) {
  WITH_LOCK;
  Context* context = of(verbs);
  if (context->protection_domains) misuse("a device is closed before its protection domains");
  fabric.contexts.erase(context);
  close(verbs->async_fd);
  delete context;
  return 0;
}
VERB int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  WITH_LOCK;
  const Adapter& adapter = of(context)->device->adapter;
  *attr = {};
  attr->phys_port_cnt = 1;
  attr->max_cqe = 1 << 20;
  attr->max_qp = 1 << 16;
  attr->max_qp_wr = 1 << 14;
  attr->max_srq = adapter.has_shared_receives ? 1 << 10 : 0;
  attr->max_srq_wr = adapter.has_shared_receives ? 1 << 15 : 0;
  attr->vendor_id = adapter.pci_vendor;
  return 0;
}
VERB ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t most, uint32_t, size_t) {
  WITH_LOCK;
  const Device& device = *of(context)->device;
  if (device.fatal) return -EIO;
  const size_t first = device.adapter.infiniband ? 1 : 0, n = std::min<size_t>(most, 2 - first);
  for (size_t i = 0; i < n; ++i) {
    entries[i] = {};
    entries[i].gid = device.gids[first + i];
    entries[i].gid_index = static_cast<uint32_t>(first + i);
    entries[i].port_num = 1;
    entries[i].gid_type = device.adapter.infiniband || !device.adapter.has_reliable_queue_pairs ? IBV_GID_TYPE_IB
                                                                                                : IBV_GID_TYPE_ROCE_V2;
  }
  return static_cast<ssize_t>(n);
}
VERB int ibv_fork_init() {
  Fabric::get().fork_is_safe = true;
  return 0;
}

// ---- Events

VERB int ibv_get_async_event(ibv_context* verbs, ibv_async_event* event) {
  uint64_t one = 0;
  if (read(verbs->async_fd, &one, sizeof one) != sizeof one) return -1;
  WITH_LOCK;
  auto& events = of(verbs)->events;
  *event = events.front();
  events.pop_front();
  if (event->event_type == IBV_EVENT_QP_LAST_WQE_REACHED || event->event_type == IBV_EVENT_QP_FATAL ||
      event->event_type == IBV_EVENT_QP_ACCESS_ERR)
    ++owner<QueuePair>(event->element.qp)->unacknowledged;
  return 0;
}
VERB void ibv_ack_async_event(ibv_async_event* event) {
  WITH_LOCK;
  if (event->event_type == IBV_EVENT_QP_LAST_WQE_REACHED || event->event_type == IBV_EVENT_QP_FATAL ||
      event->event_type == IBV_EVENT_QP_ACCESS_ERR)
    --owner<QueuePair>(event->element.qp)->unacknowledged;
}

// ---- Memory

VERB ibv_pd* ibv_alloc_pd(ibv_context* context) {
  WITH_LOCK;
  ++of(context)->protection_domains;
  auto* pd = new ibv_pd{};
  pd->context = context;
  return pd;
}
VERB int ibv_dealloc_pd(ibv_pd* pd) {
  WITH_LOCK;
  for (const auto& [key, region] : fabric.regions)
    if (region->verbs.pd == pd) misuse("a protection domain ends before its registrations");
  --of(pd->context)->protection_domains;
  delete pd;
  return 0;
}
VERB ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t bytes, uint64_t iova, unsigned access) {
  WITH_LOCK;
  if (!may_lock(fabric, bytes)) return nullptr;
  const bool peer = of(pd->context)->device->adapter.peer_memory;
  if (!is_readable(address)) {
    if (!peer) return errno = EFAULT, nullptr;
    // The bytes of such memory are the model's own.
    void* own = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return add_region(pd, iova, bytes, static_cast<char*>(own), static_cast<int>(access), true, own);
  }
  return add_region(pd, iova, bytes, static_cast<char*>(address), static_cast<int>(access), false, nullptr);
}
VERB ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t bytes, int access) {
  return ibv_reg_mr_iova2(pd, address, bytes, reinterpret_cast<uint64_t>(address), static_cast<unsigned>(access));
}
VERB ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access) {
  WITH_LOCK;
  if (!of(pd->context)->device->adapter.has_dma_buf) return errno = EOPNOTSUPP, nullptr;
  if (fcntl(fd, F_GETFD) < 0) return errno = EBADF, nullptr;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) return nullptr;
  return add_region(pd, iova, bytes, static_cast<char*>(mapped), access, true, mapped);
}
VERB int ibv_dereg_mr(ibv_mr* verbs) {
  WITH_LOCK;
  Region* region = owner<Region>(verbs);
  settle_writes(*region);
  fabric.locked_bytes -= region->bytes;
  if (region->mapping) munmap(region->mapping, region->bytes);
  fabric.regions.erase(verbs->lkey);
  delete region;
  return 0;
}

// ---- Queues

VERB ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  WITH_LOCK;
  auto* channel = new Channel;
  channel->verbs.context = context;
  channel->verbs.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  return &channel->verbs;
}
VERB int ibv_destroy_comp_channel(ibv_comp_channel* verbs) {
  WITH_LOCK;
  if (verbs->refcnt) misuse("a completion channel ends before its queues");
  close(verbs->fd);
  delete owner<Channel>(verbs);
  return 0;
}
VERB ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* user, ibv_comp_channel* channel, int) {
  WITH_LOCK;
  auto* cq = new CompletionQueue;
  cq->verbs.context = context;
  cq->verbs.cq_context = user;
  cq->verbs.cqe = entries;
  cq->channel = channel ? owner<Channel>(channel) : nullptr;
  if (channel) ++channel->refcnt;
  return &cq->verbs;
}
VERB int ibv_destroy_cq(ibv_cq* verbs) {
  WITH_LOCK;
  auto* cq = owner<CompletionQueue>(verbs);
  if (cq->unacknowledged) misuse("a completion queue ends with events that were not acknowledged");
  if (cq->channel) {
    std::erase(cq->channel->events, verbs);
    --cq->channel->verbs.refcnt;
  }
  for (const auto& [number, qp] : fabric.queue_pairs)
    if (qp->verbs.send_cq == verbs || qp->verbs.recv_cq == verbs) misuse("a completion queue ends before its queue pairs");
  delete cq;
  return 0;
}
VERB int ibv_get_cq_event(ibv_comp_channel* verbs, ibv_cq** cq, void** user) {
  uint64_t one = 0;
  if (read(verbs->fd, &one, sizeof one) != sizeof one) return -1;
  WITH_LOCK;
  auto& events = owner<Channel>(verbs)->events;
  if (events.empty()) return errno = EAGAIN, -1;
  *cq = events.front();
  events.pop_front();
  *user = (*cq)->cq_context;
  ++owner<CompletionQueue>(*cq)->unacknowledged;
  return 0;
}
VERB void ibv_ack_cq_events(ibv_cq* cq, unsigned n) {
  WITH_LOCK;
  owner<CompletionQueue>(cq)->unacknowledged -= static_cast<int>(n);
}
VERB ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  WITH_LOCK;
  if (!of(pd->context)->device->adapter.has_shared_receives) return errno = EOPNOTSUPP, nullptr;
  auto* srq = new SharedReceives;
  srq->verbs.context = pd->context;
  srq->verbs.pd = pd;
  srq->most = attr->attr.max_wr;
  return &srq->verbs;
}
VERB int ibv_destroy_srq(ibv_srq* verbs) {
  WITH_LOCK;
  for (const auto& [number, qp] : fabric.queue_pairs)
    if (qp->verbs.srq == verbs) misuse("a shared receive queue ends before its queue pairs");
  delete owner<SharedReceives>(verbs);
  return 0;
}

VERB ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  WITH_LOCK;
  Device& device = *of(pd->context)->device;
  if (!device.adapter.has_reliable_queue_pairs) return errno = EOPNOTSUPP, nullptr;
  if (init->cap.max_inline_data > (device.adapter.has_inline ? 512u : 0u)) return errno = EINVAL, nullptr;
  auto* qp = new QueuePair;
  qp->device = &device;
  qp->limits = *init;
  qp->verbs.context = pd->context;
  qp->verbs.pd = pd;
  qp->verbs.qp_context = init->qp_context;
  qp->verbs.send_cq = init->send_cq;
  qp->verbs.recv_cq = init->recv_cq;
  qp->verbs.srq = init->srq;
  qp->verbs.qp_num = fabric.next_number++;
  fabric.queue_pairs[qp->verbs.qp_num] = qp;
  return &qp->verbs;
}
VERB int ibv_destroy_qp(ibv_qp* verbs) {
  WITH_LOCK;
  QueuePair* qp = owner<QueuePair>(verbs);
  if (qp->unacknowledged) misuse("a queue pair ends with events that were not acknowledged");
  fabric.discard(*qp);
  auto& events = of(verbs->context)->events;
  for (auto& event : events)  // the kernel forgets those that nobody has taken
    if (event.element.qp == verbs && event.event_type <= IBV_EVENT_PATH_MIG_ERR) event.event_type = IBV_EVENT_SM_CHANGE;
  for (auto& event : events)
    if (event.element.qp == verbs && event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED)
      event.event_type = IBV_EVENT_SM_CHANGE;
  fabric.queue_pairs.erase(verbs->qp_num);
  delete qp;
  return 0;
}
VERB int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  WITH_LOCK;
  const int code = fabric.modify(*owner<QueuePair>(qp), *attr, mask);
  fabric.advance();
  return code;
}
