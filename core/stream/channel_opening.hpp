// SPDX-License-Identifier: Apache-2.0
//
// Opening the channels that a plan for streams needs. Two ranks that have a link with mapped/1 settle each channel
// between themselves: its sender shares slots in its device memory or declines; its receiver maps them or says why not.
// Where one of them cannot, and between hosts, bytes are staged (staging_slots.hpp), and the log says why. How
// fragments are carried changes nothing else: all channels have the same slots.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "stream/mapped_channel.hpp"
#include "stream/peer_memory.hpp"
#include "stream/stream_plan.hpp"
#include "topology/topology.hpp"

namespace tutti::core {

using ChannelWay = std::tuple<uint32_t, uint32_t, bool>;  // peer, lane, outgoing
using Channels = std::map<ChannelWay, std::unique_ptr<StreamChannel>>;

class ChannelOpening {
 public:
  // Nothing of this rank is pending on the device. Adds to `channels` what `traffic` needs and is missing. Throws
  // Failure. `told`: why staged bytes go through host memory, as far as the log has it.
  ChannelOpening(const StreamSetup& setup, PeerMemory& memory, const std::vector<StreamTraffic>& traffic,
                 Channels& channels, std::set<std::string>& told);
  ChannelOpening(const ChannelOpening&) = delete;
  ChannelOpening& operator=(const ChannelOpening&) = delete;
  ~ChannelOpening();
  // Goes on; true when all are there. Throws Failure.
  bool advance();

 private:
  // The state of a channel's opening.
  struct Coming {
    std::unique_ptr<MappedChannel> shared;  // outgoing
    PeerRegion slots;                       // incoming
    // Why the channel is to be staged, once its link is connected, which settles its transport. "": nobody expected
    // anything else.
    std::optional<std::string> staged;
  };
  void stage(const ChannelWay& way, const std::string& why);
  bool settle(const ChannelWay& way, Coming& coming);
  bool map(const ChannelWay& way, Coming& coming);
  bool offer(const ChannelWay& way, Coming& coming);
  bool accept(const ChannelWay& way, Coming& coming);

  const StreamSetup& setup_;
  PeerMemory& memory_;
  Channels& channels_;
  std::set<std::string>& told_;
  std::map<ChannelWay, Coming> coming_;
};

}  // namespace tutti::core
