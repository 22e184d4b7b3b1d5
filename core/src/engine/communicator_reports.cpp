// SPDX-License-Identifier: Apache-2.0
//
// What a communicator tells of itself.
#include <fmt/format.h>

#include "bootstrap/failure.hpp"
#include "engine/communicator_hold.hpp"
#include "engine/host.hpp"

namespace tutti::core {

std::vector<tutti_service> Communicator::services() {
  const Hold hold(*this);
  std::vector<tutti_service> rows;
  for (const Service& s : services_)
    if (s.calls)
      rows.push_back(
          {s.collective.c_str(), s.algorithm.c_str(), s.transports.c_str(), s.calls, s.bytes, ticks_to_ns(s.ticks)});
  return rows;
}

std::vector<tutti_link_traffic> Communicator::traffic() {
  const Hold hold(*this);
  std::vector<tutti_link_traffic> rows;
  for (const Link& link : links_)
    if (link.sent || link.received) rows.push_back({link.port->api->name, link.peer, 0, link.sent, link.received});
  if (streams_)
    for (const StreamRunner::Traffic& row : streams_->traffic())
      rows.push_back({row.carrier, row.peer, 0, row.sent, row.received});
  return rows;
}

std::vector<tutti_rail_traffic> Communicator::rails() {
  const Hold hold(*this);
  struct List {
    std::set<std::string>& names;
    const char* transport;
    std::vector<tutti_rail_traffic> rows;
  } list{rail_names_, nullptr, {}};
  const tutti_rail_sink sink{sizeof sink, 0, &list, [](void* self, const tutti_rail* rail) {
                               auto& to = *static_cast<List*>(self);
                               const char* name = to.names.insert(rail->name).first->c_str();
                               to.rows.push_back({to.transport, name, rail->sent_bytes, rail->received_bytes});
                             }};
  for (const Port& port : ports_) {
    if (!port.rails || !TUTTI_HAS(tutti_rails, port.rails, of_endpoint)) continue;
    list.transport = port.api->name;
    if (port.rails->of_endpoint(port.endpoint, &sink) < 0)
      throw Failure(TUTTI_INTERNAL,
                    fmt::format("{}: cannot tell of its rails: {}", port.api->name, take_plugin_error()));
  }
  return list.rows;
}

tutti_plan_facts Communicator::plan_facts(uint32_t collective) {
  const Hold hold(*this);
  const Plan* plan = memo_[collective];
  if (const StreamFacts& on_device = stream_facts_[collective]; !plan && on_device.there) {
    const Service& service = services_[on_device.service];
    return {sizeof(tutti_plan_facts), 0, service.algorithm.c_str(), service.transports.c_str(), on_device.slices,
            on_device.schedule_hash};
  }
  if (!plan) throw Failure(TUTTI_NOT_FOUND, fmt::format("no {} has been called yet", collective_name(collective)));
  const Service& service = services_[plan->service];
  return {sizeof(tutti_plan_facts), 0, service.algorithm.c_str(), service.transports.c_str(), plan->slices,
          plan->schedule_hash};
}

std::string Communicator::explain(uint32_t collective, uint64_t count, uint32_t dtype) {
  const uint32_t element_bytes = dtype_bytes(dtype);
  std::string text =
      fmt::format("{} of {} {} elements ({} bytes a block), {} ranks on {} hosts\n", collective_name(collective), count,
                  dtype_name(dtype), count * element_bytes, nranks_, topology_.hosts());
  text += fmt::format("  {:<14} {:>14} {:>8}  {}\n", "algorithm", "predicted us", "slices", "");
  bool first = true;
  for (const Candidate& c : selector_->candidates(collective, 0, count, element_bytes)) {
    if (c.reason.empty())
      text += fmt::format("  {:<14} {:>14.3f} {:>8}  {}\n", c.algorithm->name, c.seconds * 1e6, c.slices,
                          first ? "chosen: the lowest predicted time" : "");
    else
      text += fmt::format("  {:<14} {:>14} {:>8}  no candidate: {}\n", c.algorithm->name, "-", "-", c.reason);
    first = false;
  }
  return text;
}

}  // namespace tutti::core
