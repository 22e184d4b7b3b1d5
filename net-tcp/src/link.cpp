// SPDX-License-Identifier: Apache-2.0
#include "link.hpp"

#include <algorithm>
#include <cstring>

#include "endpoint.hpp"

namespace tutti::tcp {
namespace {

Posted posted_of(const tutti_transfer& transfer) {
  return {static_cast<char*>(transfer.data), transfer.bytes, transfer.cookie, transfer.mark};
}

}  // namespace

Link::Link(Endpoint& endpoint, uint32_t peer, std::vector<Stream> sockets)
    : NetworkLink(endpoint, peer), lanes_(endpoint.lanes()) {
  const uint32_t first = endpoint.settings().first;
  for (Lane& lane : lanes_) lane.sent = lane.peer_posted = lane.met = lane.posted = lane.told = first;
  for (Stream& socket : sockets)
    connections_.push_back(
        std::make_unique<Connection>(*this, std::move(socket), static_cast<uint32_t>(connections_.size())));
}

Frame Link::data_frame(uint32_t index, const Posted& send) {
  Lane& lane = lanes_[index];
  lane.told = lane.posted;
  return {FrameKind::kData, index, lane.posted, lane.sent++, static_cast<uint32_t>(send.bytes), send.mark};
}

bool Link::post_send(const tutti_transfer& transfer) {
  if (!expects_peer()) return false;
  Lane& lane = lanes_[transfer.lane];
  Connection& connection = connection_of(transfer.lane);
  const bool inlined = transfer.flags & TUTTI_TRANSFER_INLINE;
  const Posted send = posted_of(transfer);
  const bool leads = lane.sends.empty() && transfer.bytes <= kInlineBytes &&
                     lane.may_send(transfer.bytes, endpoint().settings().eager_bytes);
  if (leads && (inlined ? connection.takes_whole(transfer.bytes) : connection.takes_copies())) {
    connection.append(data_frame(transfer.lane, send), send.data);
    if (!inlined) connection.complete_when_written(send);
    endpoint().wants_write(connection);
    return true;
  }
  // An INLINE send completes here, so the kernel takes it now or it is refused. If it waited for credit or room, it
  // would need this rank's progress to leave, perhaps after its operation is over.
  if (inlined || lane.sends.size() >= kQueueDepth) return false;
  lane.sends.push(send);
  if (lane.sends.size() == 1) activate(transfer.lane);
  return true;
}

// The first SEND of a lane may be possible now.
void Link::activate(uint32_t index) {
  if (lanes_[index].active || lanes_[index].sends.empty()) return;
  lanes_[index].active = true;
  connection_of(index).activate(index);
  endpoint().wants_write(connection_of(index));
}

bool Link::post_receive(const tutti_transfer& transfer) {
  Lane& lane = lanes_[transfer.lane];
  if (lane.receives.size() >= kQueueDepth || (lane.arrived.empty() && !expects_peer())) return false;
  const Posted receive = posted_of(transfer);
  ++lane.posted;
  if (lane.arrived.empty()) {
    lane.receives.push(receive);
  } else {
    meet(transfer.lane, receive, lane.arrived.pop());
  }
  tell_if_due(transfer.lane, transfer.bytes);
  return true;
}

// The peer must know of a RECV at once if it asked, or if the message needs credit. Otherwise the lane's next message
// carries the count, or a frame of its own does once half of the window is used up.
void Link::tell_if_due(uint32_t index, uint64_t bytes) {
  Lane& lane = lanes_[index];
  const bool asked = lane.peer_waits && static_cast<int32_t>(lane.posted - lane.peer_waits_for) > 0;
  if (asked) lane.peer_waits = false;
  const uint64_t eager_bytes = endpoint().settings().eager_bytes;
  if (!asked && bytes <= eager_bytes && lane.posted - lane.told < window_for(bytes, eager_bytes) / 2) return;
  if (lane.notice || has_departed_) return;
  lane.notice = true;
  connection_of(index).notify(index);
  endpoint().wants_write(connection_of(index));
}

void Link::on_want(uint32_t index, uint32_t sequence) {
  lanes_[index].peer_waits = true;
  lanes_[index].peer_waits_for = sequence;
  tell_if_due(index, 0);
}

void Link::on_posted(uint32_t index, uint32_t posted) {
  Lane& lane = lanes_[index];
  if (static_cast<int32_t>(posted - lane.peer_posted) < 0)
    return lose(fmt::format("its count of receives on lane {} went back (protocol error)", index));
  lane.peer_posted = posted;
  activate(index);
}

void Link::message_arrived(uint32_t lane, const Posted& receive, uint64_t bytes, uint32_t mark) {
  const bool fits = receive.fits(bytes, mark);
  if (!fits) endpoint().log_mismatch(peer(), lane, bytes, mark, receive.bytes, receive.mark);
  complete(receive.cookie, fits ? TUTTI_OK : TUTTI_MISMATCH, bytes, mark);
}

void Link::message_arrived(uint32_t index, Arrived message) {
  Lane& lane = lanes_[index];
  if (lane.receives.empty()) return lane.arrived.push(std::move(message));
  meet(index, lane.receives.pop(), message);  // posted while the message was on its way
}

void Link::meet(uint32_t lane, const Posted& receive, const Arrived& message) {
  if (receive.fits(message.bytes, message.mark) && message.bytes)
    std::memcpy(receive.data, message.data.get(), message.bytes);
  message_arrived(lane, receive, message.bytes, message.mark);
}

bool Link::take_control(std::string_view message) {
  Connection& connection = *connections_[0];
  if (!is_up() || !connection.takes_whole(message.size())) return false;  // like an INLINE send
  connection.append({FrameKind::kControl, 0, 0, 0, static_cast<uint32_t>(message.size()), 0}, message.data());
  endpoint().wants_write(connection);
  endpoint().flush();
  return true;
}

bool Link::has_pending() const {
  for (const Lane& lane : lanes_)
    if (!lane.sends.empty() || !lane.receives.empty()) return true;
  return std::any_of(connections_.begin(), connections_.end(), [](const auto& c) { return c->has_unfinished_sends(); });
}

void Link::drop_transfers(tutti_status status) {
  for (auto& connection : connections_) connection->close();  // from here on nothing accesses the transfers' memory
  for (auto& connection : connections_) connection->end_transfers(status);
  for (Lane& lane : lanes_) {
    while (!lane.sends.empty()) complete(lane.sends.pop().cookie, status, 0);
    while (!lane.receives.empty()) complete(lane.receives.pop().cookie, status, 0);
    lane.arrived.clear();
  }
}

void Link::on_departure() {
  for (auto& connection : connections_)
    if (connection->is_open()) return;
  has_departed_ = true;
  if (has_pending()) expects_peer();
}

// Something is still to come from the peer or to go there. If the peer has closed its endpoint, it is lost.
bool Link::expects_peer() {
  if (has_departed_) lose("it has closed its endpoint while transfers with it were pending");
  return is_up();
}

}  // namespace tutti::tcp
