// SPDX-License-Identifier: Apache-2.0
//
// Choosing the links of a communicator, and connecting them.
#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>
#include <string_view>

#include "base/failure.hpp"
#include "base/wire.hpp"
#include "bootstrap/control_plane.hpp"
#include "engine/fabric/fabric.hpp"
#include "registry/host.hpp"

namespace tutti::core {
namespace {

// One end tells the other that the pair does without a transport.
struct Refusal {
  std::string transport;
  tutti_status status = TUTTI_OK;
  std::string why;

  static void fields(auto& wire, auto& refusal) { wire(refusal.transport, refusal.status, refusal.why); }
};
constexpr size_t most_of_why = 2048;

// May another transport do where one has failed so? A wrong setting, a defect and a lost rank are the same for all.
bool is_refusal(tutti_status status) {
  return status == TUTTI_NO_RESOURCES || status == TUTTI_SYSTEM || status == TUTTI_NOT_SUPPORTED;
}

bool contains(const std::vector<TransportLeftOut>& transports, std::string_view name) {
  return std::ranges::find(transports, name, &TransportLeftOut::name) != transports.end();
}

void require_one_version(const Topology& topology, const TransportOffer& offer, uint32_t a, uint32_t b) {
  const std::string& one = topology.rank(a).offer(offer.name)->version;
  const std::string& other = topology.rank(b).offer(offer.name)->version;
  if (one != other)
    throw Failure(TUTTI_MISMATCH,
                  fmt::format("transport {} is {} on rank {} and {} on rank {}", offer.name, one, a, other, b));
}

// Every rank looks at every kind of pair, so that all come to the same end.
void require_transports(const Topology& topology, const std::string& setting) {
  for (const auto& [a, b] : topology.pairs_of_each_kind()) {
    std::string why;
    const TransportOffer* offer = topology.transport_of(a, b, &why);
    if (!offer)
      throw Failure(TUTTI_NOT_SUPPORTED,
                    why + (setting.empty() ? "" : fmt::format(" (TUTTI_TRANSPORT=\"{}\")", setting)));
    require_one_version(topology, *offer, a, b);
  }
}

}  // namespace

// ---- The choice --------------------------------------------------------------------------------------------

void Fabric::choose_links(const Topology& topology, const std::string& setting) {
  require_transports(topology, setting);
  topology_ = &topology;
  links_.resize(topology.nranks());
  mapped_links_.resize(topology.nranks());
  refused_.resize(topology.nranks());
  for (uint32_t peer = 0; peer < topology.nranks(); ++peer) {
    if (peer == rank_) continue;
    for (Link* link : {&links_[peer], &mapped_links_[peer]}) {
      link->fabric = this;
      link->peer = peer;
      link->is_beyond = topology.have_cores_apart(rank_, peer);
    }
    choose_link(peer);
    choose_mapped_link(peer);
  }
}

Port* Fabric::port_of(std::string_view transport) {
  const auto port = std::ranges::find(ports_, transport, [](const Port& p) { return std::string_view(p.api->name); });
  return port == ports_.end() ? nullptr : &*port;
}

void Fabric::choose_link(uint32_t peer) {
  Port* port = nullptr;
  const TransportOffer* offer = nullptr;
  while (!port) {
    std::string why;
    offer = topology_->transport_of(rank_, peer, &why, refused_[peer]);
    if (!offer) throw Failure(TUTTI_NOT_SUPPORTED, why);
    require_one_version(*topology_, *offer, rank_, peer);
    port = port_of(offer->name);
    if (!port) refuse_absent(peer, offer->name);
  }
  Link& link = links_[peer];
  link.port = port;
  link.view = port->view;
  link.fragment = topology_->fragment_of(rank_, peer, *offer);
  for (tutti_window* window : windows_) register_window(*window, *port, window->staged);
}

void Fabric::choose_mapped_link(uint32_t peer) {
  if (topology_->same_process(rank_, peer)) return;
  Port* port = nullptr;
  while (const TransportOffer* const offer = topology_->mapping_transport_of(rank_, peer, nullptr, refused_[peer])) {
    port = port_of(offer->name);
    if (port) break;
    refuse_absent(peer, offer->name);
  }
  mapped_links_[peer].port = port;
}

// The ranks of a part agreed on their transports when the communicator that it was split from was made: here this one
// was left out since. The peer may have to make its end of the part yet, and is told later.
void Fabric::refuse_absent(uint32_t peer, const std::string& transport) {
  const auto out = std::ranges::find(left_out_, transport, &TransportLeftOut::name);
  const Failure failure(TUTTI_NO_RESOURCES, out == left_out_.end() ? transport + " is not loaded" : out->why);
  note_refusal(peer, transport, failure);
  unreported_.push_back([=, this] { send_refusal(peer, transport, failure); });
}

void Fabric::send_refusals() {
  for (const auto& report : std::exchange(unreported_, {})) report();
}

// ---- Connecting --------------------------------------------------------------------------------------------

bool Fabric::connect(Link& link) {
  send_refusals();
  for (;;) {
    Port& port = *link.port;
    try {
      return connect_over(port, link);
    } catch (const Failure& failure) {
      if (!is_refusal(failure.status) || contains(refused_[link.peer], port.api->name)) throw;
      refuse(link.peer, port.api->name, failure);
      if (!link.port) throw;
    }
  }
}

bool Fabric::connect_over(Port& port, Link& link) {
  if (!port.endpoint) open_endpoint(port);
  port.used = true;
  const tutti_status status = port.api->connect(port.endpoint, link.peer, &link.handle);
  if (status == TUTTI_OK) return true;
  link.handle = nullptr;
  if (status == TUTTI_AGAIN) return false;
  throw Failure(status, fmt::format("{}: connecting to rank {}: {}{}", port.api->name, link.peer, take_plugin_error(),
                                    status == TUTTI_TIMEOUT ? "; connecting may take " + config_.patience : ""));
}

// Throws Failure where no other transport is left.
void Fabric::refuse(uint32_t peer, const std::string& transport, const Failure& failure) {
  send_refusal(peer, transport, failure);
  do_without(peer, transport, failure);
}

void Fabric::send_refusal(uint32_t peer, const std::string& transport, const Failure& failure) {
  const Refusal refusal{transport, failure.status, failure.text.substr(0, most_of_why)};
  control_->send_pair(peer, encode(PairMessageParts{std::string(refusals), encode(refusal)}));
}

void Fabric::note_refusal(uint32_t peer, const std::string& transport, const Failure& failure) {
  refused_[peer].push_back({transport, failure.text});
  log(TUTTI_LOG_INFO, name_,
      fmt::format("rank {} and rank {} do without {}: {}", rank_, peer, transport, failure.text));
}

void Fabric::receive_refusal(uint32_t from, std::string_view bytes) {
  const auto refusal = decode<Refusal>(bytes, fmt::format("rank {}'s refusal of a transport", from).c_str());
  if (!is_refusal(refusal.status) || !topology_->rank(from).offer(refusal.transport))
    throw Failure(
        TUTTI_MISMATCH,
        fmt::format("rank {} refuses transport \"{}\" with status {}: expected one that it offers, and {}, {} "
                    "or {}; do all ranks run the same version of Tutti?",
                    from, refusal.transport, refusal.status, int{TUTTI_NO_RESOURCES}, int{TUTTI_SYSTEM},
                    int{TUTTI_NOT_SUPPORTED}));
  if (!contains(refused_[from], refusal.transport))
    do_without(from, refusal.transport, Failure(refusal.status, fmt::format("rank {}: {}", from, refusal.why)));
}

// Throws Failure.
void Fabric::do_without(uint32_t peer, const std::string& transport, const Failure& failure) {
  note_refusal(peer, transport, failure);
  const Port* const port = port_of(transport);
  const Link &link = links_[peer], &mapped = mapped_links_[peer];
  const bool carries = port && link.port == port, maps = port && mapped.port == port;
  if ((carries && link.handle) || (maps && mapped.handle))
    throw Failure(
        TUTTI_INTERNAL,
        fmt::format("rank {} cannot connect with this rank over {}, but the endpoint here has reported that they are "
                    "connected: the plugin breaks its contract: {}",
                    peer, transport, failure.text));
  if (maps) choose_mapped_link(peer);
  if (!carries) return;
  const std::vector<TransportLeftOut>& refused = refused_[peer];
  if (!topology_->transport_of(rank_, peer, nullptr, refused)) {
    std::string others;
    for (auto other = refused.rbegin() + 1; other != refused.rend(); ++other)
      others += fmt::format("; before, {} was refused: {}", other->name, other->why);
    throw Failure(failure.status, failure.text + others);
  }
  choose_link(peer);
}

std::string Fabric::refusals_text() const {
  std::string text;
  for (uint32_t peer = 0; peer < refused_.size(); ++peer)
    for (const TransportLeftOut& one : refused_[peer])
      text += fmt::format("  {} - {}: {} serves, {} was refused: {}\n", std::min(rank_, peer), std::max(rank_, peer),
                          links_[peer].port->api->name, one.name, one.why);
  return text;
}

// ---- Pair messages -----------------------------------------------------------------------------------------

bool Fabric::deliver_pair_messages(const LeavingHandler& on_leaving) {
  send_refusals();
  if (!control_ || !control_->has_pair_messages()) return false;
  const std::vector<PairMessage> messages = control_->take_pair_messages();
  for (const PairMessage& message : messages) {
    const auto [kind, bytes] = split_pair_message(message.from, message.bytes);
    if (kind == words_of_leaving) {
      on_leaving(message.from, bytes);
    } else if (kind == refusals) {
      receive_refusal(message.from, bytes);
    } else if (Port* const port = port_of(kind); port && TUTTI_HAS(tutti_transport, port->api, receive_pair)) {
      receive_pair(*port, message.from, bytes);
    } else if (port || !contains(left_out_, kind)) {  // the other rank has been told, or will be
      throw Failure(TUTTI_MISMATCH,
                    fmt::format("rank {} sent a pair message for transport \"{}\", which this rank {}", message.from,
                                kind, port ? "has in a version without them" : "does not use"));
    }
  }
  return !messages.empty();
}

void Fabric::receive_pair(Port& port, uint32_t from, std::string_view bytes) try {
  if (!port.endpoint) open_endpoint(port);
  port.used = true;
  if (const tutti_status status = port.api->receive_pair(port.endpoint, from, bytes.data(), bytes.size()); status < 0)
    throw Failure(status, fmt::format("{}: connecting with rank {}: {}", port.api->name, from, take_plugin_error()));
} catch (const Failure& failure) {
  const auto is_connected = [&port](const Link& link) { return link.port == &port && link.handle; };
  if (!is_refusal(failure.status) || is_connected(links_[from]) || is_connected(mapped_links_[from])) throw;
  if (!contains(refused_[from], port.api->name)) refuse(from, port.api->name, failure);
}

}  // namespace tutti::core
