// SPDX-License-Identifier: Apache-2.0
#include "transport_api.hpp"

#include <cstring>
#include <set>

namespace tutti::conformance::contract {
void judge_name(const char* kind, const char* name, const char* summary) {
  require(name && *name, "E-4", "a table of {} has no name", kind);
  // A transport that hosts others is called by its own name and theirs, "nccl:ofi".
  const char* const colon = std::string_view(kind) == "transport" ? std::strchr(name, ':') : nullptr;
  for (const char* c = name; *c; ++c)
    require((c == colon && c != name && c[1]) ||
                (*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '-' || *c == '_', "E-4",
            "the name \"{}\" of a {} is not made of lower-case letters, digits, - and _", name, kind);
  require(summary && *summary, "E-4", "{} {} has no summary", kind, name);
}

void judge(const tutti_transport* t) {
  judge_table_of(TUTTI_TRANSPORT_ID, t);
  judge_name("transport", t->name, t->summary);
  const std::pair<const char*, bool> functions[] = {{"open_domain", t->open_domain},
                                                    {"close_domain", t->close_domain},
                                                    {"query", t->query},
                                                    {"open_endpoint", t->open_endpoint},
                                                    {"close_endpoint", t->close_endpoint},
                                                    {"connect", t->connect},
                                                    {"post", t->post},
                                                    {"progress", t->progress},
                                                    {"send_control", t->send_control},
                                                    {"abort", t->abort},
                                                    {"get_interface", t->get_interface}};
  for (const auto& [name, there] : functions)
    require(there, "E-4", "transport {}: the mandatory function {} is NULL", t->name, name);
  require(!t->register_memory == !t->deregister_memory, "E-4",
          "transport {} has one of register_memory and deregister_memory: both or neither", t->name);
}

const tutti_transport* Bench::transport() {
  if (!transport_)
    transport_ = table_under_test<tutti_transport>(*this, TUTTI_TRANSPORT_ID, "transport",
                                                   [](const tutti_transport* table) { judge(table); });
  return transport_;
}

OpenDomain::OpenDomain(Bench& bench) : transport_(bench.transport()) {
  tutti_domain_config of{};
  of.struct_size = sizeof of;
  const tutti_status status =
      call("open_domain", true, [&] { return transport_->open_domain(transport_->self, &of, &handle); });
  if (status == TUTTI_NOT_SUPPORTED) throw NotOffered{fmt::format("open_domain says: {}", last_error())};
  require(status == TUTTI_OK && handle, "T-3", "open_domain returned {}: {}", status_text(status), last_error());
}
OpenDomain::~OpenDomain() {
  plain_call("close_domain", true, [&] { transport_->close_domain(handle); });
}

const tutti_transport_caps& Bench::caps() {
  if (caps_.struct_size) return caps_;
  const tutti_transport* t = transport();
  const OpenDomain domain(*this);
  tutti_transport_caps c{};
  c.struct_size = sizeof c;
  const tutti_status status = call("query", true, [&] { return t->query(domain.handle, &c); });
  if (status == TUTTI_NOT_SUPPORTED) throw NotOffered{fmt::format("query says: {}", last_error())};
  require(status == TUTTI_OK, "T-1", "query returned {}: {}", status_text(status), last_error());
  require(c.reach == TUTTI_REACH_PROCESS || c.reach == TUTTI_REACH_HOST || c.reach == TUTTI_REACH_FABRIC ||
              c.reach == TUTTI_REACH_NETWORK,
          "T-1", "query: reach is {}", c.reach);
  require(c.fragment_bytes >= 4096, "T-1", "query: fragment_bytes is {}, less than 4096", c.fragment_bytes);
  require(c.control_bytes >= TUTTI_CONTROL_BYTES, "T-1", "query: control_bytes is {}, less than {}", c.control_bytes,
          TUTTI_CONTROL_BYTES);
  require(c.max_outstanding == 0 || c.max_outstanding >= c.receive_depth, "T-1",
          "query: max_outstanding is {}, less than receive_depth {}", c.max_outstanding, c.receive_depth);
  require(c.receive_depth >= 2, "T-1", "query: receive_depth is {}, less than 2", c.receive_depth);
  require(c.inline_bytes <= c.fragment_bytes, "T-1", "query: inline_bytes {} is more than fragment_bytes {}",
          c.inline_bytes, c.fragment_bytes);
  require(c.latency_ns > 0 && c.bandwidth > 0, "T-1",
          "query: latency_ns is {} and bandwidth {}; estimates are more than 0", c.latency_ns, c.bandwidth);
  require((c.flags & 0xffffffffu & ~uint64_t{TUTTI_TRANSPORT_NEEDS_FLUSH | TUTTI_TRANSPORT_MARKS}) == 0, "T-1",
          "query: unknown flags {:#x}", c.flags);
  require(!(c.flags & TUTTI_TRANSPORT_NEEDS_FLUSH) || TUTTI_HAS(tutti_transport, t, flush), "T-1",
          "query sets TUTTI_TRANSPORT_NEEDS_FLUSH, but there is no flush");
  if (!(c.memory_kinds & uint64_t{1} << TUTTI_MEMORY_HOST))
    throw NotOffered{"its memory_kinds lack host memory, by which the contract is tested"};
  return caps_ = c;
}

const void* Bench::interface(const char* id) {
  const tutti_transport* t = transport();  // calls into the plugin itself
  return plain_call("get_interface", true, [&] { return t->get_interface(t->self, id); });
}

const tutti_view* Bench::view() {
  const auto* table = static_cast<const tutti_view*>(interface(TUTTI_VIEW_ID));
  if (!table) throw NotOffered{"it does not offer " TUTTI_VIEW_ID};
  judge_table_of(TUTTI_VIEW_ID, table);
  require(table->try_receive && table->release && table->try_reserve && table->commit, "E-4",
          "view/1: try_receive, release, try_reserve or commit is NULL");
  require(!table->send_region == !table->released, "E-4",
          "view/1 has one of send_region and released: both or neither");
  const bool sets = TUTTI_HAS(tutti_view, table, set_mark), gets = TUTTI_HAS(tutti_view, table, get_mark);
  require(sets == gets && (sets || !(caps().flags & TUTTI_TRANSPORT_MARKS)), "E-4",
          "view/1 has {} set_mark and {} get_mark: both with TUTTI_TRANSPORT_MARKS, else both or neither",
          sets ? "a" : "no", gets ? "a" : "no");
  return table;
}

const tutti_wait_fd* Bench::wait_fd() {
  const auto* table = static_cast<const tutti_wait_fd*>(interface(TUTTI_WAIT_FD_ID));
  if (!table) throw NotOffered{"it does not offer " TUTTI_WAIT_FD_ID};
  judge_table_of(TUTTI_WAIT_FD_ID, table);
  require(table->get_fd && table->arm && table->disarm, "E-4", "wait_fd/1: get_fd, arm or disarm is NULL");
  return table;
}

const tutti_mapped* Bench::mapped() {
  const auto* table = static_cast<const tutti_mapped*>(interface(TUTTI_MAPPED_ID));
  if (!table) throw NotOffered{"it does not offer " TUTTI_MAPPED_ID};
  judge_table_of(TUTTI_MAPPED_ID, table, TUTTI_MAPPED_STAMP);
  require(table->share && table->share_state && table->withdraw && table->open_mapping && table->close_mapping, "E-4",
          "mapped/1: share, share_state, withdraw, open_mapping, close_mapping or decline is NULL");
  return table;
}

const tutti_rails* Bench::rails() {
  const auto* table = static_cast<const tutti_rails*>(interface(TUTTI_RAILS_ID));
  if (!table) throw NotOffered{"it does not offer " TUTTI_RAILS_ID};
  judge_table_of(TUTTI_RAILS_ID, table);
  require(table->of_host, "E-4", "rails/1: of_host is NULL");
  return table;
}

std::mutex& control_mutex() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace tutti::conformance::contract
