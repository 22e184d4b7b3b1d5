// SPDX-License-Identifier: Apache-2.0
//
// The faults of deliberately broken plugins: one table, read by the plugin that has them and by the runner that must
// see each of them caught. A mutant is a healthy transport (or algorithm, or entry table) with one fault.
#pragma once

#include <span>

namespace tutti::conformance {

struct Fault {
  const char* name;    // what TUTTI_MUTANT says
  const char* clause;  // the clause that it breaks
  const char* over;    // the plugin that it is put over; "" for the entry table itself
  const char* what;    // in words
};

// By what is broken; each group has its own subject in the contract suite.
std::span<const Fault> transport_faults();
std::span<const Fault> algorithm_faults();
std::span<const Fault> device_faults();
std::span<const Fault> meeting_faults();
std::span<const Fault> rma_faults();
std::span<const Fault> plugin_faults();
std::span<const Fault> nccl_faults();  // of plugins/nccl-net/tests/faulty_network.cpp

}  // namespace tutti::conformance
