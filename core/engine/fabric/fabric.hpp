// SPDX-License-Identifier: Apache-2.0
//
// The fabric of one communicator: an endpoint (port) for each transport, a link to each peer, and what is done with all
// of them at once: connecting, advancing, sleeping, ending, counting bytes.
//
// A link connects on first use. Where its transport cannot, at either end and for a reason that another one need not
// share, the pair does without that transport from then on: the end that has found it tells the other one, and both
// come to the same next transport by themselves. Other ranks have no part in it, and choose algorithms as before.
//
// Threads: whoever holds the communicator's engine, one at a time.
#pragma once

#include <poll.h>
#include <tutti/tutti.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <memory_resource>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/fabric/link.hpp"
#include "engine/fabric/transport_choice.hpp"
#include "engine/fabric/window.hpp"
#include "topology/topology.hpp"

namespace tutti::core {

class ControlPlane;
struct Failure;

// Ports to be advanced. A poll of a port may be a system call, so most polls leave out those that nothing comes over.
enum class Ports {
  busy,  // with transfers under way
  used,  // and those over which this rank connects, or something has come before
  all    // and those over which a peer may connect
};

class Fabric {
 public:
  // The settings of all endpoints; equal on all ranks except `rank` and `address`.
  struct Config {
    uint32_t rank = 0, nranks = 1;
    uint32_t lanes = 0;  // of each link
    std::string name;    // of the communicator, for messages
    uint64_t communicator = 0;
    uint64_t family = 0;  // of the endpoints; not 0
    DeviceMemory device;      // that the communicator is bound to
    std::string address;      // to bind to; "": the transport chooses
    uint64_t timeout_ns = 0;  // of connecting
    std::string patience;     // the same, and what has set it, for messages
    uint32_t traffic_class = 0;
    std::vector<std::string> wrappers = {};  // plugins with wrapper/1, the innermost first
    // An endpoint opens when a link of its port connects, here or at the other end. It can tell of no rails before.
    bool opens_on_use = false;
  };

  // Opens an endpoint for each transport that can serve here, now or on its first use, and leaves out those that
  // cannot. `control` carries pair messages and outlives the fabric. Throws Failure where a setting of a transport is
  // wrong, a transport breaks its contract, or the user named one transport only and it cannot serve.
  void open(const TransportChoice& choice, const Config& config, ControlPlane& control);
  // This rank's offers to the others, by transport. Throws Failure.
  std::vector<TransportOffer> offers();
  const std::vector<TransportLeftOut>& left_out() const { return left_out_; }
  // Gives each peer the link that the topology, which outlives the fabric, chooses. Throws Failure when a pair has no
  // common transport, or two versions of it; all ranks come to the same end. `setting`: the text of TUTTI_TRANSPORT,
  // for messages.
  void choose_links(const Topology& topology, const std::string& setting);
  // Closes all endpoints. `keep_mapped`: streams may still read memory of peers, or peers' streams this rank's, so the
  // endpoints that have mapped it stay until the process ends, and so do the links. That needs no memory.
  void close(bool keep_mapped = false);

  std::vector<Link>& links() { return links_; }
  Link& link(uint32_t peer) { return links_[peer]; }
  // By peer: the links over which device memory is mapped. No port: the peer is a rank of this process, or none maps
  // it.
  std::vector<Link>& mapped_links() { return mapped_links_; }
  // Connects a link of this fabric, over another transport where the pair is refused its own, and opens the port's
  // endpoint before. False: not yet, to be called again. Throws Failure: of a mapped link that has no port any more
  // where no other transport maps memory.
  bool connect(Link& link);
  // Does this port serve the peer?
  bool serves(const Port& port, uint32_t peer) const {
    return links_[peer].port == &port || mapped_links_[peer].port == &port;
  }
  // The transports that pairs of this rank have been refused, a line each. "": none has.
  std::string refusals_text() const;
  size_t ports() const { return ports_.size(); }

  // Advances these ports, and hands what happened to `events`. True when something did.
  bool progress(Ports which, PortEvents& events);
  // Hands the pair messages that have come to the endpoints of their transports, and words of leaving to `on_leaving`.
  // True when some have. Throws Failure.
  using LeavingHandler = std::function<void(uint32_t from, std::string_view bytes)>;
  bool deliver_pair_messages(const LeavingHandler& on_leaving);
  enum class Armed {
    yes,
    busy,  // there is something to progress already
    never  // an endpoint has no descriptor: it has to be polled
  };
  // Makes the endpoints' descriptors readable as soon as there is something to progress, until disarm(). They are
  // appended to `fds`. nullptr: somebody polls those of an earlier call, and an endpoint that has opened since then
  // counts as busy. Armed endpoints are armed again, and disarmed where one is busy.
  Armed arm(std::pmr::vector<pollfd>* fds);
  // Before the next progress.
  void disarm();

  // Ends everything that is under way, and waits until the ports have given back what they use, at most `limit`.
  void abort(std::chrono::nanoseconds limit, PortEvents& events);
  // The transfers that abort() could not complete, for the error: "; tcp has not given back ..."; "": none.
  std::string not_given_back() const;

  // Registers a window's host memory with every transport that has links, or comes to have some until
  // deregister_window(). Returns why one of them cannot; "": all have.
  std::string register_window(tutti_window& window);
  void deregister_window(tutti_window& window);

  // Bytes by peer, of the links that have carried any.
  std::vector<tutti_link_traffic> traffic() const;
  // The rails of all transports that tell of them. Names stay valid as long as the fabric. Throws Failure.
  std::vector<tutti_rail_traffic> rails();

 private:
  void open_port(const tutti_transport* api);
  void open_endpoint(Port& port);
  Port* port_of(std::string_view transport);  // nullptr: it was left out
  bool connect_over(Port& port, Link& link);
  void receive_pair(Port& port, uint32_t from, std::string_view bytes);
  void receive_refusal(uint32_t from, std::string_view bytes);
  void refuse(uint32_t peer, const std::string& transport, const Failure& failure);
  void send_refusal(uint32_t peer, const std::string& transport, const Failure& failure);
  void note_refusal(uint32_t peer, const std::string& transport, const Failure& failure);
  void do_without(uint32_t peer, const std::string& transport, const Failure& failure);
  void choose_link(uint32_t peer);
  void choose_mapped_link(uint32_t peer);
  void send_refusals();
  void refuse_absent(uint32_t peer, const std::string& transport);
  void register_window(tutti_window& window, Port& port, std::string& why);

  Config config_;
  std::string name_;
  uint32_t rank_ = 0;
  ControlPlane* control_ = nullptr;
  std::deque<Port> ports_;
  bool armed_ = false;
  size_t polled_ = 0;  // endpoints whose descriptors were given to arm()'s caller
  std::vector<TransportLeftOut> left_out_;
  const Topology* topology_ = nullptr;
  std::vector<tutti_window*> windows_;  // registered
  std::vector<Link> links_;  // by peer; this rank's own is unused
  std::vector<Link> mapped_links_;
  // Made beforehand for close().
  struct Remains {
    std::deque<Port> ports;
    std::vector<Link> links, mapped_links;
  };
  std::unique_ptr<Remains> remains_ = std::make_unique<Remains>();
  std::vector<std::vector<TransportLeftOut>> refused_;  // by peer
  std::vector<std::function<void()>> unreported_;  // of those that were found when the links were chosen
  std::set<std::string> rail_names_;  // handed out
};

}  // namespace tutti::core
