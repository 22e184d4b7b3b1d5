// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "comm.hpp"

namespace tutti::nccl::serve {

void SendComm::on_control(std::string_view message) {
  Granted granted{{}, next_group_, 0, {}};
  Grant& grant = granted.grant;
  const size_t size = std::min(message.size(), sizeof grant);
  std::memcpy(&grant, message.data(), size);
  if (grant.kind != kGrant || grant.n < 1 || grant.n > kMostInGroup || message.size() != Grant::size(grant.n) ||
      granted_.size() >= 2 * kMostRequests)
    throw sdk::error(TUTTI_INTERNAL, "{} sent {} bytes that are no grant of this protocol", peer_says(),
                     message.size());
  granted_.push_back(granted);
  ++next_group_;
}

// The receiving end has closed its comm: pending isends are the transport's to judge.
std::string SendComm::deserted() const { return ""; }

SendComm::Place SendComm::place_for(int tag) {
  for (auto group = granted_.begin(); group != granted_.end(); ++group)
    for (uint32_t i = 0; i < group->grant.n; ++i)
      if (!group->is_taken[i] && group->grant.entries[i].tag == tag) return {group, i};
  return {granted_.end(), 0};
}

Request* SendComm::send(void* data, uint64_t bytes, int tag, const Memory* memory) {
  check();
  if (bytes > 0 && (!memory || !memory->holds(data, bytes)))
    throw sdk::error(TUTTI_INVALID_USAGE, "isend of {} bytes at {}: the mhandle is not that of their memory", bytes,
                     data);
  const auto require_peer = [&] {
    if (peer_is_gone())
      throw sdk::error(TUTTI_PEER_FAILED, "isend of {} bytes with tag {}: {} is gone: {}", bytes, tag, peer_says(),
                       peers_bye() ? "it has closed its recvComm" : peers_end());
  };
  require_peer();
  Place at = place_for(tag);
  const auto waits = [&] { return at.group == granted_.end() || pending() >= kMostRequests * kMostInGroup; };
  if (waits()) {
    progress();
    check();
    require_peer();
    at = place_for(tag);
    if (waits()) return nullptr;
  }
  Granted& group = *at.group;
  if (bytes > group.grant.entries[at.entry].bytes)
    throw sdk::error(TUTTI_INVALID_USAGE, "isend of {} bytes with tag {}: {} has posted an irecv of {} bytes for it",
                     bytes, tag, peer_says(), group.grant.entries[at.entry].bytes);
  Request& request = *new_request(1);
  // One more than its bytes: the announcement.
  request.entries[0] = {static_cast<char*>(data), bytes, bytes, 1, memory, tag, true};
  const bool is_inline =
      bytes == 0 || (bytes <= kInlineBytes && !memory->is_device && !group.grant.entries[at.entry].is_device);
  const Announcement head{kAnnouncement, group.number, at.entry, is_inline, bytes};
  push_control(bytes_of(head), is_inline ? std::string_view(static_cast<char*>(data), bytes) : std::string_view(),
               &request);
  if (!is_inline) {
    request.entries[0].left += bytes;
    push_pieces(request, 0);
  }
  group.is_taken[at.entry] = true;
  if (++group.taken == group.grant.n) granted_.erase(at.group);
  begin();
  return &request;
}

}  // namespace tutti::nccl::serve
