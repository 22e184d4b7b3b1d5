// SPDX-License-Identifier: Apache-2.0
//
// The topology: one canonical description of all ranks, gathered when a communicator is made, from which every rank
// computes the same decisions. Nothing in it depends on which rank looks.
#pragma once

#include <tutti/schedule.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "topology/rank_description.hpp"

namespace tutti::core {

class Topology {
 public:
  Topology() = default;
  explicit Topology(std::vector<RankDescription> ranks);

  uint32_t nranks() const { return static_cast<uint32_t>(ranks_.size()); }
  const RankDescription& rank(uint32_t r) const { return ranks_[r]; }
  const std::vector<uint32_t>& host_of_rank() const { return host_of_rank_; }
  uint32_t hosts() const { return hosts_; }
  // Dense numbers, in order of first rank.
  const std::vector<uint32_t>& process_of_rank() const { return process_of_rank_; }
  bool same_process(uint32_t a, uint32_t b) const { return process_of_rank_[a] == process_of_rank_[b]; }
  // Is every rank bound to a device? A collective on device memory needs that.
  bool is_on_devices() const;
  // Dense numbers of the devices' hardware, in order of first rank; UINT32_MAX: none, or not known.
  const std::vector<uint32_t>& device_of_rank() const { return device_of_rank_; }
  // Are all other ranks known to be other processes of this rank's host, on other devices?
  bool has_device_to_itself(uint32_t rank) const;
  // How many ranks before r are on its host.
  uint32_t rank_on_its_host(uint32_t r) const {
    return static_cast<uint32_t>(std::count(host_of_rank_.begin(), host_of_rank_.begin() + r, host_of_rank_[r]));
  }
  uint32_t ranks_on_host_of(uint32_t r) const { return ranks_on_host_[host_of_rank_[r]]; }
  // Cores for each of the ranks that have no others than r has; at most 1.
  double processors_of(uint32_t r) const {
    return std::min(1.0, double(ranks_[r].cores) / double(sharers_of_rank_[r]));
  }

  // Are both of one host, and is it known that neither may use a core of the other?
  bool have_cores_apart(uint32_t a, uint32_t b) const {
    const Processors &of_a = ranks_[a].processors, &of_b = ranks_[b].processors;
    return host_of_rank_[a] == host_of_rank_[b] && of_a.any() && of_b.any() && (of_a & of_b).none();
  }

  // The transport of a pair: the one of lowest latency that both offer, that reaches, and that is not among those which
  // the pair has been refused. nullptr: none is; `why` says so.
  const TransportOffer* transport_of(uint32_t a, uint32_t b, std::string* why = nullptr,
                                     const std::vector<TransportLeftOut>& refused = {}) const;
  // The transport over which two ranks of different processes map each other's device memory: of those that have
  // mapped/1 the one of lowest latency that both offer, in the same version, that reaches, and that the pair has not
  // been refused. nullptr: none is; `why` says so.
  const TransportOffer* mapping_transport_of(uint32_t a, uint32_t b, std::string* why = nullptr,
                                             const std::vector<TransportLeftOut>& refused = {}) const;
  // One pair of ranks, the lower first, of each kind that occurs. Pairs of a kind offer the same and are equally near,
  // so the same transport of the same versions connects them, or none. Takes O(nranks) for each different offer, and
  // never looks at all pairs.
  std::vector<std::pair<uint32_t, uint32_t>> pairs_of_each_kind() const;
  // The names of the transports that serve pairs, ascending.
  std::vector<std::string> transports() const;
  // Where the pair's messages are cut, by the transport that serves it, or by another one.
  uint64_t fragment_of(uint32_t a, uint32_t b) const;
  uint64_t fragment_of(uint32_t a, uint32_t b, const TransportOffer& offer) const;
  // The smallest cut of all pairs.
  uint64_t smallest_fragment() const;
  LinkCost cost(uint32_t a, uint32_t b) const;
  // Each host's things that its ranks share: its cores, and the rails to other hosts.
  std::vector<HostCost> host_costs() const;
  // The same between the ranks' streams: they read each other's memory, or bytes are copied to slots, which the
  // transport of the pair carries.
  LinkCost device_cost(uint32_t a, uint32_t b) const;
  // The time that a stream of the slowest of all ranks' devices needs for a command, and for each byte that it moves.
  // Zeros: not known.
  LinkCost command_cost() const;
  // Cores for each rank where they are fewest; at most 1.
  double processors_per_rank() const;
  // A table for people.
  std::string text() const;

 private:
  // Does the transport, which both ranks offer, connect them?
  bool reaches(const std::string& transport, uint32_t a, uint32_t b) const;
  // Why the transport, which the lower rank offers, does not connect them: "shm reaches only ranks of one host".
  std::string why_not(const TransportOffer& offer, uint32_t low, uint32_t high) const;
  std::vector<RankDescription> ranks_;
  std::vector<uint32_t> host_of_rank_;
  std::vector<uint32_t> place_of_rank_;  // dense numbers of hosts' places
  std::vector<uint32_t> ranks_on_host_;
  std::vector<uint32_t> sharers_of_rank_;  // ranks of the host that have no other cores, itself included
  std::vector<uint32_t> device_of_rank_;
  std::vector<uint32_t> process_of_rank_;
  std::vector<uint32_t> offers_of_rank_;  // dense; equal where all that a pair's transport depends on is
  uint32_t hosts_ = 0;
};

}  // namespace tutti::core
