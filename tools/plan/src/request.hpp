// SPDX-License-Identifier: Apache-2.0
//
// A request of the command line, and the operation that it means. A wrong one is a WrongRequest, whose text says what
// was expected.
#pragma once

#include <tutti/schedule.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "drawing.hpp"

namespace tutti::plan {

struct WrongRequest : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Request {
  std::string collective, algorithm, output;
  std::string topology;                                 // a topology file, whose hosts are pretended; "": none
  std::string ranks, hosts, placement = "consecutive";  // as typed: "8" or "1..64", "4,4"; "": not given
  uint32_t root = 0, lanes = 8;
  std::optional<uint32_t> rank;
  bool in_place = false;
  std::string view = "auto", follow;  // of a drawing; "CHUNK" or "CHUNK@RANK", "": none
};

// What a file holds, which messages call the `kind` file. Throws WrongRequest for one that cannot be read or is empty.
std::string text_of_file(const std::string& path, const char* kind);

// The numbers of ranks that a request names.
struct Range {
  uint32_t first, last;
};
Range ranks_of(const Request& request);

// True if it asks for a table: of all collectives, all algorithms or several numbers of ranks.
bool wants_table(const Request& request);

// The collective, or an error that lists all.
uint32_t collective_of(const Request& request);

// Problem::hosts of `--hosts` and `--placement`; empty without.
std::vector<uint32_t> hosts_of(const Request& request);
// Problem::topology of these hosts: the NUMA nodes that `--hosts 2+2,2+2` or the topology file tells; nullptr without.
std::shared_ptr<const tutti_topology> topology_of(const Request& request, const std::vector<uint32_t>& hosts);

// The drawing that a request means.
DrawingOptions drawing_of(const Request& request);

// The one operation that a request which wants no table means.
Problem problem_of(const Request& request);

// The algorithm of that name and its parameters, "tree" and "4" for "tree:4".
std::pair<std::string, std::string> split_algorithm(const std::string& text);

}  // namespace tutti::plan
