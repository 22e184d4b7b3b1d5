// SPDX-License-Identifier: Apache-2.0
//
// Opening the endpoints of a communicator, and what it offers by them.
#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>
#include <string_view>
#include <tutti/sized.hpp>

#include "base/failure.hpp"
#include "bootstrap/control_plane.hpp"
#include "engine/fabric/fabric.hpp"
#include "registry/host.hpp"
#include "registry/plugin_check.hpp"
#include "registry/registry.hpp"

namespace tutti::core {
namespace {

constexpr uint64_t smallest_fragment = 4096, wrapper_reserve = 64;
// Of the flags that the core must understand (docs/abi.md, rule 6).
constexpr uint64_t known_flags = TUTTI_TRANSPORT_NEEDS_FLUSH | TUTTI_TRANSPORT_MARKS;

std::string version_of_transport(const std::string& name) {
  for (const PluginRecord& record : list_plugins())
    if (record.loaded && std::find(record.transports.begin(), record.transports.end(), name) != record.transports.end())
      return record.id + " " + record.version;
  return "?";
}

// The caps of a transport's domain, under so many wrappers. Throws Failure.
tutti_transport_caps caps_of(const tutti_transport* api, tutti_domain* domain, size_t wrappers) {
  const uint64_t least = smallest_fragment - std::min(wrappers * wrapper_reserve, smallest_fragment / 2);
  tutti_transport_caps caps{};
  caps.struct_size = sizeof caps;
  if (const tutti_status able = api->query(domain, &caps); able < 0) throw Failure(able, take_plugin_error());
  if (const SizeVerdict verdict = judge_size(&caps); verdict.status < 0)
    throw Failure(TUTTI_INTERNAL, fmt::format("transport {}: query: {}", api->name, verdict.text));
  if (const uint64_t unknown = caps.flags & UINT32_MAX & ~known_flags; unknown != 0)
    throw Failure(TUTTI_NOT_SUPPORTED,
                  fmt::format("transport {} claims the flags {:#x}, which this Tutti does not know "
                              "and must know: use a newer Tutti, or an older version of its plugin",
                              api->name, unknown));
  if (caps.fragment_bytes < least || caps.receive_depth < 2 || caps.control_bytes < TUTTI_CONTROL_BYTES)
    throw Failure(TUTTI_INTERNAL, fmt::format("transport {} claims fragment_bytes {} (at least {} is required), "
                                              "receive_depth {} (at least 2) and control_bytes {} (at least {})",
                                              api->name, caps.fragment_bytes, least, caps.receive_depth,
                                              caps.control_bytes, TUTTI_CONTROL_BYTES));
  return caps;
}

// The transport's optional interfaces. Throws Failure.
void find_interfaces(Port& port) {
  const tutti_transport* api = port.api;
  const auto* view = static_cast<const tutti_view*>(api->get_interface(api->self, TUTTI_VIEW_ID));
  const auto* wait = static_cast<const tutti_wait_fd*>(api->get_interface(api->self, TUTTI_WAIT_FD_ID));
  const auto* rails = static_cast<const tutti_rails*>(api->get_interface(api->self, TUTTI_RAILS_ID));
  const auto* mapped = static_cast<const tutti_mapped*>(api->get_interface(api->self, TUTTI_MAPPED_ID));
  if (const std::string reason = check_optional(*api, view, wait, rails, mapped); !reason.empty())
    throw Failure(TUTTI_NOT_SUPPORTED, reason);
  port.rails = rails;
  port.mapped = mapped;
  port.view = view;
  port.by_region = view && TUTTI_HAS(tutti_view, view, send_region) && TUTTI_HAS(tutti_view, view, released);
  port.fetches = view && TUTTI_HAS(tutti_view, view, try_receive_into);
  port.marks = port.caps.flags & TUTTI_TRANSPORT_MARKS;
  if (port.marks && view && !(TUTTI_HAS(tutti_view, view, set_mark) && TUTTI_HAS(tutti_view, view, get_mark)))
    throw Failure(TUTTI_INTERNAL, fmt::format("transport {} says that its messages carry marks, but its view has no "
                                              "set_mark or no get_mark",
                                              api->name));
  if (port.by_region) port.all_memory = port.domain->all_memory();
  port.wait_fd = wait;
}

}  // namespace

void Fabric::open(const TransportChoice& choice, const Config& config, ControlPlane& control) {
  config_ = config;
  name_ = config.name;
  rank_ = config.rank;
  control_ = &control;
  const bool has_others = !choice.named || choice.transports.size() > 1;
  for (const tutti_transport* api : choice.transports) {
    const size_t before = ports_.size();
    try {
      open_port(api);
    } catch (const Failure& failure) {
      // Another transport is no cure for a wrong setting or a defect.
      const bool is_defect = failure.status == TUTTI_INVALID_ARGUMENT || failure.status == TUTTI_INTERNAL;
      if (!has_others || is_defect)
        throw Failure(failure.status, fmt::format("transport {} cannot serve here: {}", api->name, failure.text));
      log(failure.status == TUTTI_NOT_SUPPORTED ? TUTTI_LOG_INFO : TUTTI_LOG_WARN, name_,
          fmt::format("rank {}: transport {} is left out: {}", rank_, api->name, failure.text));
      if (ports_.size() > before) ports_.pop_back();
      left_out_.push_back({api->name, failure.text});
    }
  }
}

void Fabric::open_port(const tutti_transport* api) {
  for (const std::string& wrapper : config_.wrappers) api = wrapped(api, wrapper);
  Port& port = ports_.emplace_back();
  port.api = api;
  port.index = static_cast<uint32_t>(ports_.size() - 1);
  port.domain = Domain::of(api, config_.device);
  port.caps = caps_of(api, port.domain->handle(), config_.wrappers.size());
  find_interfaces(port);
  if (!config_.opens_on_use) open_endpoint(port);
}

void Fabric::open_endpoint(Port& port) {
  tutti_endpoint_config endpoint{};
  endpoint.struct_size = sizeof endpoint;
  endpoint.rank = config_.rank;
  endpoint.nranks = config_.nranks;
  endpoint.lanes = config_.lanes;
  endpoint.name = config_.name.c_str();
  endpoint.communicator_id = config_.communicator;
  endpoint.family = config_.family;
  port.pair = std::make_unique<PairMessages>();
  endpoint.pair = port.pair->open(*control_, port.api->name);
  endpoint.address = config_.address.empty() ? nullptr : config_.address.c_str();
  endpoint.timeout_ns = config_.timeout_ns;
  endpoint.traffic_class = config_.traffic_class;
  if (const tutti_status status = port.api->open_endpoint(port.domain->handle(), &endpoint, &port.endpoint); status < 0)
    throw Failure(status, fmt::format("{}: cannot open an endpoint: {}", port.api->name, take_plugin_error()));
  if (port.wait_fd && port.wait_fd->get_fd(port.endpoint, &port.fd) != TUTTI_OK) port.wait_fd = nullptr;
}

std::vector<TransportOffer> Fabric::offers() {
  std::vector<TransportOffer> offers;
  const std::vector<tutti_rail_traffic> used = rails();
  for (const Port& port : ports_) {
    TransportOffer offer;
    offer.name = port.api->name;
    offer.version = version_of_transport(offer.name);
    offer.reach = port.caps.reach;
    if (port.caps.reach == TUTTI_REACH_FABRIC && port.caps.fabric) offer.fabric = port.caps.fabric;
    offer.fragment_bytes = port.caps.fragment_bytes;
    offer.latency_ns = port.caps.latency_ns;
    offer.bandwidth = port.caps.bandwidth;
    offer.maps = port.mapped ? 1 : 0;
    for (const tutti_rail_traffic& rail : used)
      if (offer.name == rail.transport) offer.rails.emplace_back(rail.rail);
    offers.push_back(std::move(offer));
  }
  return offers;
}

}  // namespace tutti::core
