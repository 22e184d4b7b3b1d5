// SPDX-License-Identifier: Apache-2.0
#include "fabric.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <stdexcept>
#include <utility>

namespace tutti_test::model {
namespace {

constexpr std::chrono::milliseconds kDeviceWriteDelay{1};
constexpr std::chrono::microseconds kNotReadyDelay{640};

void signal(int fd) {
  const uint64_t one = 1;
  if (write(fd, &one, sizeof one) != sizeof one) throw std::runtime_error("model: eventfd");
}

ibv_gid gid_of(const Adapter& adapter, bool link_local) {
  const auto& a = adapter.address;
  ibv_gid gid{};
  if (link_local || adapter.infiniband) {
    gid.raw[0] = 0xfe;
    gid.raw[1] = 0x80;
    gid.raw[7] = adapter.infiniband ? a[2] : 0;
  } else {
    gid.raw[10] = gid.raw[11] = 0xff;
  }
  std::copy(a.begin(), a.end(), gid.raw + 12);
  return gid;
}

bool same(const ibv_gid& a, const ibv_gid& b) { return std::memcmp(a.raw, b.raw, sizeof a.raw) == 0; }

}  // namespace

void settle_writes(Region& region) {
  for (const auto& [offset, bytes] : region.late_writes) std::memcpy(region.memory + offset, bytes.data(), bytes.size());
  region.late_writes.clear();
}

Fabric& Fabric::get() {
  static Fabric& fabric = [&]() -> Fabric& {
    auto* made = new Fabric;  // outlives the endpoints of static objects
    made->install(two_cables());
    return *made;
  }();
  return fabric;
}

void Fabric::install(const std::vector<Adapter>& adapters) {
  if (!contexts.empty()) throw std::runtime_error("model: adapters are open");
  devices.clear();
  due_.clear();
  flow_labels.clear();
  for (const Adapter& adapter : adapters) {
    auto& device = *devices.emplace_back(std::make_unique<Device>());
    device.adapter = adapter;
    device.verbs.transport_type = adapter.iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
    device.verbs.node_type = adapter.iwarp ? IBV_NODE_RNIC : IBV_NODE_CA;
    std::strncpy(device.verbs.name, adapter.name.c_str(), sizeof device.verbs.name - 1);
    device.gids = {gid_of(adapter, true), gid_of(adapter, false)};
  }
}

Device& Fabric::device(const std::string& name) {
  for (auto& device : devices)
    if (device->adapter.name == name) return *device;
  throw std::runtime_error("model: no adapter " + name);
}

void Fabric::at(Clock::time_point when, std::function<void()> what) { due_.emplace(when, std::move(what)); }

void Fabric::advance() {
  while (!due_.empty() && due_.begin()->first <= Clock::now()) {
    const auto what = std::move(due_.begin()->second);
    due_.erase(due_.begin());
    what();
  }
}

// ---- Queues and events

void Fabric::add(CompletionQueue& cq, const CompletionQueue::Entry& entry) {
  if (cq.entries.size() >= static_cast<size_t>(cq.verbs.cqe)) cq.broken = true;
  if (cq.broken) return;
  cq.entries.push_back(entry);
  if (!cq.armed || !cq.channel) return;
  cq.armed = false;
  cq.channel->events.push_back(&cq.verbs);
  signal(cq.channel->verbs.fd);
}

void Fabric::raise(Device& device, ibv_event_type type, QueuePair* qp) {
  for (Context* context : contexts) {
    if (context->device != &device || (qp && qp->verbs.context != &context->verbs.context)) continue;
    ibv_async_event event{};
    event.event_type = type;
    if (qp)
      event.element.qp = &qp->verbs;
    else
      event.element.port_num = 1;
    context->events.push_back(event);
    signal(context->verbs.context.async_fd);
  }
}

void Fabric::complete(QueuePair& qp, const QueuePair::Request& request, ibv_wc_status status, Clock::time_point when) {
  CompletionQueue::Entry entry;
  entry.serial = request.serial;
  entry.wc.wr_id = request.wr.wr_id;
  entry.wc.status = status;
  entry.wc.qp_num = qp.verbs.qp_num;
  entry.wc.opcode = request.wr.opcode == IBV_WR_SEND        ? IBV_WC_SEND
                    : request.wr.opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ
                                                            : IBV_WC_RDMA_WRITE;
  const auto put = [this, number = qp.verbs.qp_num, epoch = qp.epoch, entry] {
    const auto it = queue_pairs.find(number);
    if (it != queue_pairs.end() && it->second->epoch == epoch)
      add(*owner<CompletionQueue>(it->second->verbs.send_cq), entry);
  };
  if (when <= Clock::now())
    put();
  else
    at(when, put);
}

// ---- Queue pairs

int Fabric::post(QueuePair& qp, ibv_send_wr* requests, ibv_send_wr** bad) {
  const auto now = Clock::now();
  ++qp.device->counts.doorbells;
  for (ibv_send_wr* wr = requests; wr; wr = wr->next) {
    *bad = wr;
    if (qp.device->fatal || std::exchange(qp.device->manners.refuses_a_send, false)) return EIO;
    if (qp.state != IBV_QPS_RTS && qp.state != IBV_QPS_ERR) return EINVAL;
    if (qp.posted - qp.retired >= qp.limits.cap.max_send_wr) return ENOMEM;
    if (static_cast<uint32_t>(wr->num_sge) > qp.limits.cap.max_send_sge) return EINVAL;
    QueuePair::Request request;
    request.wr = *wr;
    request.parts.assign(wr->sg_list, wr->sg_list + wr->num_sge);
    for (const ibv_sge& part : request.parts) request.bytes += part.length;
    if (wr->send_flags & IBV_SEND_INLINE) {
      if (request.bytes > qp.limits.cap.max_inline_data) return ENOMEM;
      for (const ibv_sge& part : request.parts)
        request.inline_bytes.append(reinterpret_cast<const char*>(part.addr), part.length);
    }
    request.serial = qp.posted++;
    if (qp.state == IBV_QPS_ERR) {
      if (!qp.device->manners.is_dead)
        complete(qp, request, IBV_WC_WR_FLUSH_ERR, now + qp.device->manners.late);
      continue;
    }
    const Manners& manners = qp.device->manners;
    auto& line = qp.device->line_is_free;
    line = std::max(line, now);
    if (manners.bytes_per_us)
      line += std::chrono::nanoseconds(1000 * (request.wr.opcode == IBV_WR_RDMA_READ ? 0 : request.bytes) /
                                       manners.bytes_per_us);
    request.arrives = line + manners.latency;
    qp.sends.push_back(std::move(request));
    wake(qp, qp.sends.back().arrives);
  }
  advance();
  return 0;
}

void Fabric::wake(QueuePair& qp, Clock::time_point when) {
  at(when, [this, number = qp.verbs.qp_num, epoch = qp.epoch] { run(number, epoch); });
}

void Fabric::run(uint32_t number, uint32_t epoch) {
  const auto it = queue_pairs.find(number);
  if (it == queue_pairs.end() || it->second->epoch != epoch) return;
  QueuePair& qp = *it->second;
  const auto now = Clock::now();
  while (qp.state == IBV_QPS_RTS && qp.executed < qp.sends.size()) {
    QueuePair::Request& next = qp.sends[qp.executed];
    if (next.arrives > now) break;
    ibv_wc_status status = IBV_WC_SUCCESS;
    const Outcome outcome = execute(qp, next, &status);
    if (outcome == Outcome::kFailed) return fail(qp, status);
    if (outcome == Outcome::kDone) {
      next.acknowledged = now + qp.device->manners.latency;
      wake(qp, next.acknowledged);
      ++qp.executed;
      continue;
    }
    if (outcome == Outcome::kLost && !retry(qp)) return;
    next.arrives = now + (outcome == Outcome::kLost ? std::chrono::nanoseconds(4096ull << qp.timeout)
                                                    : std::chrono::nanoseconds(kNotReadyDelay));
    wake(qp, next.arrives);
    break;
  }
  while (qp.state == IBV_QPS_RTS && qp.executed && qp.sends.front().acknowledged <= now) {
    QueuePair::Request& done = qp.sends.front();
    if (!way(qp)) {  // the acknowledgement is lost, too
      if (!retry(qp)) return;
      done.acknowledged = now + std::chrono::nanoseconds(4096ull << qp.timeout);
      return wake(qp, done.acknowledged);
    }
    qp.tries = 0;
    if (done.wr.send_flags & IBV_SEND_SIGNALED || qp.limits.sq_sig_all) complete(qp, done, IBV_WC_SUCCESS, now);
    qp.sends.pop_front();
    --qp.executed;
  }
}

// False: that was the last try.
bool Fabric::retry(QueuePair& qp) {
  if (qp.tries++ < qp.retries) return true;
  fail(qp, IBV_WC_RETRY_EXC_ERR);
  return false;
}

void Fabric::fail(QueuePair& qp, ibv_wc_status status) {
  complete(qp, qp.sends.front(), status, Clock::now());
  qp.sends.pop_front();
  to_error(qp);
}

void Fabric::to_error(QueuePair& qp) {
  if (qp.state == IBV_QPS_ERR) return;
  qp.state = IBV_QPS_ERR;
  const Manners& manners = qp.device->manners;
  if (manners.is_dead || qp.device->fatal) return;
  const auto when = Clock::now() + manners.late;
  auto* receives = qp.verbs.srq ? owner<SharedReceives>(qp.verbs.srq) : nullptr;
  for (uint32_t i = 0; receives && i < manners.takes_receives && !receives->requests.empty(); ++i) {
    CompletionQueue::Entry entry;
    entry.receive = true;
    entry.wc.wr_id = receives->requests.front().id;
    entry.wc.status = IBV_WC_WR_FLUSH_ERR;
    entry.wc.qp_num = qp.verbs.qp_num;
    receives->requests.pop_front();
    qp.held.push_back(entry);
  }
  for (const QueuePair::Request& request : qp.sends) complete(qp, request, IBV_WC_WR_FLUSH_ERR, when);
  qp.sends.clear();
  qp.executed = 0;
  const auto last = Clock::now() + std::max(manners.late, manners.receives_late);
  at(last, [this, number = qp.verbs.qp_num, epoch = qp.epoch] {
    const auto it = queue_pairs.find(number);
    if (it == queue_pairs.end() || it->second->epoch != epoch) return;
    QueuePair& stopped = *it->second;
    for (const auto& entry : stopped.held) add(*owner<CompletionQueue>(stopped.verbs.recv_cq), entry);
    stopped.held.clear();
    if (stopped.verbs.srq && stopped.device->manners.tells_the_last)
      raise(*stopped.device, IBV_EVENT_QP_LAST_WQE_REACHED, &stopped);
  });
}

void Fabric::discard(QueuePair& qp) {
  ++qp.epoch;
  uint32_t receives = static_cast<uint32_t>(qp.held.size());
  for (auto* verbs : {qp.verbs.send_cq, qp.verbs.recv_cq}) {
    auto& entries = owner<CompletionQueue>(verbs)->entries;
    const auto its = [&](const CompletionQueue::Entry& entry) {
      if (entry.wc.qp_num != qp.verbs.qp_num) return false;
      receives += entry.receive;
      return true;
    };
    entries.erase(std::remove_if(entries.begin(), entries.end(), its), entries.end());
  }
  if (qp.verbs.srq) owner<SharedReceives>(qp.verbs.srq)->occupied -= receives;
  qp.held.clear();
  qp.sends.clear();
  qp.executed = 0;
  qp.retired = qp.posted;
}

int Fabric::modify(QueuePair& qp, const ibv_qp_attr& attr, int mask) {
  if (qp.device->fatal) return EIO;
  switch (attr.qp_state) {
    case IBV_QPS_RESET:
      discard(qp);
      break;
    case IBV_QPS_INIT:
      if (attr.pkey_index != 0 || attr.port_num != 1) return EINVAL;
      qp.access = attr.qp_access_flags;
      break;
    case IBV_QPS_RTR: {
      const ibv_ah_attr& to = attr.ah_attr;
      const Adapter& own = qp.device->adapter;
      if (qp.state != IBV_QPS_INIT || !(mask & IBV_QP_AV) || (to.is_global && to.grh.sgid_index > 1)) return EINVAL;
      if (!to.is_global && (!own.infiniband || own.grh_required)) return EINVAL;
      qp.address = to;
      qp.peer = attr.dest_qp_num;
      qp.own_gid = qp.device->gids[to.is_global ? to.grh.sgid_index : 1];
      const auto is_there = [&](const auto& device) { return same(device->gids[0], to.grh.dgid) || same(device->gids[1], to.grh.dgid); };
      if (!own.infiniband && std::none_of(devices.begin(), devices.end(), is_there)) return EHOSTUNREACH;
      if (to.is_global && to.grh.flow_label) flow_labels.insert(to.grh.flow_label);
      break;
    }
    case IBV_QPS_RTS:
      if (qp.state != IBV_QPS_RTR) return EINVAL;
      qp.timeout = attr.timeout;
      qp.retries = attr.retry_cnt;
      qp.tries = 0;
      break;
    case IBV_QPS_ERR:
      to_error(qp);
      return 0;
    default:
      return EINVAL;
  }
  qp.state = attr.qp_state;
  return 0;
}

// ---- Requests

// The device that its packets reach now.
Device* Fabric::way(QueuePair& qp) {
  const Device& own = *qp.device;
  if (own.fatal || !own.up || own.manners.loses_everything) return nullptr;
  const bool global = qp.address.is_global;
  if (global && !same(own.gids[qp.address.grh.sgid_index], qp.own_gid)) return nullptr;
  for (auto& device : devices) {
    const bool is_it = global ? same(device->gids[0], qp.address.grh.dgid) || same(device->gids[1], qp.address.grh.dgid)
                              : device->adapter.infiniband && device->adapter.address[3] == qp.address.dlid;
    if (is_it && device->up && !device->fatal) return device.get();
  }
  return nullptr;
}

Region* Fabric::region(uint32_t key, ibv_pd* pd, uint64_t address, uint64_t bytes, int access) {
  const auto it = regions.find(key);
  if (it == regions.end()) return nullptr;
  Region& region = *it->second;
  const bool fits = address >= region.begin && bytes <= region.bytes && address - region.begin <= region.bytes - bytes;
  return region.verbs.pd == pd && fits && (region.access & access) == access ? &region : nullptr;
}

bool Fabric::gather(QueuePair& qp, const QueuePair::Request& request, std::string* bytes) {
  if (request.wr.send_flags & IBV_SEND_INLINE) return *bytes = request.inline_bytes, true;
  for (const ibv_sge& part : request.parts) {
    Region* from = region(part.lkey, qp.verbs.pd, part.addr, part.length, 0);
    if (!from) return false;
    settle_writes(*from);
    bytes->append(from->memory + (part.addr - from->begin), part.length);
  }
  return true;
}

void Fabric::write(Region& to, uint64_t address, std::string_view bytes) {
  const uint64_t offset = address - to.begin;
  if (!to.on_device) {
    std::memcpy(to.memory + offset, bytes.data(), bytes.size());
    return;
  }
  to.late_writes.emplace_back(offset, bytes);
  at(Clock::now() + kDeviceWriteDelay, [this, key = to.verbs.lkey] {
    if (const auto it = regions.find(key); it != regions.end()) settle_writes(*it->second);
  });
}

bool Fabric::scatter(ibv_pd* pd, std::span<const ibv_sge> parts, std::string_view bytes) {
  for (const ibv_sge& part : parts) {
    const std::string_view piece = bytes.substr(0, part.length);
    if (piece.empty()) return true;
    Region* to = region(part.lkey, pd, part.addr, piece.size(), IBV_ACCESS_LOCAL_WRITE);
    if (!to) return false;
    write(*to, part.addr, piece);
    bytes.remove_prefix(piece.size());
  }
  return bytes.empty();
}

Fabric::Outcome Fabric::execute(QueuePair& qp, QueuePair::Request& request, ibv_wc_status* status) {
  Device* const there = way(qp);
  if (!there) return Outcome::kLost;
  const auto it = queue_pairs.find(qp.peer);
  if (it == queue_pairs.end() || it->second->device != there || it->second->peer != qp.verbs.qp_num) return Outcome::kLost;
  QueuePair& peer = *it->second;
  if (peer.state != IBV_QPS_RTR && peer.state != IBV_QPS_RTS) return Outcome::kLost;
  const auto refuse = [&](ibv_wc_status why) {
    *status = why;
    return Outcome::kFailed;
  };
  const auto& rdma = request.wr.wr.rdma;
  if (request.wr.opcode == IBV_WR_RDMA_READ) {
    Region* from = region(rdma.rkey, peer.verbs.pd, rdma.remote_addr, request.bytes, IBV_ACCESS_REMOTE_READ);
    if (!from || !(peer.access & IBV_ACCESS_REMOTE_READ)) return refuse(IBV_WC_REM_ACCESS_ERR);
    settle_writes(*from);
    const std::string_view bytes(from->memory + (rdma.remote_addr - from->begin), request.bytes);
    if (!scatter(qp.verbs.pd, request.parts, bytes)) return refuse(IBV_WC_LOC_PROT_ERR);
    ++qp.device->counts.reads;
    return Outcome::kDone;
  }
  std::string bytes;
  if (!gather(qp, request, &bytes)) return refuse(IBV_WC_LOC_PROT_ERR);
  const bool writes = request.wr.opcode != IBV_WR_SEND, notifies = request.wr.opcode != IBV_WR_RDMA_WRITE;
  auto* receives = peer.verbs.srq ? owner<SharedReceives>(peer.verbs.srq) : nullptr;
  if (notifies && (!receives || receives->requests.empty())) {
    ++there->counts.not_ready;
    return Outcome::kNotReady;
  }
  if (writes && !bytes.empty()) {
    Region* to = region(rdma.rkey, peer.verbs.pd, rdma.remote_addr, bytes.size(), IBV_ACCESS_REMOTE_WRITE);
    if (!to || !(peer.access & IBV_ACCESS_REMOTE_WRITE)) {
      raise(*there, IBV_EVENT_QP_ACCESS_ERR, &peer);
      to_error(peer);
      return refuse(IBV_WC_REM_ACCESS_ERR);
    }
    write(*to, rdma.remote_addr, bytes);
  }
  if (notifies) {
    const SharedReceives::Request taken = receives->requests.front();
    if (!writes && !scatter(peer.verbs.pd, std::span(&taken.part, 1), bytes)) return refuse(IBV_WC_REM_INV_REQ_ERR);
    receives->requests.pop_front();
    receive(peer, request, taken);
  }
  Counts& counts = qp.device->counts;
  counts.packets += 1 + bytes.size() / 1024;
  counts.bytes += bytes.size();
  counts.traffic_class = qp.address.grh.traffic_class;
  ++counts.sends;
  return Outcome::kDone;
}

void Fabric::receive(QueuePair& qp, const QueuePair::Request& request, const SharedReceives::Request& taken) {
  CompletionQueue::Entry entry;
  entry.receive = true;
  entry.wc.wr_id = taken.id;
  entry.wc.status = IBV_WC_SUCCESS;
  entry.wc.qp_num = qp.verbs.qp_num;
  entry.wc.byte_len = static_cast<uint32_t>(request.bytes);
  entry.wc.opcode = request.wr.opcode == IBV_WR_SEND ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
  if (entry.wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    entry.wc.imm_data = request.wr.imm_data;
    entry.wc.wc_flags = IBV_WC_WITH_IMM;
  }
  if (qp.device->manners.holds_receives)
    qp.held.push_back(entry);
  else
    add(*owner<CompletionQueue>(qp.verbs.recv_cq), entry);
}

// ---- What tests do

void install(const std::vector<Adapter>& adapters) {
  Fabric& fabric = Fabric::get();
  const std::lock_guard lock(fabric.mutex);
  fabric.install(adapters);
}
std::vector<Adapter> two_cables() {
  std::vector<Adapter> adapters(4);
  for (uint8_t i = 0; i < 4; ++i) {
    adapters[i].name = "rxe" + std::to_string(i);
    adapters[i].address = {10, static_cast<uint8_t>(1 + i / 2), 0, static_cast<uint8_t>(1 + i % 2)};
  }
  return adapters;
}
void change(const std::string& adapter, const std::function<void(Manners&)>& change) {
  Fabric& fabric = Fabric::get();
  const std::lock_guard lock(fabric.mutex);
  change(fabric.device(adapter).manners);
}
void set_cable(int cable, bool up) {
  Fabric& fabric = Fabric::get();
  const std::lock_guard lock(fabric.mutex);
  for (const int end : {2 * cable, 2 * cable + 1}) {
    Device& device = *fabric.devices.at(static_cast<size_t>(end));
    if (std::exchange(device.up, up) != up) fabric.raise(device, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
  }
}
void set_address(const std::string& adapter, Address address) {
  Fabric& fabric = Fabric::get();
  const std::lock_guard lock(fabric.mutex);
  Device& device = fabric.device(adapter);
  device.adapter.address = address;
  device.gids = {gid_of(device.adapter, true), gid_of(device.adapter, false)};
  fabric.raise(device, device.adapter.infiniband ? IBV_EVENT_LID_CHANGE : IBV_EVENT_GID_CHANGE);
}
void set_fatal(const std::string& adapter) {
  Fabric& fabric = Fabric::get();
  const std::lock_guard lock(fabric.mutex);
  Device& device = fabric.device(adapter);
  device.fatal = true;
  fabric.raise(device, IBV_EVENT_DEVICE_FATAL);
}
void fail_a_queue_pair(const std::string& adapter) {
  Fabric& fabric = Fabric::get();
  const std::lock_guard lock(fabric.mutex);
  for (auto& [number, qp] : fabric.queue_pairs) {
    if (qp->device->adapter.name != adapter || qp->state != IBV_QPS_RTS) continue;
    fabric.raise(*qp->device, IBV_EVENT_QP_FATAL, qp);
    return fabric.to_error(*qp);
  }
  throw std::runtime_error("model: " + adapter + " has no connected queue pair");
}
Counts counts(const std::string& adapter) {
  Fabric& fabric = Fabric::get();
  const std::lock_guard lock(fabric.mutex);
  return fabric.device(adapter).counts;
}
size_t live_queue_pairs() {
  Fabric& fabric = Fabric::get();
  const std::lock_guard lock(fabric.mutex);
  return fabric.queue_pairs.size();
}
size_t flow_labels() {
  Fabric& fabric = Fabric::get();
  const std::lock_guard lock(fabric.mutex);
  return fabric.flow_labels.size();
}
bool fork_is_safe() { return Fabric::get().fork_is_safe; }

}  // namespace tutti_test::model
