// SPDX-License-Identifier: Apache-2.0
//
// The topology: one canonical description of all ranks, gathered when a communicator is made, from which every rank
// computes the same decisions. Nothing in it depends on which rank looks.
#pragma once

#include <tutti/schedule.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::core {

// What a rank offers of one transport.
struct TransportOffer {
  std::string name;
  std::string version;  // of its plugin
  std::string address;
  uint32_t reach = 0;
  uint64_t fragment_bytes = 0;
  uint64_t latency_ns = 0;
  uint64_t bandwidth = 0;
};

struct RankDescription {
  std::string host;  // key
  uint64_t process = 0;
  uint64_t instance = 0;  // a random number of the process: process ids are not unique across containers
  uint32_t cores = 1;     // that the process may use
  std::vector<TransportOffer> transports;
  const TransportOffer* offer(const std::string& name) const;
};

class Topology {
 public:
  Topology() = default;
  explicit Topology(std::vector<RankDescription> ranks);

  uint32_t nranks() const { return static_cast<uint32_t>(ranks_.size()); }
  const RankDescription& rank(uint32_t r) const { return ranks_[r]; }
  const std::vector<uint32_t>& host_of_rank() const { return host_of_rank_; }
  uint32_t hosts() const { return hosts_; }
  bool same_process(uint32_t a, uint32_t b) const;
  uint32_t ranks_on_host_of(uint32_t r) const { return ranks_on_host_[host_of_rank_[r]]; }

  // The transport of a pair: the one of lowest latency that both offer and that reaches. nullptr: none does; `why` says
  // so.
  const TransportOffer* transport_of(uint32_t a, uint32_t b, std::string* why = nullptr) const;
  // Where the pair's messages are cut.
  uint64_t fragment_of(uint32_t a, uint32_t b) const;
  // The smallest cut of all pairs.
  uint64_t smallest_fragment() const;
  LinkCost cost(uint32_t a, uint32_t b) const;
  // Cores for each rank on the most crowded host; at most 1.
  double processors_per_rank() const;
  // A table for people.
  std::string text() const;

 private:
  bool reaches(uint32_t reach, uint32_t a, uint32_t b) const;
  std::vector<RankDescription> ranks_;
  std::vector<uint32_t> host_of_rank_;
  std::vector<uint32_t> ranks_on_host_;
  uint32_t hosts_ = 0;
};

std::string encode(const RankDescription& rank);
// Throws Failure when the bytes are no description.
RankDescription decode_rank(const std::string& bytes, uint32_t rank);

}  // namespace tutti::core
