// SPDX-License-Identifier: Apache-2.0
//
// The transport under test and what a case is told about it. Calls go through test_host's Call, so that each is
// watched.
#pragma once

#include <tutti/plugin/mapped.h>
#include <tutti/plugin/rails.h>
#include <tutti/plugin/transport.h>

#include <string>

#include "test_host.hpp"

namespace tutti::conformance::contract {

// The transport as a contract case uses it.
struct Bench {
  std::string path;  // the plugin's file
  std::string name;  // of its transport, algorithm or device; "" for cases of the plugin as a whole
  uint64_t seed = 1;
  double patience = 5;                // seconds without news after which something counts as never to come
  int outcome_descriptor = -1;        // where a call that does not return is reported; -1: nowhere
  const char* never_blocks = "T-26";  // the clause that it then breaks

  // Loads the plugin at the first call: cases that fork do so before.
  const tutti_plugin_entry_table* entry() {
    if (entry_) return entry_;
    if (outcome_descriptor >= 0) watch_for_blocking(outcome_descriptor, patience + 2, never_blocks);
    return entry_ = load_plugin_under_test(path);
  }
  // The transport; judged by E-4.
  const tutti_transport* transport();
  // The capabilities, judged by T-1. Throws NotOffered where query says that this machine lacks something.
  const tutti_transport_caps& caps();
  const tutti_view* view();        // throws NotOffered when it has none
  const tutti_wait_fd* wait_fd();  // likewise
  const tutti_mapped* mapped();    // likewise
  const tutti_rails* rails();      // likewise

 private:
  const void* interface(const char* id);
  const tutti_plugin_entry_table* entry_ = nullptr;
  const tutti_transport* transport_ = nullptr;
  tutti_transport_caps caps_{};
};

// E-4 of one table.
void judge(const tutti_transport* table);
void judge_name(const char* kind, const char* name, const char* summary);
template <typename Table>
void judge_stamp(const Table* table, const char* kind, uint32_t stamp) {
  require_size(table, "E-4", kind);
  require(table->stamp == stamp, "E-4", "a table of {} has the draft stamp {:#010x}, expected {:#010x}", kind,
          table->stamp, stamp);
}

constexpr uint32_t most_tables = 256;  // of one kind in one plugin: more means that no end comes

}  // namespace tutti::conformance::contract
