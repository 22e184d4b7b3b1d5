// SPDX-License-Identifier: Apache-2.0
//
// Choosing an algorithm and the number of slices for a shape, from data that is the same on every rank: the topology,
// the schedules of all ranks, and settings that were compared when the communicator was made.
#pragma once

#include <tutti/schedule.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "engine/topology.hpp"

namespace tutti::core {

// TUTTI_ALGO: "all_reduce:ring,tree;all_gather:^bruck".
class AlgorithmFilter {
 public:
  // Throws Failure for a text that names no collective, or an algorithm that does not exist.
  explicit AlgorithmFilter(const std::string& text);
  // "" when it may be used; else why not.
  std::string refuses(uint32_t collective, const std::string& algorithm) const;

 private:
  struct Rule {
    bool denies = false;
    std::set<std::string> names;
    std::string text;
  };
  std::map<uint32_t, Rule> rules_;
};

struct Candidate {
  const tutti_algorithm* algorithm = nullptr;
  uint64_t slices = 1;
  double seconds = 0;
  std::string reason;  // why it is no candidate
};

class Selector {
 public:
  Selector(const Topology& topology, AlgorithmFilter filter, std::vector<const tutti_algorithm*> algorithms,
           uint32_t lanes, uint64_t scratch_limit)
      : topology_(topology),
        filter_(std::move(filter)),
        algorithms_(std::move(algorithms)),
        lanes_(lanes),
        scratch_limit_(scratch_limit) {}

  // The best candidate. Throws Failure naming every reason when there is none.
  Candidate choose(uint32_t collective, uint32_t root, uint64_t count, uint32_t element_bytes);
  // All, best first, refused ones last.
  std::vector<Candidate> candidates(uint32_t collective, uint32_t root, uint64_t count, uint32_t element_bytes) const;
  // In how many slices a schedule runs at a size.
  uint64_t slices_of(const Schedule& schedule, uint64_t count, uint32_t element_bytes) const;
  Problem problem(uint32_t collective, uint32_t root) const;

 private:
  uint64_t most_scratch(const tutti_algorithm& algorithm, const Problem& problem, uint64_t count,
                        uint32_t element_bytes) const;
  Candidate judge(const tutti_algorithm* algorithm, const Problem& problem, uint64_t count,
                  uint32_t element_bytes) const;

  const Topology& topology_;
  AlgorithmFilter filter_;
  std::vector<const tutti_algorithm*> algorithms_;
  uint32_t lanes_;
  uint64_t scratch_limit_;
  // By collective, root and power-of-two size class.
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, const tutti_algorithm*> chosen_;
};

}  // namespace tutti::core
