// SPDX-License-Identifier: Apache-2.0
//
// Reports of a communicator.
#include <tutti/tutti.h>

#include "api/arguments.hpp"
#include "api/guards.hpp"

using namespace tutti::core;
using namespace tutti::core::api;

extern "C" {

tutti_status tutti_comm_services(const tutti_comm* comm, tutti_service* rows, uint64_t* n) {
  return guarded(comm, [&](Communicator& c) { return copy_rows(c.services(), rows, n); });
}
tutti_status tutti_comm_traffic(const tutti_comm* comm, tutti_link_traffic* rows, uint64_t* n) {
  return guarded(comm, [&](Communicator& c) { return copy_rows(c.traffic(), rows, n); });
}
tutti_status tutti_comm_rails(const tutti_comm* comm, tutti_rail_traffic* rows, uint64_t* n) {
  return guarded(comm, [&](Communicator& c) { return copy_rows(c.rails(), rows, n); });
}
tutti_status tutti_comm_plan(const tutti_comm* comm, uint32_t which, tutti_plan_facts* facts) {
  return guarded(comm, [&](Communicator& c) {
    check_collective("plan", which);
    require("plan", tutti::judge_offer(facts));
    tutti::fill_room(facts, c.plan_facts(which));
  });
}
tutti_status tutti_comm_explain(tutti_comm* comm, uint32_t which, uint64_t count, uint32_t dtype, char* text,
                                uint64_t* bytes) {
  return guarded(comm, [&](Communicator& c) {
    check_collective("explain", which);
    if (which == TUTTI_BARRIER) return copy_text(c.explain(which, 0, TUTTI_UINT8), text, bytes);
    size_of("explain", count, dtype, c.nranks());
    return copy_text(c.explain(which, count, dtype), text, bytes);
  });
}
tutti_status tutti_comm_topology_file(const tutti_comm* comm, char* text, uint64_t* bytes) {
  return guarded(comm, [&](Communicator& c) { return copy_text(c.topology_file(), text, bytes); });
}
tutti_status tutti_comm_topology(const tutti_comm* comm, char* text, uint64_t* bytes) {
  return guarded(comm, [&](Communicator& c) { return copy_text(c.topology_text(), text, bytes); });
}
tutti_status tutti_comm_device(const tutti_comm* comm, char* text, uint64_t* bytes) {
  return guarded(comm, [&](Communicator& c) {
    const DeviceMemory& own = c.device();
    return copy_text(own ? fmt::format("{}:{}", own.tables.memory->name, own.device) : "none", text, bytes);
  });
}

}  // extern "C"
