// SPDX-License-Identifier: Apache-2.0
#include "stream/stream_channels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/failure.hpp"
#include "registry/host.hpp"
#include "topology/topology.hpp"

namespace tutti::core {
namespace {

bool is_mapped_entry(const Channels::value_type& entry) { return !entry.second->by_host(); }

// The opening of the channels that a call lacks. Nothing of this rank is pending on the device meanwhile.
class ChannelOpening {
 public:
  // Adds to `channels` what `traffic` needs and is missing. Throws Failure. `logged`: why staged bytes go through host
  // memory, as far as the log has it.
  ChannelOpening(const StreamSetup& setup, PeerMemory& memory, const std::vector<StreamTraffic>& traffic,
                 Channels& channels, std::set<std::string>& logged)
      : setup_(setup), memory_(memory), channels_(channels), logged_(logged) {
    for (const StreamTraffic& t : traffic) {
      const StreamWayKey way{t.peer, t.lane, t.outgoing};
      if (channels_.contains(way)) continue;
      Coming& coming = coming_[way];
      if (memory_.reaches(t.peer)) continue;
      coming.staged.emplace();
      const auto& host_of = setup_.topology->host_of_rank();
      if (host_of[t.peer] == host_of[setup_.rank] && !setup_.named)
        setup_.topology->mapping_transport_of(setup_.rank, t.peer, &*coming.staged);
    }
  }
  ChannelOpening(const ChannelOpening&) = delete;
  ChannelOpening& operator=(const ChannelOpening&) = delete;
  ~ChannelOpening() {
    for (auto& [way, coming] : coming_) memory_.take_back({coming.slots}, nullptr);
  }
  // Goes on; true when all are there. Throws Failure.
  bool advance() {
    for (auto at = coming_.begin(); at != coming_.end();)
      at = open_or_stage(at->first, at->second) ? coming_.erase(at) : std::next(at);
    return coming_.empty();
  }

 private:
  // The state of a channel's opening.
  struct Coming {
    std::unique_ptr<MappedChannel> shared;  // outgoing
    PeerRegion slots;                       // incoming
    // Why the channel is to be staged, once its link is connected, which settles its transport. "": nobody expected
    // anything else.
    std::optional<std::string> staged;
  };

  // Is the channel there? A rank that cannot have it mapped has told its peer, and both stage it.
  bool open_or_stage(const StreamWayKey& way, Coming& coming) {
    if (!coming.staged && map(way, coming)) return true;
    if (!coming.staged || !connect((*setup_.links)[std::get<0>(way)])) return false;
    stage(way, *coming.staged);
    return true;
  }

