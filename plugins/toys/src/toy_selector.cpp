// SPDX-License-Identifier: Apache-2.0
//
// selector/1: the slowest candidate, by the core's own prediction. Nobody wants that, so a test sees who chose.
#include <tutti/plugin/selector.h>

#include <tutti/sdk/plugin.hpp>

namespace {

tutti_status choose(void*, const tutti_selection* given, uint64_t* index) {
  return tutti::sdk::guard([&] {
    const tutti_selection selection = tutti::sdk::accepted(given);
    const tutti_candidate* slowest = nullptr;
    for (uint64_t i = 0; i < selection.n; ++i) {
      const tutti_candidate& candidate = selection.candidates[i];
      if (!candidate.refused && (!slowest || candidate.predicted_ns >= slowest->predicted_ns)) slowest = &candidate;
    }
    if (!slowest) throw tutti::sdk::Error(TUTTI_NOT_SUPPORTED, "every candidate is refused");
    *index = static_cast<uint64_t>(slowest - selection.candidates);
  });
}

constexpr tutti_selector selector{
    sizeof(tutti_selector), TUTTI_SELECTOR_STAMP, nullptr, "slowest", "the longest predicted time", choose};

}  // namespace

TUTTI_PLUGIN(toy_selector, "toy-selector", "0.1.0", "Tutti", "Apache-2.0", "a sample of selector/1",
             {TUTTI_SELECTOR_ID, &selector});
