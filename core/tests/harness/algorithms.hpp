// SPDX-License-Identifier: Apache-2.0
//
// The calls that algorithms serve.
#pragma once

#include <tutti/schedule.h>

#include <span>
#include <string>

namespace tutti::test {

// Does an algorithm serve ranks of one host? Some want an even number of them, or several hosts.
inline bool serves_one_host(const tutti_algorithm& algorithm, uint32_t collective, uint32_t nranks) {
  Problem problem;
  problem.collective = collective;
  problem.nranks = nranks;
  Schedule schedule;
  std::string error;
  return build_schedule(algorithm, make_query(problem, 0), &schedule, &error) == TUTTI_OK;
}

// Those of the collectives for which the verifier has shown that it `holds`, as a mask.
inline uint64_t shown_for(const tutti_algorithm& algorithm, std::span<const uint32_t> collectives, uint32_t nranks,
                          uint32_t root, bool Proof::*holds) {
  uint64_t mask = 0;
  for (const uint32_t collective : collectives) {
    const Problem problem{.collective = collective, .nranks = nranks, .root = has_root(collective) ? root : 0};
    if ((algorithm.collectives >> collective & 1) && verify_algorithm(algorithm, problem).*holds)
      mask |= uint64_t{1} << collective;
  }
  return mask;
}
// The value of TUTTI_ALGO by which the algorithm serves the collectives of the mask.
inline std::string only(const tutti_algorithm& algorithm, uint64_t mask) {
  std::string text;
  for (uint32_t collective = 0; collective < 64; ++collective)
    if (mask >> collective & 1)
      text += (text.empty() ? "" : ";") + std::string(collective_name(collective)) + ":" + algorithm.name;
  return text;
}

}  // namespace tutti::test
