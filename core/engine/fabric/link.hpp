// SPDX-License-Identifier: Apache-2.0
//
// A communicator's connections: Port (its endpoint on one transport), Link (one peer over one port), and the two flows
// that move a message's bytes over a lane of a link, fragment by fragment. The executor and point-to-point both stand
// on these.
#pragma once

#include <tutti/plugin/mapped.h>
#include <tutti/plugin/rails.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/fabric/memory.hpp"
#include "engine/fabric/pair_messages.hpp"
#include "engine/fabric/store_choice.hpp"

namespace tutti::core {

class Fabric;

// One transport's endpoint in one communicator. Progress rule: whoever advances the communicator.
struct Port {
  const tutti_transport* api = nullptr;
  const tutti_view* view = nullptr;        // nullptr: transfers are posted
  const tutti_wait_fd* wait_fd = nullptr;  // nullptr: sleeps are bounded
  const tutti_rails* rails = nullptr;      // nullptr: it tells of none
  const tutti_mapped* mapped = nullptr;    // nullptr: ranks do not map each other's memory
  tutti_transport_caps caps{};
  std::shared_ptr<Domain> domain;
  tutti_endpoint* endpoint = nullptr;  // nullptr: not open yet
  int fd = -1;                         // wait_fd's descriptor
  uint32_t index = 0;                  // among the communicator's ports
  bool used = false;                   // this rank connects over it, or something has come
  uint64_t outstanding = 0;            // transfers posted and not yet completed
  bool by_region = false;              // view has send_region
  bool fetches = false;                // view has try_receive_into
  bool marks = false;                  // its messages carry marks
  tutti_region* all_memory = nullptr;  // the registration of the process's memory, for send_region
  std::unique_ptr<PairMessages> pair;  // of the endpoint
  Memory::Lookup memory;

  // The registration of [address, address + bytes) here; without a region where there is none.
  Registration find(const void* address, uint64_t bytes) { return memory.find(*domain, address, bytes); }
};

struct Link {
  Fabric* fabric = nullptr;      // that it belongs to
  Port* port = nullptr;          // until it is connected another transport may come to serve it
  tutti_link* handle = nullptr;  // nullptr until connected
  const tutti_view* view = nullptr;
  uint32_t peer = 0;
  bool is_beyond = false;  // the peer has cores of its own on this host, which this rank may not use
  uint64_t fragment = 0;  // every message is cut here, alike at both ends; a multiple of 64 bytes
  uint64_t sent = 0;      // bytes handed to the transport, and received from it
  uint64_t received = 0;
  StoreChoice stores;     // for messages that belong to no plan
};

// Connects the link on first use (Fabric::connect). False: not yet, to be called again. Throws Failure.
bool connect(Link& link);
bool connect(const std::vector<Link*>& links);

// A flow's bookkeeping that a completion finds by its cookie.
struct alignas(64) Flow {
  Link* link = nullptr;
  uint32_t lane = 0;
  uint32_t pending = 0;    // posted fragments without completion
  uint64_t bytes = 0;      // of the whole message; 0: a signal
  uint64_t handed = 0;     // bytes given to the transport (out), or asked of it (in, posted mode)
  uint64_t completed = 0;  // in: bytes that have arrived
  uint64_t seen = 0;       // `completed` when its owner last looked
  uint32_t mark = 0;       // of each of its messages, where the transport carries marks
  bool signalled = false;  // bytes == 0: the one empty message was handed over / has arrived
  bool incoming = false;
  bool foreign = false;    // with TUTTI_MISMATCH: the message that has come has another mark
  tutti_status status = TUTTI_OK;
  // The ends of parts of the message that are apart in memory; fragments end there, too. nullptr: it is one part.
  const std::vector<uint64_t>* ends = nullptr;

  void open(Link* on, uint32_t on_lane, uint64_t size, uint32_t of_mark,
            const std::vector<uint64_t>* part_ends = nullptr) {
    link = on;
    mark = of_mark;
    foreign = false;
    ends = part_ends;
    lane = on_lane;
    pending = 0;
    bytes = size;
    handed = completed = seen = 0;
    signalled = false;
    status = TUTTI_OK;
  }
  uint64_t fragment_at(uint64_t offset) const {
    const uint64_t left = (ends ? *std::upper_bound(ends->begin(), ends->end(), offset) : bytes) - offset;
    return left < link->fragment ? left : link->fragment;
  }
  bool all_handed() const { return bytes ? handed == bytes : signalled; }
  bool all_arrived() const { return bytes ? completed == bytes : signalled; }
};

// A message's bytes within a registration on the link's port.
struct RegisteredSpan {
  tutti_region* region = nullptr;
  uint64_t offset = 0;
  bool on_device = false;  // no processor can read or write them
};

// An outgoing message.
struct Outflow : Flow {
  uint64_t ticket = 0;  // of the last fragment sent by reference
  bool referenced = false;
  bool streaming = false;  // copies go around the caches
  bool chooses = false;    // instead the link's choice says so

  void open(Link* on, uint32_t on_lane, uint64_t size, uint32_t of_mark = 0, bool around_caches = false,
            const std::vector<uint64_t>* part_ends = nullptr) {
    Flow::open(on, on_lane, size, of_mark, part_ends);
    if (on->view && on->port->marks) on->view->set_mark(on->handle, on_lane, of_mark);
    referenced = chooses = false;
    streaming = around_caches;
  }
  // Hands over whole fragments of the message up to byte `available`. `data` holds it from byte `first` on, and
  // `memory` names that memory where it is registered.
  void advance(const std::byte* data, uint64_t available, RegisteredSpan memory, uint64_t first = 0);
  // The source may be overwritten.
  bool done() {
    if (!all_handed() || pending) return false;
    return !referenced || link->view->released(link->handle, lane) > ticket;
  }
};

// An incoming message that lands in `data`. In view mode messages are looked at with peek/take by whoever wants to
// reduce in place; advance() is the plain copying form of both modes.
struct Inflow : Flow {
  Inflow() { incoming = true; }
  // `data` takes the message's bytes from `first` on, up to `end`. `region` registers it on the link's port, or is
  // nullptr; only posted receives use it.
  void advance(std::byte* data, bool streaming, tutti_region* region = nullptr, uint64_t first = 0,
               uint64_t end = UINT64_MAX);
  void open(Link* on, uint32_t on_lane, uint64_t size, uint32_t of_mark = 0,
            const std::vector<uint64_t>* part_ends = nullptr) {
    Flow::open(on, on_lane, size, of_mark, part_ends);
  }
  // View mode: the next fragment's bytes, or nullptr: not yet. A wrong size or mark sets status. They are at `room`
  // where the transport has fetched them there.
  const std::byte* peek(std::byte* room = nullptr);
  // View mode: done with the fragment that peek showed.
  void take();
  // Posted mode: asks for the next fragment into `data`; false: refused for now.
  bool ask(std::byte* data, uint64_t size, tutti_region* region);
  bool done() const { return all_arrived(); }
};

// Advances a port and applies its transfer completions to their flows. Control messages and lost peers go to the sink.
class PortEvents {
 public:
  virtual void on_control(Port& port, uint32_t peer, const std::byte* data, uint64_t bytes) = 0;
  virtual void on_peer_failed(Port& port, uint32_t peer, const char* reason) = 0;
  virtual void on_port_error(Port& port, tutti_status status, const std::string& reason) = 0;

 protected:
  ~PortEvents() = default;
};
// Returns whether anything happened.
bool progress_port(Port& port, PortEvents& events);

}  // namespace tutti::core