  // False: not yet, or it is to be staged.
  bool map(const StreamWayKey& way, Coming& coming) {
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

  bool offer(const StreamWayKey& way, Coming& coming) {
    const auto [peer, lane, outgoing] = way;
    if (!coming.shared)
      coming.shared = MappedChannel::share(memory_, setup_.device, peer, setup_.rank, lane);
    if (!coming.shared->is_mapped()) return false;
    channels_[way] = std::move(coming.shared);
    return true;
  }

  bool accept(const StreamWayKey& way, Coming& coming) {
    const auto [peer, lane, outgoing] = way;
    const auto open = [&, peer = peer, lane = lane](PeerMemory::RegionKind kind, uint64_t bytes) {
      return memory_.open(peer, PeerMemory::tag(kind, peer, lane), bytes).value_or(PeerRegion{});
    };
    if (!coming.slots) coming.slots = open(PeerMemory::slots, StreamChannel::slots * StreamChannel::slot_bytes);
    if (!coming.slots) return false;
    const PeerRegion flags = open(PeerMemory::channel_flags, MappedChannel::shared_bytes);
    if (!flags) return false;
    channels_[way] = std::make_unique<MappedChannel>(memory_, false, std::exchange(coming.slots, {}), flags);
    return true;
  }

  void stage(const StreamWayKey& way, const std::string& why) {
    const auto [peer, lane, outgoing] = way;
    if (!why.empty())
      log(TUTTI_LOG_WARN, setup_.device.tables.memory->name,
          fmt::format("rank {}: lane {} {} rank {} is not mapped: {}", setup_.rank, lane, outgoing ? "to" : "from",
                      peer, why));
    Link* link = &(*setup_.links)[peer];
    auto channel = std::make_unique<StagedChannel>(setup_.device.tables, setup_.device.device, link,
                                                   setup_.first_lane + lane, outgoing, setup_.in_host);
    if (const std::string& reason = channel->why_in_host(); !reason.empty() && logged_.insert(reason).second)
      log(TUTTI_LOG_INFO, setup_.device.tables.memory->name,
          fmt::format("rank {}: what {} carries goes through host memory: {}", setup_.rank, link->port->api->name,
                      reason));
    channels_[way] = std::move(channel);
  }

  const StreamSetup& setup_;
  PeerMemory& memory_;
  Channels& channels_;
  std::set<std::string>& logged_;
  std::map<StreamWayKey, Coming> coming_;
};

}  // namespace

void StreamChannels::open(const std::vector<StreamTraffic>& traffic, StreamComm& comm) {
  if (std::ranges::all_of(traffic, [this](const StreamTraffic& way) {
        return channels_.contains({way.peer, way.lane, way.outgoing});
      }))
    return;
  std::optional<ChannelOpening> opening;
  bool is_open = false;
  const auto advance = [&] {
    if (!opening) opening.emplace(setup_, memory_, traffic, channels_, logged_);
    is_open = opening->advance();
  };
  comm.await([&] { return gate_.try_run(advance) && is_open; });
}

void StreamChannels::open(const std::vector<Transfer>& transfers, std::vector<const char*>& carriers,
                          StreamComm& comm) {
  std::vector<StreamTraffic> missing;
  for (const Transfer& transfer : transfers)
    for (const bool outgoing : {true, false})
      if (is_far(transfer) && !channels_.contains({transfer.peer, setup_.lanes, outgoing}))
        missing.push_back({transfer.peer, setup_.lanes, outgoing, {}});
  if (!missing.empty()) open(missing, comm);
  for (const Transfer& transfer : transfers)
    for (const bool outgoing : {true, false}) {
      const char* carrier = is_far(transfer) ? of(transfer.peer, outgoing).carrier() : nullptr;
      if (carrier && !std::ranges::count(carriers, carrier)) carriers.push_back(carrier);
    }
}

bool StreamChannels::advance() {
  bool moved = false;
  for (auto& [way, channel] : channels_) moved |= channel->advance();
  return moved;
}

bool StreamChannels::sends(uint64_t operation) const {
  return std::ranges::any_of(channels_, [&](const auto& entry) { return entry.second->sends(operation); });
}

bool StreamChannels::moved() {
  bool any = false;
  for (auto& [way, channel] : channels_) any |= channel->moved();
  return any;
}

void StreamChannels::release_flags() {
  for (auto& [way, channel] : channels_) channel->release_flags();
}

std::string StreamChannels::where() const {
  std::string text;
  for (const auto& [way, channel] : channels_)
    if (const std::string where = channel->where(); !where.empty()) text += ", " + where;
  return text;
}

std::vector<tutti_link_traffic> StreamChannels::traffic() const {
  std::vector<tutti_link_traffic> rows;
  for (const auto& [way, channel] : channels_) {
    if (!channel->bytes()) continue;
    auto row = std::ranges::find_if(
        rows, [&](const auto& one) { return one.transport == channel->carrier() && one.peer == channel->peer(); });
    if (row == rows.end()) row = rows.insert(row, {channel->carrier(), channel->peer()});
    (channel->outgoing() ? row->sent_bytes : row->received_bytes) += channel->bytes();
  }
  return rows;
}

// At once: its owners wait for that before they release it, as this rank does.
void StreamChannels::unmap() { std::erase_if(channels_, is_mapped_entry); }

bool StreamChannels::any_mapped() const { return std::ranges::any_of(channels_, is_mapped_entry); }

}  // namespace tutti::core
