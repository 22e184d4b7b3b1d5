// SPDX-License-Identifier: Apache-2.0
//
// A topology in a file: all ranks of a job, real or imagined, as a communicator sees them. For tools:
// tutti_comm_topology_file() writes one; tutti-info and tutti-plan read it and plan for ranks that are not running.
// docs/topology.md lists the keys.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#pragma GCC visibility push(default)
namespace tutti {

class TopologyFile {
 public:
  // Reads the file's text. Throws std::runtime_error, which names the key or the ranks, for text that is not such a
  // file and for ranks that no transport connects.
  explicit TopologyFile(const std::string& text);
  TopologyFile(TopologyFile&&) noexcept;
  ~TopologyFile();

  struct Rank {
    std::string host;  // its name
    uint32_t cores = 1;
    int32_t numa = -1;               // -1: not known
    std::string device;              // "cuda 1"; "": none
    std::vector<std::string> rails;  // of all its transports
  };
  struct Link {
    std::string transport;
    double latency = 0;    // seconds
    double bandwidth = 0;  // bytes per second
  };
  uint32_t nranks() const { return static_cast<uint32_t>(host_of_rank().size()); }
  // Dense numbers, in order of first rank.
  const std::vector<uint32_t>& host_of_rank() const;
  Rank rank(uint32_t rank) const;
  // `from` and `to` differ.
  Link link(uint32_t from, uint32_t to) const;
  // The names of all links' transports, ascending.
  std::vector<std::string> transports() const;
  // Bytes per second that the ranks of a host send to others together; 0 with one host.
  double host_bandwidth(uint32_t host) const;
  // The texts of tutti_comm_topology and tutti_comm_explain for a communicator of these ranks, with the settings and
  // the plugins of this process.
  std::string text() const;
  std::string explain(uint32_t collective, uint64_t count, uint32_t dtype) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tutti
#pragma GCC visibility pop
