// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "comm.hpp"

namespace tutti::nccl::serve {

Request* ReceiveComm::receive(const std::vector<Part>& group) {
  check();
  const auto n = static_cast<int>(group.size());
  if (n < 1 || n > kMostInGroup)
    throw sdk::error(TUTTI_INVALID_USAGE, "irecv of {} messages: a group has 1 to {} (maxRecvs)", n, kMostInGroup);
  for (const Part& part : group)
    if (part.bytes > 0 && (!part.memory || !part.memory->holds(part.data, part.bytes)))
      throw sdk::error(TUTTI_INVALID_USAGE, "irecv of {} bytes at {}: the mhandle is not that of their memory",
                       part.bytes, part.data);
  if (pending() >= kMostRequests) {
    progress();
    check();
    return nullptr;
  }
  Request& request = *new_request(n);
  Grant grant{};
  grant.kind = kGrant;
  grant.n = static_cast<uint32_t>(n);
  for (size_t i = 0; i < group.size(); ++i) {
    const Part& part = group[i];
    request.entries[i] = {static_cast<char*>(part.data), part.bytes, 0, 0, part.memory, part.tag, false};
    grant.entries[i] = {part.bytes, part.tag, part.bytes > 0 && part.memory->is_device};
  }
  groups_.push_back({&request, next_group_++, n});
  push_control({reinterpret_cast<const char*>(&grant), Grant::size(grant.n)}, {}, nullptr);
  begin();
  return &request;
}

Request* ReceiveComm::flush(const std::vector<Part>& parts) {
  check();
  if (!(served().caps().flags & TUTTI_TRANSPORT_NEEDS_FLUSH)) return nullptr;
  Request& request = *new_request(0);
  request.is_flush = true;
  for (const Part& part : parts) {
    if (part.bytes == 0 || !part.memory || !part.memory->is_device || request.n == kMostInGroup) continue;
    request.entries[static_cast<size_t>(request.n++)] = {
        static_cast<char*>(part.data), part.bytes, part.bytes, 1, part.memory, part.tag, true};
    ++request.unfinished;
  }
  return &request;
}

void ReceiveComm::on_control(std::string_view message) {
  Announcement head{};
  const bool has_head = read(message.substr(0, sizeof head), head);
  const std::string_view body = message.substr(std::min(message.size(), sizeof head));
  const auto wrong = [&](const std::string& why) {
    return sdk::error(TUTTI_INTERNAL, "{} sent {} bytes that are no announcement of this protocol: {}", peer_says(),
                      message.size(), why);
  };
  if (!has_head || head.kind != kAnnouncement) throw wrong("the head is wrong");
  const auto group = std::ranges::find(groups_, head.group, &Group::number);
  if (group == groups_.end()) throw wrong(fmt::format("no irecv {} waits", head.group));
  Request& request = *group->request;
  if (head.entry >= static_cast<uint32_t>(request.n)) throw wrong(fmt::format("irecv {} has no entry", head.group));
  Request::Entry& entry = request.entries[head.entry];
  if (entry.met || head.bytes > entry.room || head.is_inline > 1 || body.size() != (head.is_inline ? head.bytes : 0) ||
      (!head.is_inline && head.bytes == 0) || (head.is_inline && head.bytes && entry.memory->is_device))
    throw wrong(fmt::format("{} bytes for an entry of {}", head.bytes, entry.room));
  entry.met = true;
  entry.bytes = head.bytes;
  ++met_;
  if (--group->unmet == 0) groups_.erase(group);
  if (head.is_inline) {
    body.copy(entry.data, body.size());
    --request.unfinished;
  } else {
    entry.left = head.bytes;
    push_pieces(request, static_cast<int>(head.entry));
  }
}

std::string ReceiveComm::deserted() const {
  return met_ >= peers_bye()->messages && !groups_.empty() ? "it has closed its sendComm" : "";
}

}  // namespace tutti::nccl::serve
