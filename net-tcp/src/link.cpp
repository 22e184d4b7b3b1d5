// SPDX-License-Identifier: Apache-2.0
#include "link.hpp"

#include <algorithm>
#include <cstring>
#include <tutti/sdk/plugin.hpp>

#include "endpoint.hpp"

namespace tutti::tcp {

Link::Link(Endpoint& endpoint, uint32_t peer, std::vector<Stream> sockets)
    : endpoint_(endpoint), peer_(peer), lanes_(endpoint.shape().lanes) {
  for (Stream& socket : sockets)
    connections_.push_back(
        std::make_unique<Connection>(*this, std::move(socket), static_cast<uint32_t>(connections_.size())));
}

Frame Link::data_frame(uint32_t index, uint64_t bytes) {
  Lane& lane = lanes_[index];
  lane.told = lane.posted;
  return {FrameKind::kData, index, lane.posted, lane.sent++, bytes};
}

bool Link::post_send(const tutti_transfer& transfer) {
  Lane& lane = lanes_[transfer.lane];
  Connection& connection = connection_of(transfer.lane);
  const bool inlined = transfer.flags & TUTTI_TRANSFER_INLINE;
  const char* data = static_cast<const char*>(transfer.data);
  if (lane.sends.empty() && transfer.bytes <= kInlineBytes &&
      lane.may_send(transfer.bytes, endpoint_.settings().eager_bytes) && connection.has_room() &&
      !connection.is_blocked()) {
    connection.append(data_frame(transfer.lane, transfer.bytes), data);
    if (!inlined) endpoint_.complete(peer_, transfer.cookie, TUTTI_OK, transfer.bytes);
    endpoint_.wants_write(connection);
    return true;
  }
  // An INLINE send completes here or not at all: what waited for credit would need this rank's progress to leave, after
  // the operation that it belongs to was over.
  if (inlined || lane.sends.size() >= kQueueDepth) return false;
  lane.sends.push(Send{data, transfer.bytes, transfer.cookie});
  if (!lane.active && lane.sends.size() == 1) {
    lane.active = true;
    connection.activate(transfer.lane);
    endpoint_.wants_write(connection);
  }
  return true;
}

bool Link::post_receive(const tutti_transfer& transfer) {
  Lane& lane = lanes_[transfer.lane];
  if (lane.receives.size() >= kQueueDepth) return false;
  const Receive receive{static_cast<char*>(transfer.data), transfer.bytes, transfer.cookie};
  ++lane.posted;
  if (lane.arrived.empty()) {
    lane.receives.push(receive);
  } else {
    const Arrived message = lane.arrived.pop();
    if (message.bytes == receive.bytes && message.bytes) std::memcpy(receive.data, message.data.get(), message.bytes);
    message_arrived(transfer.lane, receive, message.bytes);
  }
  tell_if_due(transfer.lane, transfer.bytes);
  return true;
}

// The peer needs to know of a RECV at once when its message may not travel without credit or when it asked; otherwise
// it is enough when the lane's next message takes the count along, or half of the window is used up.
void Link::tell_if_due(uint32_t index, uint64_t bytes) {
  Lane& lane = lanes_[index];
  const bool asked = lane.peer_waits && static_cast<int32_t>(lane.posted - lane.peer_waits_for) > 0;
  if (asked) lane.peer_waits = false;
  if (!asked && bytes <= endpoint_.settings().eager_bytes && lane.posted - lane.told < kEagerWindow / 2) return;
  if (lane.notice || departed_) return;
  lane.notice = true;
  connection_of(index).notify(index);
  endpoint_.wants_write(connection_of(index));
}

void Link::on_want(uint32_t index, uint32_t sequence) {
  lanes_[index].peer_waits = true;
  lanes_[index].peer_waits_for = sequence;
  tell_if_due(index, 0);
}

void Link::on_posted(uint32_t index, uint32_t posted) {
  Lane& lane = lanes_[index];
  if (static_cast<int32_t>(posted - lane.peer_posted) < 0)
    return lose("its count of receives on lane " + std::to_string(index) + " went back (protocol error)");
  lane.peer_posted = posted;
  if (lane.active || lane.sends.empty()) return;
  lane.active = true;
  connection_of(index).activate(index);
  endpoint_.wants_write(connection_of(index));
}

void Link::message_arrived(uint32_t lane, const Receive& receive, uint64_t bytes) {
  if (receive.bytes == bytes) return endpoint_.complete(peer_, receive.cookie, TUTTI_OK, bytes);
  endpoint_.log(TUTTI_LOG_ERROR, "a message of " + std::to_string(bytes) + " bytes from rank " + std::to_string(peer_) +
                                     " on lane " + std::to_string(lane) + " met a receive of " +
                                     std::to_string(receive.bytes) + " bytes: the two ranks run different operations");
  endpoint_.complete(peer_, receive.cookie, TUTTI_MISMATCH, bytes);
}

void Link::message_arrived(uint32_t index, Arrived message) {
  Lane& lane = lanes_[index];
  if (lane.receives.empty()) return lane.arrived.push(std::move(message));
  const Receive receive = lane.receives.pop();  // posted while the message was on its way
  if (receive.bytes == message.bytes && message.bytes) std::memcpy(receive.data, message.data.get(), message.bytes);
  message_arrived(index, receive, message.bytes);
}

bool Link::send_control(std::string_view message) {
  if (message.size() > TUTTI_CONTROL_BYTES || (!message.data() && !message.empty()))
    throw sdk::Error(TUTTI_INVALID_ARGUMENT,
                     endpoint_.says("a control message has " + std::to_string(message.size()) + " bytes, at most " +
                                    std::to_string(TUTTI_CONTROL_BYTES) + " are allowed"));
  if (status_ != TUTTI_OK || departed_)
    throw sdk::Error(departed_ && status_ == TUTTI_OK ? TUTTI_PEER_FAILED : status_,
                     endpoint_.says("no control message can reach rank " + std::to_string(peer_) + ": " + reason_));
  Connection& connection = *connections_[0];
  if (!connection.has_room()) return false;
  connection.append({FrameKind::kControl, 0, 0, 0, message.size()}, message.data());
  endpoint_.wants_write(connection);
  endpoint_.flush();
  return true;
}

tutti_status Link::usable(uint32_t lane, uint16_t kind) {
  if (!departed_ || status_ != TUTTI_OK) return status_;
  if (kind == TUTTI_TRANSFER_RECV && !lanes_[lane].arrived.empty()) return TUTTI_OK;
  return TUTTI_PEER_FAILED;
}

bool Link::has_pending() const {
  for (const Lane& lane : lanes_)
    if (!lane.sends.empty() || !lane.receives.empty()) return true;
  return std::any_of(connections_.begin(), connections_.end(), [](const auto& c) { return c->sends_payload(); });
}

void Link::complete_pending(tutti_status status) {
  for (auto& connection : connections_) {
    Send send;
    Receive receive;
    if (connection->take_unfinished_send(send)) endpoint_.complete(peer_, send.cookie, status, 0);
    if (connection->take_unfinished_receive(receive)) endpoint_.complete(peer_, receive.cookie, status, 0);
  }
  for (Lane& lane : lanes_) {
    while (!lane.sends.empty()) endpoint_.complete(peer_, lane.sends.pop().cookie, status, 0);
    while (!lane.receives.empty()) endpoint_.complete(peer_, lane.receives.pop().cookie, status, 0);
  }
}

void Link::end(tutti_status status, const std::string& reason) {
  if (status_ != TUTTI_OK) return;
  status_ = status;
  reason_ = reason;
  for (auto& connection : connections_) connection->close();  // from here on nothing touches the transfers' memory
  complete_pending(status);
  for (Lane& lane : lanes_) lane.arrived.clear();
}

void Link::lose(const std::string& reason) {
  if (status_ != TUTTI_OK) return;
  end(TUTTI_PEER_FAILED, reason);
  endpoint_.report_lost(peer_, reason);
}

void Link::on_departure() {
  for (auto& connection : connections_)
    if (connection->is_open()) return;
  departed_ = true;
  reason_ = "it has closed its endpoint";
  if (!has_pending()) return;
  complete_pending(TUTTI_PEER_FAILED);
  endpoint_.report_lost(peer_, reason_ + " while transfers with it were pending");
}

}  // namespace tutti::tcp
