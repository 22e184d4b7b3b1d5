// SPDX-License-Identifier: Apache-2.0
//
// The transport under test and what a case is told about it. Calls go through test_host's Call, so that each is
// watched.
#pragma once

#include <tutti/plugin/mapped.h>
#include <tutti/plugin/rails.h>
#include <tutti/plugin/transport.h>

#include <mutex>
#include <string>

#include "test_host.hpp"

namespace tutti::conformance::contract {

// The transport as a contract case uses it.
struct Bench {
  std::string path;  // the plugin's file
  std::string name;  // of its transport, algorithm or device; "" for cases of the plugin as a whole
  uint64_t seed = 1;
  double patience = 5;                // seconds without news after which something counts as never to come
  std::string remark;                 // of a case that passes, where it has one
  int outcome_descriptor = -1;        // where a call that does not return is reported; -1: nowhere
  const char* never_blocks = "T-26";  // the clause that it then breaks

  // Loads the plugin at the first call: cases that fork do so before.
  const tutti_plugin_entry_table* entry() {
    if (entry_) return entry_;
    if (outcome_descriptor >= 0) watch_for_blocking(outcome_descriptor, patience + 2, never_blocks);
    return entry_ = load_plugin_under_test(path);
  }
  // The plugin's index-th interface of the kind `id`, or NULL. Loads the plugin first: init is a call of its own, and
  // what get_interface calls of the host belongs to get_interface.
  const void* get_interface(const char* id, uint32_t index) {
    const tutti_plugin_entry_table* table = entry();
    return plain_call("get_interface", true, [&] { return table->get_interface(id, index); });
  }
  // The transport; judged by E-4.
  const tutti_transport* transport();
  // The capabilities, judged by T-1. Throws NotOffered where query says that this machine lacks something.
  const tutti_transport_caps& caps();
  const tutti_view* view();        // throws NotOffered when it has none
  const tutti_wait_fd* wait_fd();  // likewise
  const tutti_mapped* mapped();    // likewise
  const tutti_rails* rails();      // likewise
  bool has_fail_peer() { return TUTTI_HAS(tutti_transport, transport(), fail_peer); }

 private:
  const void* interface(const char* id);
  const tutti_plugin_entry_table* entry_ = nullptr;
  const tutti_transport* transport_ = nullptr;
  tutti_transport_caps caps_{};
};

// A domain for host memory. Throws NotOffered where this machine lacks what the transport needs.
struct OpenDomain {
  explicit OpenDomain(Bench& bench);
  ~OpenDomain();
  OpenDomain(const OpenDomain&) = delete;
  OpenDomain& operator=(const OpenDomain&) = delete;
  tutti_domain* handle = nullptr;

 private:
  const tutti_transport* transport_;
};

// E-4 of one table.
void judge(const tutti_transport* table);
void judge_name(const char* kind, const char* name, const char* summary);
// The table's size, and the stamp of a draft.
template <typename Table>
void judge_table_of(const char* kind, const Table* table, uint32_t stamp = 0) {
  const SizeVerdict verdict = judge_table(table, stamp);
  require(verdict.status == TUTTI_OK, "E-4", "a table of {}: {}", kind, verdict.text);
}

// Held during calls of [control] functions, which the core serialises: ranks of one process may be threads.
std::mutex& control_mutex();

constexpr uint32_t most_tables = 256;  // of one kind in one plugin: more means that no end comes

// The plugin's table of the interface `id` that has the bench's name. Each table up to it is judged: `judge(table)`.
template <typename Table, typename Judge>
const Table* table_under_test(Bench& bench, const char* id, const char* kind, Judge judge) {
  for (uint32_t i = 0; i < most_tables; ++i) {
    const auto* table = static_cast<const Table*>(bench.get_interface(id, i));
    if (!table) break;
    judge(table);
    if (bench.name == table->name) return table;
  }
  throw std::runtime_error(fmt::format("the plugin {} has no {} \"{}\"", bench.path, kind, bench.name));
}

}  // namespace tutti::conformance::contract
