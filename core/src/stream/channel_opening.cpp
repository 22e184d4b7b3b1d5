// SPDX-License-Identifier: Apache-2.0
#include "stream/channel_opening.hpp"

#include <fmt/format.h>
#include <tutti/tutti.h>

#include <algorithm>

#include "bootstrap/failure.hpp"
#include "plugins/host.hpp"

namespace tutti::core {
namespace {

ChannelNotice notice_of(uint32_t kind, uint32_t from, uint32_t lane) {
  ChannelNotice notice;
  notice.kind = kind;
  notice.from = from;
  notice.lane = lane;
  notice.able = 1;
  return notice;
}

void refuse(ChannelNotice& notice, const std::string& why) {
  notice.able = 0;
  why.copy(notice.why, sizeof notice.why - 1);
}

}  // namespace

ChannelOpening::ChannelOpening(Place place, const std::vector<StreamTraffic>& traffic, Channels* channels)
    : place_(place), channels_(channels) {
  for (const StreamTraffic& t : traffic) {
    const ChannelWay way{t.peer, t.lane, t.outgoing};
    if (channels_->contains(way)) continue;
    const auto& host_of = place_.topology->host_of_rank();
    if (host_of[t.peer] != host_of[place_.rank] || !place_.exchange)
      stage(way, "");
    else if (!place_.exchange->reaches(t.peer))
      stage(way, "its process is not reached by a Unix socket: it is in another network namespace, or has ended");
    else if (t.outgoing)
      offer(way);
    else
      expected_.push_back(way);
  }
}

ChannelOpening::~ChannelOpening() {
  for (auto& [way, channel] : offered_)
    if (channel) (*channels_)[way] = std::move(channel);
}

bool ChannelOpening::advance() {
  if (!place_.exchange) return true;
  while (auto received = place_.exchange->receive()) place_.early->push_back(std::move(*received));
  std::erase_if(expected_, [this](const ChannelWay& way) { return accept(way); });
  std::erase_if(offered_, [this](const auto& entry) { return conclude(entry.first); });
  std::erase_if(letters_, [this](const Letter& letter) {
    std::vector<int> descriptors;
    for (const Descriptor* one : {&letter.offer.words, &letter.offer.slots})
      if (*one) descriptors.push_back(one->get());
    return place_.exchange->send(letter.to, letter.notice, descriptors);
  });
  return expected_.empty() && offered_.empty() && letters_.empty();
}

// why == "": nobody expected anything else.
void ChannelOpening::stage(const ChannelWay& way, const std::string& why) {
  const auto [peer, lane, outgoing] = way;
  if (!why.empty())
    log(TUTTI_LOG_WARN, place_.tables.memory->name,
        fmt::format("rank {}: lane {} {} rank {} is not mapped: {}", place_.rank, lane, outgoing ? "to" : "from", peer,
                    why));
  Link* link = &(*place_.links)[peer];
  auto channel = std::make_unique<StagedChannel>(place_.tables, place_.device, link, place_.first_lane + lane, outgoing,
                                                 place_.in_host);
  if (const std::string& reason = channel->why_in_host(); !reason.empty() && place_.told->insert(reason).second)
    log(TUTTI_LOG_INFO, place_.tables.memory->name,
        fmt::format("rank {}: what {} carries goes through host memory: {}", place_.rank, link->port->api->name,
                    reason));
  (*channels_)[way] = std::move(channel);
}

void ChannelOpening::offer(const ChannelWay& way) {
  const auto [peer, lane, outgoing] = way;
  Letter letter{peer, notice_of(ChannelNotice::offer, place_.rank, lane), {}};
  try {
    auto channel = std::make_unique<MappedChannel>(place_.tables, place_.device, &(*place_.links)[peer]);
    letter.offer = channel->take_offer();
    letter.notice.memory = letter.offer.memory;
    offered_[way] = std::move(channel);
  } catch (const Failure& failure) {
    refuse(letter.notice, failure.text);
    stage(way, failure.text);
  }
  letters_.push_back(std::move(letter));
}

// Has the sender made its offer? Then the channel is settled here.
bool ChannelOpening::accept(const ChannelWay& way) {
  const auto [peer, lane, outgoing] = way;
  auto received = heard(ChannelNotice::offer, way);
  if (!received) return false;
  if (!received->notice.able) {
    stage(way, fmt::format("rank {}: {}", peer, received->notice.why));
    return true;
  }
  Letter letter{peer, notice_of(ChannelNotice::answer, place_.rank, lane), {}};
  try {
    MappedChannel::Offer offer;
    offer.memory = received->notice.memory;
    if (!received->descriptors.empty()) offer.words = std::move(received->descriptors[0]);
    if (received->descriptors.size() > 1) offer.slots = std::move(received->descriptors[1]);
    (*channels_)[way] = std::make_unique<MappedChannel>(place_.tables, place_.device, &(*place_.links)[peer], offer);
  } catch (const Failure& failure) {
    refuse(letter.notice, failure.text);
    stage(way, failure.text);
  }
  letters_.push_back(std::move(letter));
  return true;
}

// Has the receiver answered?
bool ChannelOpening::conclude(const ChannelWay& way) {
  const auto received = heard(ChannelNotice::answer, way);
  if (!received) return false;
  std::unique_ptr<MappedChannel>& channel = offered_.at(way);
  if (received->notice.able) {
    (*channels_)[way] = std::move(channel);
    return true;
  }
  channel->not_mapped();
  channel.reset();
  stage(way, fmt::format("rank {}: {}", std::get<0>(way), received->notice.why));
  return true;
}

std::optional<MemoryExchange::Received> ChannelOpening::heard(uint32_t kind, const ChannelWay& way) {
  const auto found = std::ranges::find_if(*place_.early, [&](const MemoryExchange::Received& received) {
    const ChannelNotice& notice = received.notice;
    return notice.kind == kind && notice.from == std::get<0>(way) && notice.lane == std::get<1>(way);
  });
  if (found == place_.early->end()) return std::nullopt;
  auto received = std::move(*found);
  place_.early->erase(found);
  return received;
}

}  // namespace tutti::core
