// SPDX-License-Identifier: Apache-2.0
//
// Files as strangers write them, in both formats: read or refused with their place, and what the plugin takes is proved
// by the core as well.
#include <tutti/schedule.h>

#include <bit>
#include <string>
#include <tutti/sdk/plugin.hpp>

#include "../../src/files.hpp"
#include "fuzz_input.hpp"

namespace {

using namespace tutti;

constexpr uint32_t most_ranks = 6;

void check(const tutti_algorithm& algorithm) {
  Problem problem;
  problem.collective = static_cast<uint32_t>(std::countr_zero(algorithm.collectives));
  for (problem.nranks = 1; problem.nranks <= most_ranks; ++problem.nranks)
    for (problem.root = 0; problem.root < (has_root(problem.collective) ? problem.nranks : 1); ++problem.root) {
      const tutti_query query = make_query(problem, 0);
      if (algorithm.supports(algorithm.self, &query) != TUTTI_OK) continue;
      const Proof proof = verify_algorithm(algorithm, problem);
      FUZZ_CHECK(proof.ok());
      return;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  try {
    check(*plans::import_plan("plan", std::string(reinterpret_cast<const char*>(data), bytes)));
  } catch (const sdk::Error& error) {
    FUZZ_CHECK(error.status() == TUTTI_INVALID_ARGUMENT && std::string(error.what()).starts_with("plan:"));
  }
  return 0;
}
