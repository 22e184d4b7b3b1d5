// SPDX-License-Identifier: Apache-2.0
//
// Mutants of rails/1. faults.cpp describes each. They are over a rail of this file's own, put over shm: it is whole
// where TUTTI_MUTANT is "rails".
#include <tutti/plugin/rails.h>

#include "mutant.hpp"

namespace tutti::mutants {
namespace {

bool is(const char* name) { return fault() == name; }

// Counts the bytes of messages: of a SEND when it has been taken, of a RECV when it has completed.
struct Counting : Watching {
  using Watching::Watching;
  uint64_t sent = 0, received = 0;
  bool before(tutti_transfer& t, tutti_status& status) override {
    status = hand_on(t);
    if (status != TUTTI_OK || !is_send(t)) return false;
    sent += t.bytes;
    if (is("rails-count-twice")) sent += t.bytes, reached();
    return false;
  }
  bool told(tutti_completion& record, const tutti_transfer& t) override {
    if (!is_send(t) && record.status == TUTTI_OK) received += t.bytes;
    return true;
  }
};

struct Railed : With<Counting> {
  std::string wrapped() override { return "shm"; }
  bool shows(std::string_view id) override { return id != TUTTI_VIEW_ID; }  // whose messages nobody would count
};

void tell(const tutti_rail_sink* sink, const char* name, uint64_t sent, uint64_t received) {
  static int times = 0;
  const std::string renamed = std::string(name) + "-" + std::to_string(times++);
  const tutti_rail_address address{"bus 7", "", "number", 1};
  tutti_rail rail{sizeof rail, 1, name, "memory", "active", "the only one", 0, -1, 0, &address, 1, sent, received};
  if (is("rails-renamed")) rail.name = renamed.c_str(), reached();
  if (is("rails-without-reason")) rail.why = "", reached();
  sink->rail(sink->self, &rail);
}

tutti_status of_host(void*, const tutti_rail_sink* sink) { return tell(sink, "bus", 0, 0), TUTTI_OK; }

tutti_status of_endpoint(tutti_endpoint* endpoint, const tutti_rail_sink* sink) {
  const auto& e = static_cast<const Counting&>(sdk::from_handle<Endpoint>(endpoint));
  if (is("rails-elsewhere")) reached();
  return tell(sink, is("rails-elsewhere") ? "another-bus" : "bus", e.sent, e.received), TUTTI_OK;
}

constexpr tutti_rails rails{sizeof rails, 0, of_host, of_endpoint};
const void* (*interface_of_shm)(void* self, const char* id);

}  // namespace

const tutti_transport* railed_transport() {
  if (!fault().starts_with("rails")) return nullptr;
  static tutti_transport table = (new Railed())->table();
  if (!interface_of_shm) {
    interface_of_shm = table.get_interface;
    table.get_interface = [](void* self, const char* id) -> const void* {
      return std::strcmp(id, TUTTI_RAILS_ID) == 0 ? &rails : interface_of_shm(self, id);
    };
  }
  return &table;
}

}  // namespace tutti::mutants
