// SPDX-License-Identifier: Apache-2.0
#include "engine/device_census.hpp"

#include <fmt/format.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cstring>

#include "engine/host.hpp"

namespace tutti::core {

DeviceCensus::DeviceCensus(Place place) : place_(place) {
  const Topology& topology = *place_.topology;
  own_.kind = ChannelNotice::census;
  own_.from = place_.rank;
  const tutti_device* memory = place_.tables.memory;
  own_.able = TUTTI_HAS(tutti_device, memory, identify) &&
              memory->identify(memory->self, place_.device, own_.device) == TUTTI_OK;
  if (!own_.able)
    log(TUTTI_LOG_INFO, memory->name,
        fmt::format("rank {}: which device this is is not known: {}", place_.rank, take_plugin_error()));
  alone_ = own_.able;
  // Who is asked asks, too: the two of a pair come to the same answer.
  const auto& host_of = topology.host_of_rank();
  for (uint32_t r = 0; r < topology.nranks(); ++r) {
    if (r == place_.rank) continue;
    if (host_of[r] != host_of[place_.rank] || topology.same_process(r, place_.rank) || !place_.exchange ||
        !place_.exchange->reaches(r))
      alone_ = false;
    else
      unheard_.push_back(r);
  }
  untold_ = unheard_;
}

bool DeviceCensus::advance() {
  if (!place_.exchange) return true;
  while (auto received = place_.exchange->receive()) place_.early->push_back(std::move(*received));
  std::erase_if(unheard_, [this](uint32_t rank) { return heard_from(rank); });
  std::erase_if(untold_, [this](uint32_t rank) { return place_.exchange->send(rank, own_, {}); });
  return unheard_.empty() && untold_.empty();
}

bool DeviceCensus::heard_from(uint32_t rank) {
  const auto found = std::ranges::find_if(*place_.early, [rank](const MemoryExchange::Received& received) {
    return received.notice.kind == ChannelNotice::census && received.notice.from == rank;
  });
  if (found == place_.early->end()) return false;
  const ChannelNotice& notice = found->notice;
  if (!notice.able || std::memcmp(notice.device, own_.device, sizeof own_.device) == 0) alone_ = false;
  place_.early->erase(found);
  return true;
}

}  // namespace tutti::core
