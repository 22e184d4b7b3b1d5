// SPDX-License-Identifier: Apache-2.0
//
// The channels of one rank to streams of other processes. Those that a call lacks are opened in it, and stay.
//
// Two ranks that have a link with mapped/1 settle each channel between themselves: its sender shares slots in its
// device memory or declines; its receiver maps them or says why not. Where one of them cannot, and between hosts, bytes
// are staged (staging_slots.hpp), and the log says why. How fragments are carried changes nothing else: all channels
// have the same slots.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "schedule/stream_order.hpp"
#include "stream/device_gate.hpp"
#include "stream/mapped_channel.hpp"
#include "stream/peer_memory.hpp"
#include "stream/stream_comm.hpp"
#include "stream/stream_plan.hpp"
#include "stream/windows.hpp"

namespace tutti::core {

using Channels = std::map<StreamWayKey, std::unique_ptr<StreamChannel>>;

class StreamChannels {
 public:
  StreamChannels(const StreamSetup& setup, PeerMemory& memory, DeviceGate::User& gate)
      : setup_(setup), memory_(memory), gate_(gate) {}
  StreamChannels(const StreamChannels&) = delete;
  StreamChannels& operator=(const StreamChannels&) = delete;

  StreamChannel& of(const StreamTraffic& way) const { return *channels_.at({way.peer, way.lane, way.outgoing}); }
  // A channel of sends and receives.
  StreamChannel& of(uint32_t peer, bool outgoing) const { return *channels_.at({peer, setup_.lanes, outgoing}); }
  // Opens those that are missing; both ends have to come to the call. Throws Failure.
  void open(const std::vector<StreamTraffic>& traffic, StreamComm& comm);
  // The same for sends and receives, both ways to each peer of another process. Adds the carriers of their bytes, each
  // once.
  void open(const std::vector<Transfer>& transfers, std::vector<const char*>& carriers, StreamComm& comm);
  // The channel of messages in windows, which have the lanes behind that of sends and receives; made if need be.
  StreamChannel& open_in_windows(const StreamTraffic& way, const Windows& windows) {
    return windows.open(way, channels_[{way.peer, setup_.lanes + 1 + way.lane, way.outgoing}]);
  }

  // Moves what can be moved; true when something was. Throws Failure when a transport failed.
  bool advance();
  // Has this rank still to send what a stream has put into slots for that operation?
  bool sends(uint64_t operation) const;
  // Has a stream changed a flag since the last call?
  bool moved();
  // Sets every flag that streams may wait for.
  void release_flags();
  // ", at fragment 3 to rank 1 over tcp", for messages.
  std::string where() const;
  // Bytes that no transport counts and that were carried, or are about to be, by carrier and peer.
  std::vector<tutti_link_traffic> traffic() const;

  // The end. Unmaps memory of other ranks; the device has come to its end.
  void unmap();
  bool any_mapped() const;
  bool empty() const { return channels_.empty(); }
  void clear() { channels_.clear(); }

 private:
  bool is_far(const Transfer& transfer) const { return transfer.bytes && !setup_.is_local(transfer.peer); }

  const StreamSetup& setup_;
  PeerMemory& memory_;
  DeviceGate::User& gate_;
  Channels channels_;
  std::set<std::string> logged_;  // why bytes go through host memory
};

}  // namespace tutti::core
