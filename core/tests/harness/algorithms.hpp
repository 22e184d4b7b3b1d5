// SPDX-License-Identifier: Apache-2.0
//
// Does an algorithm serve ranks of one host? Some want an even number of them, or several hosts.
#pragma once

#include <tutti/schedule.h>

#include <string>

namespace tutti::test {

inline bool serves_one_host(const tutti_algorithm& algorithm, uint32_t collective, uint32_t nranks) {
  Problem problem;
  problem.collective = collective;
  problem.nranks = nranks;
  Schedule schedule;
  std::string error;
  return build_schedule(algorithm, make_query(problem, 0), &schedule, &error) == TUTTI_OK;
}

}  // namespace tutti::test
