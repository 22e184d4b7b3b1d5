// SPDX-License-Identifier: Apache-2.0
//
// Opening the channels that a plan for streams needs. Two ranks of one host settle each channel between themselves: its
// sender offers slots in its device memory, or says why not; its receiver maps them and says so, or why not. Where one
// of them cannot, and between hosts, bytes are staged (staging_slots.hpp), and the log says why. How fragments are
// carried changes nothing else: all channels have the same slots.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "choose/topology.hpp"
#include "stream/mapped_channel.hpp"
#include "stream/memory_exchange.hpp"
#include "stream/stream_plan.hpp"

namespace tutti::core {

using ChannelWay = std::tuple<uint32_t, uint32_t, bool>;  // peer, lane, outgoing
using Channels = std::map<ChannelWay, std::unique_ptr<StreamChannel>>;
// What peers have said of channels that this rank has not come to yet.
using EarlyNotices = std::list<MemoryExchange::Received>;

class ChannelOpening {
 public:
  struct Place {
    DeviceTables tables;
    uint32_t device = 0;
    uint32_t rank = 0;
    uint32_t first_lane = 0;  // of the transport
    std::vector<Link>* links = nullptr;
    const Topology* topology = nullptr;
    MemoryExchange* exchange = nullptr;  // nullptr: everything is staged
    EarlyNotices* early = nullptr;
    bool in_host = false;                   // staged bytes go through host memory
    std::set<std::string>* told = nullptr;  // why staged bytes go through host memory, as far as the log has it
  };
  // Nothing of this rank is pending on the device. Adds to `channels` what `traffic` needs and is missing. Throws
  // Failure.
  ChannelOpening(Place place, const std::vector<StreamTraffic>& traffic, Channels* channels);
  ChannelOpening(const ChannelOpening&) = delete;
  ChannelOpening& operator=(const ChannelOpening&) = delete;
  // What a peer may have mapped and has not answered goes to `channels` too: it is released when it may be.
  ~ChannelOpening();
  // Goes on; true when all are there. Throws Failure.
  bool advance();

 private:
  struct Letter {
    uint32_t to;
    ChannelNotice notice;
    MappedChannel::Offer offer;
  };
  void stage(const ChannelWay& way, const std::string& why);
  void offer(const ChannelWay& way);
  bool accept(const ChannelWay& way);
  bool conclude(const ChannelWay& way);
  std::optional<MemoryExchange::Received> heard(uint32_t kind, const ChannelWay& way);

  Place place_;
  Channels* channels_;
  std::list<Letter> letters_;                                     // not sent yet
  std::vector<ChannelWay> expected_;                              // whose sender has to make an offer
  std::map<ChannelWay, std::unique_ptr<MappedChannel>> offered_;  // whose receiver has to answer
};

}  // namespace tutti::core
