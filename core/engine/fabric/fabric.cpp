// SPDX-License-Identifier: Apache-2.0
#include "engine/fabric/fabric.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <tutti/registry.h>

#include <algorithm>
#include <utility>

#include "base/failure.hpp"
#include "base/graveyard.hpp"
#include "bootstrap/control_plane.hpp"
#include "registry/host.hpp"
#include "registry/plugin_check.hpp"

namespace tutti::core {

void Fabric::close(bool keep_mapped) {
  for (Port& port : ports_)
    if (port.endpoint && !(keep_mapped && port.mapped)) port.api->close_endpoint(port.endpoint);
  if (keep_mapped) {
    remains_->ports.swap(ports_);
    remains_->links.swap(links_);
    remains_->mapped_links.swap(mapped_links_);
    keep_for_ever(std::move(remains_), "streams may still read memory that these endpoints have mapped");
  }
  links_.clear();
  mapped_links_.clear();
  ports_.clear();
}

bool Fabric::progress(Ports which, PortEvents& events) {
  bool moved = false;
  for (Port& port : ports_) {
    const bool due = port.outstanding || which == Ports::all || (which == Ports::used && port.used);
    if (!port.endpoint || !due || !progress_port(port, events)) continue;
    moved = port.used = true;
  }
  return moved;
}

Fabric::Armed Fabric::arm(std::pmr::vector<pollfd>* fds) {
  const auto opened = static_cast<size_t>(std::ranges::count_if(ports_, [](const Port& p) { return p.endpoint; }));
  if (std::ranges::any_of(ports_, [](const Port& p) { return p.endpoint && !p.wait_fd; })) return Armed::never;
  if (!fds && opened != polled_) return Armed::busy;
  for (Port& port : ports_) {
    if (!port.endpoint || port.wait_fd->arm(port.endpoint) == TUTTI_OK) continue;
    const bool all = std::exchange(armed_, false);
    for (Port& other : ports_) {
      if (other.endpoint) other.wait_fd->disarm(other.endpoint);
      if (!all && &other == &port) break;
    }
    return Armed::busy;
  }
  armed_ = true;
  if (!fds) return Armed::yes;
  polled_ = opened;
  for (const Port& port : ports_)
    if (port.endpoint) fds->push_back({port.fd, POLLIN, 0});
  return Armed::yes;
}

void Fabric::disarm() {
  if (!std::exchange(armed_, false)) return;
  for (Port& port : ports_)
    if (port.endpoint && port.wait_fd) port.wait_fd->disarm(port.endpoint);
}

void Fabric::abort(std::chrono::nanoseconds limit, PortEvents& events) {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (Port& port : ports_)
    if (port.endpoint) port.api->abort(port.endpoint);
  for (Port& port : ports_)
    while (port.outstanding && std::chrono::steady_clock::now() < end) {
      const uint64_t before = port.outstanding;
      progress_port(port, events);
      if (port.outstanding == before) sched_yield();
    }
}

std::string Fabric::not_given_back() const {
  std::string text;
  for (const Port& port : ports_)
    if (port.outstanding)
      text += fmt::format("; {} has not given back {} buffers: keep them untouched until the communicator is destroyed",
                          port.api->name, port.outstanding);
  return text;
}

std::vector<tutti_link_traffic> Fabric::traffic() const {
  std::vector<tutti_link_traffic> rows;
  for (const Link& link : links_)
    if (link.sent || link.received) rows.push_back({link.port->api->name, link.peer, 0, link.sent, link.received});
  return rows;
}

std::vector<tutti_rail_traffic> Fabric::rails() {
  struct List {
    std::set<std::string>& names;
    const char* transport;
    std::vector<tutti_rail_traffic> rows;
  } list{rail_names_, nullptr, {}};
  const tutti_rail_sink sink{sizeof sink, 0, &list, [](void* self, const tutti_rail* rail) {
                               auto& to = *static_cast<List*>(self);
                               if (const std::string reason = check_rail(rail); !reason.empty())
                                 return log(TUTTI_LOG_WARN, to.transport, "a rail is left out: " + reason);
                               const char* name = to.names.insert(rail->name).first->c_str();
                               to.rows.push_back({to.transport, name, rail->sent_bytes, rail->received_bytes});
                             }};
  for (const Port& port : ports_) {
    if (!port.endpoint || !port.rails || !TUTTI_HAS(tutti_rails, port.rails, of_endpoint)) continue;
    list.transport = port.api->name;
    if (port.rails->of_endpoint(port.endpoint, &sink) < 0)
      throw Failure(TUTTI_INTERNAL,
                    fmt::format("{}: cannot report its rails: {}", port.api->name, take_plugin_error()));
  }
  return list.rows;
}

}  // namespace tutti::core
