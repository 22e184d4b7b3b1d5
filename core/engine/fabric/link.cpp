// SPDX-License-Identifier: Apache-2.0
#include "engine/fabric/link.hpp"

#include <tutti/registry.h>

#include "engine/fabric/fabric.hpp"
#include "kernels/kernels.hpp"
#include "registry/host.hpp"

namespace tutti::core {
namespace {

// By reference saves a copy but costs the receiver a walk to memory that is not in its cache.
constexpr uint64_t reference_bytes = 2048;

uint64_t cookie_of(Flow* flow) { return reinterpret_cast<uint64_t>(flow); }

// One transfer. False: refused for now, or failed (status says so).
bool post(Flow& flow, void* data, uint64_t bytes, uint16_t kind, tutti_region* region, bool on_device = false) {
  Port& port = *flow.link->port;
  // At the port's limit a message has one transfer under way at most: so each of them goes on, and none takes all room.
  if (const uint64_t limit = port.caps.max_outstanding; limit && flow.pending && port.outstanding >= limit)
    return false;
  tutti_transfer transfer{};
  transfer.link = flow.link->handle;
  transfer.lane = flow.lane;
  transfer.kind = kind;
  transfer.data = data;
  transfer.bytes = bytes;
  transfer.region = bytes ? region : nullptr;
  transfer.cookie = cookie_of(&flow);
  if (port.marks) transfer.mark = flow.mark;
  const bool inlined = kind == TUTTI_TRANSFER_SEND && bytes <= port.caps.inline_bytes && !(on_device && bytes);
  if (inlined) transfer.flags = TUTTI_TRANSFER_INLINE;
  const tutti_status status = port.api->post(port.endpoint, &transfer);
  if (status < 0) flow.status = status;
  if (status != TUTTI_OK) return false;
  if (!inlined) {
    ++flow.pending;
    ++port.outstanding;
  }
  return true;
}

}  // namespace

bool connect(Link& link) { return link.handle || link.fabric->connect(link); }

bool connect(const std::vector<Link*>& links) {
  bool all = true;
  for (Link* link : links) all &= connect(*link);
  return all;
}

void Outflow::advance(const std::byte* data, uint64_t available, RegisteredSpan memory, uint64_t first) {
  const tutti_view* view = link->view;
  while (!all_handed()) {
    const uint64_t n = fragment_at(handed), at = handed - first;
    if (available - handed < n) return;
    const std::byte* from = data + at;
    if (!view) {
      if (!post(*this, const_cast<std::byte*>(from), n, TUTTI_TRANSFER_SEND, memory.region, memory.on_device)) return;
    } else if (memory.region && link->port->by_region && n >= reference_bytes) {
      const tutti_status sent = view->send_region(link->handle, lane, memory.region, memory.offset + at, n, &ticket);
      if (sent == TUTTI_NOT_SUPPORTED) {
        memory.region = nullptr;
        continue;
      }
      if (sent < 0) status = sent;
      if (sent != TUTTI_OK) return;
      referenced = true;
    } else {
      void* slot = view->try_reserve(link->handle, lane, n);
      if (!slot) return;
      if (n && chooses)
        link->stores.measure(n, [&](bool around_caches) { copy(slot, from, n, around_caches); });
      else if (n)
        copy(slot, from, n, streaming);
      view->commit(link->handle, lane, n);
    }
    handed += n;
    signalled = true;
    link->sent += n;
  }
}

const std::byte* Inflow::peek(std::byte* room) {
  const uint64_t expected = fragment_at(completed);
  uint64_t n = expected;
  const void* data = room && link->port->fetches ? link->view->try_receive_into(link->handle, lane, room, &n)
                                                 : link->view->try_receive(link->handle, lane, &n);
  foreign = data && link->port->marks && link->view->get_mark(link->handle, lane) != mark;
  if (foreign || (data && n != expected)) {
    status = TUTTI_MISMATCH;
    return nullptr;
  }
  return static_cast<const std::byte*>(data);
}

void Inflow::take() {
  const uint64_t n = fragment_at(completed);
  link->view->release(link->handle, lane);
  completed += n;
  handed = completed;
  signalled = true;
  link->received += n;
}

bool Inflow::ask(std::byte* data, uint64_t size, tutti_region* region) {
  if (!post(*this, data, size, TUTTI_TRANSFER_RECV, region)) return false;
  handed += size;
  return true;
}

void Inflow::advance(std::byte* data, bool streaming, tutti_region* region, uint64_t first, uint64_t end) {
  if (!link->view) {
    while (handed < std::min(bytes, end) && ask(data + (handed - first), fragment_at(handed), region)) {
    }
    if (bytes == 0 && !pending && !signalled) ask(data, 0, region);
    return;
  }
  while (!all_arrived() && completed < end) {
    std::byte* const to = data + (completed - first);
    const std::byte* fragment = peek(to);
    if (!fragment) return;
    if (const uint64_t n = fragment_at(completed); n && fragment != to) copy(to, fragment, n, streaming);
    take();
  }
}

bool progress_port(Port& port, PortEvents& events) {
  constexpr uint32_t batch = 32;
  tutti_completion completions[batch];
  uint32_t n = 0;
  const tutti_status status = port.api->progress(port.endpoint, completions, batch, &n);
  if (status < 0) {
    events.on_port_error(port, status, take_plugin_error());
    return true;
  }
  if (n > batch) {
    events.on_port_error(port, TUTTI_INTERNAL, "it reports more completions than it was given room for");
    return true;
  }
  for (uint32_t i = 0; i < n; ++i) {
    const tutti_completion& c = completions[i];
    switch (c.kind) {
      case TUTTI_COMPLETION_TRANSFER: {
        Flow& flow = *reinterpret_cast<Flow*>(c.cookie);
        --flow.pending;
        --port.outstanding;
        if (c.status < 0) {
          if (flow.status == TUTTI_OK) flow.status = c.status;
          flow.foreign |= c.status == TUTTI_MISMATCH && port.marks && c.mark != flow.mark;
        } else if (flow.handed > flow.completed || flow.bytes == 0) {
          // Completions of a lane and kind come in the order of posting, so a count is enough.
          const uint64_t size = flow.bytes ? flow.fragment_at(flow.completed) : 0;
          flow.completed += size;
          flow.signalled = true;
          if (flow.incoming) flow.link->received += size;
          if (flow.incoming && c.bytes != size) flow.status = TUTTI_MISMATCH;
        }
        break;
      }
      case TUTTI_COMPLETION_CONTROL:
        events.on_control(port, c.peer, static_cast<const std::byte*>(c.data), c.bytes);
        break;
      case TUTTI_COMPLETION_PEER_FAILED:
        events.on_peer_failed(port, c.peer, c.data ? static_cast<const char*>(c.data) : "no reason given");
        break;
      default:
        events.on_port_error(port, TUTTI_INTERNAL, "a completion of unknown kind " + std::to_string(c.kind));
    }
  }
  return n != 0;
}

}  // namespace tutti::core
