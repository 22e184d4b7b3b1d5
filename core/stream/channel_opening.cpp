// SPDX-License-Identifier: Apache-2.0
#include "stream/channel_opening.hpp"

#include <fmt/format.h>
#include <tutti/tutti.h>

#include <utility>

#include "base/failure.hpp"
#include "registry/host.hpp"

namespace tutti::core {

ChannelOpening::ChannelOpening(const StreamSetup& setup, PeerMemory& memory, const std::vector<StreamTraffic>& traffic,
                               Channels& channels, std::set<std::string>& told)
    : setup_(setup), memory_(memory), channels_(channels), told_(told) {
  for (const StreamTraffic& t : traffic) {
    const ChannelWay way{t.peer, t.lane, t.outgoing};
    if (channels_.contains(way)) continue;
    Coming& coming = coming_[way];
    if (memory_.reaches(t.peer)) continue;
    coming.staged.emplace();
    const auto& host_of = setup_.topology->host_of_rank();
    if (host_of[t.peer] == host_of[setup_.rank] && !setup_.named)
      setup_.topology->mapping_transport_of(setup_.rank, t.peer, &*coming.staged);
  }
}

ChannelOpening::~ChannelOpening() {
  for (auto& [way, coming] : coming_) memory_.take_back({coming.slots}, nullptr);
}

bool ChannelOpening::advance() {
  for (auto at = coming_.begin(); at != coming_.end();)
    at = settle(at->first, at->second) ? coming_.erase(at) : std::next(at);
  return coming_.empty();
}

void ChannelOpening::stage(const ChannelWay& way, const std::string& why) {
  const auto [peer, lane, outgoing] = way;
  if (!why.empty())
    log(TUTTI_LOG_WARN, setup_.device.tables.memory->name,
        fmt::format("rank {}: lane {} {} rank {} is not mapped: {}", setup_.rank, lane, outgoing ? "to" : "from", peer,
                    why));
  Link* link = &(*setup_.links)[peer];
  auto channel = std::make_unique<StagedChannel>(setup_.device.tables, setup_.device.device, link,
                                                 setup_.first_lane + lane, outgoing, setup_.in_host);
  if (const std::string& reason = channel->why_in_host(); !reason.empty() && told_.insert(reason).second)
    log(TUTTI_LOG_INFO, setup_.device.tables.memory->name,
        fmt::format("rank {}: what {} carries goes through host memory: {}", setup_.rank, link->port->api->name,
                    reason));
  channels_[way] = std::move(channel);
}

// Is the channel there? A rank that cannot have it mapped has told its peer, and both stage it.
bool ChannelOpening::settle(const ChannelWay& way, Coming& coming) {
  if (!coming.staged && map(way, coming)) return true;
  if (!coming.staged || !connect((*setup_.links)[std::get<0>(way)])) return false;
  stage(way, *coming.staged);
  return true;
}

// False: not yet, or it is to be staged.
bool ChannelOpening::map(const ChannelWay& way, Coming& coming) {
  const auto [peer, lane, outgoing] = way;
  if (!memory_.reaches(peer)) return coming.staged.emplace(), false;  // since a way before, which has said why
  bool connected = false;
  try {
    connected = memory_.connect(peer);
    return connected && (outgoing ? offer(way, coming) : accept(way, coming));
  } catch (const Failure& failure) {
    if (failure.status == TUTTI_PEER_FAILED || (!connected && memory_.reaches(peer))) throw;
    coming.shared.reset();
    memory_.close(coming.slots);
    coming.staged = failure.text;
    return false;
  }
}

bool ChannelOpening::offer(const ChannelWay& way, Coming& coming) {
  const auto [peer, lane, outgoing] = way;
  if (!coming.shared)
    coming.shared = MappedChannel::share(memory_, setup_.device, peer, setup_.rank, lane);
  if (!coming.shared->is_mapped()) return false;
  channels_[way] = std::move(coming.shared);
  return true;
}

bool ChannelOpening::accept(const ChannelWay& way, Coming& coming) {
  const auto [peer, lane, outgoing] = way;
  const auto open = [&, peer = peer, lane = lane](PeerMemory::Kind kind, uint64_t bytes) {
    return memory_.open(peer, PeerMemory::tag(kind, peer, lane), bytes).value_or(PeerRegion{});
  };
  if (!coming.slots) coming.slots = open(PeerMemory::slots, StreamChannel::slots * StreamChannel::slot_bytes);
  if (!coming.slots) return false;
  const PeerRegion flags = open(PeerMemory::channel_flags, MappedChannel::shared_bytes);
  if (!flags) return false;
  channels_[way] = std::make_unique<MappedChannel>(memory_, false, std::exchange(coming.slots, {}), flags);
  return true;
}

}  // namespace tutti::core
