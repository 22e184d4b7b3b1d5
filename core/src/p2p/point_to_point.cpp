// SPDX-License-Identifier: Apache-2.0
#include "p2p/point_to_point.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "bootstrap/failure.hpp"

namespace tutti::core {
namespace {

// A link that fails ends the communicator. In the transport's own words if it has any.
Failure broken_way(const char* what, const Link& link, tutti_status status) {
  const std::string why = take_plugin_error();
  return Failure(status, fmt::format("{} rank {} over {}: {}{}{}", what, link.peer, link.port->api->name,
                                     tutti_status_text(status), why.empty() ? "" : ": ", why));
}

enum : uint32_t { type_rts = 0x54545031, type_cts, type_reject, type_credit, type_stream_rts };

bool on_stream(const MessageHeader& rts) { return rts.type == type_stream_rts; }

// True if this send matches this receive. Transfers on streams match in the order of the calls.
bool meet(const MessageHeader& rts, const Transfer& receive) {
  return rts.tag == receive.tag || (on_stream(rts) && receive.on_stream);
}

}  // namespace

void PointToPoint::place(uint32_t rank, std::vector<Link>* links, uint32_t lane,
                         std::function<void(const Transfer&)> ended) {
  rank_ = rank;
  links_ = links;
  lane_ = lane;
  ended_ = std::move(ended);
}

void PointToPoint::start(Transfer* transfer) {
  Peer& p = peer(transfer->peer);
  if (!p.oldest()) p.last_move_ns = 0;  // its time begins now, not at the end of the last one
  if (transfer->sending) {
    p.waiting.push_back(transfer);
    ++active_;
    return;
  }
  const auto found =
      std::find_if(p.arrivals.begin(), p.arrivals.end(), [&](const Arrival& a) { return meet(a.rts, *transfer); });
  if (found == p.arrivals.end()) {
    p.receives.push_back(transfer);
    ++active_;
    return;
  }
  const Arrival arrival = std::move(*found);
  p.arrivals.erase(found);
  ++active_;
  match(transfer->peer, p, transfer, arrival);
}

void PointToPoint::finish(Transfer* transfer, tutti_status status, const std::string& error) {
  if (in_hand_ == transfer) in_hand_ = nullptr;
  transfer->done = true;
  transfer->status = status;
  try {
    transfer->error = error;
  } catch (const std::bad_alloc&) {  // its status says so
  }
  --active_;
  ended_(*transfer);
}

void PointToPoint::reply(Peer& peer, uint32_t type, uint64_t sequence, uint64_t size) {
  const MessageHeader header{type, 0, size, sequence};
  peer.replies.emplace_back(reinterpret_cast<const char*>(&header), sizeof header);
  ++replies_;
}

void PointToPoint::match(uint32_t rank, Peer& peer, Transfer* receive, const Arrival& arrival) {
  const MessageHeader& e = arrival.rts;
  in_hand_ = receive;
  if (++peer.consumed == credit_batch) {
    reply(peer, type_credit, 0, peer.consumed);
    peer.consumed = 0;
  }
  if (on_stream(e) || receive->on_stream) {
    if (on_stream(e) != receive->on_stream || e.tag != receive->tag || e.size != receive->bytes)
      return differ(receive, e);
    return finish(receive, TUTTI_OK, {});
  }
  if (e.size != receive->bytes) {
    if (e.size > arrival.payload.size()) reply(peer, type_reject, e.sequence, receive->bytes);
    finish(receive, TUTTI_MISMATCH,
           fmt::format("receive of {} bytes from rank {} with tag {} matched a send of {} bytes: both must be equal",
                       receive->bytes, rank, e.tag, e.size));
    return;
  }
  if (e.size == arrival.payload.size()) {
    if (e.size) std::memcpy(receive->data, arrival.payload.data(), e.size);
    finish(receive, TUTTI_OK, {});
    return;
  }
  reply(peer, type_cts, e.sequence, 0);
  auto bulk = std::make_unique<Bulk>();
  bulk->transfer = receive;
  peer.incoming.push_back(std::move(bulk));
  in_hand_ = nullptr;
}

void PointToPoint::differ(Transfer* receive, const MessageHeader& e) {
  difference_ = CallDifference{
      receive->peer,
      fmt::format("sent {} bytes of {} memory with tag {}, which met rank {}'s receive of {} bytes of {} memory with "
                  "tag {}: both have to be device memory, or both host memory, and equal in size and tag",
                  e.size, on_stream(e) ? "device" : "host", e.tag, rank_, receive->bytes,
                  receive->on_stream ? "device" : "host", receive->tag)};
  finish(receive, TUTTI_MISMATCH, fmt::format("rank {} {}", receive->peer, difference_->reason));
}

bool PointToPoint::announce(uint32_t rank, Peer& peer) {
  Link& link = (*links_)[rank];
  bool moved = false;
  while (!peer.waiting.empty() && peer.credit) {
    Transfer* transfer = peer.waiting.front();
    std::byte message[TUTTI_CONTROL_BYTES];
    const MessageHeader rts{transfer->on_stream ? type_stream_rts : type_rts, transfer->tag, transfer->bytes,
                            peer.next_sequence};
    std::memcpy(message, &rts, sizeof rts);
    const bool eager = transfer->bytes <= eager_bytes && !transfer->on_stream;
    if (eager && transfer->bytes) std::memcpy(message + sizeof rts, transfer->data, transfer->bytes);
    const uint64_t size = sizeof rts + (eager ? transfer->bytes : 0);
    const tutti_status status = link.port->api->send_control(link.handle, message, size);
    if (status == TUTTI_AGAIN) return moved;
    peer.waiting.pop_front();
    in_hand_ = transfer;
    moved = true;
    if (status < 0) throw broken_way("send to", link, status);
    --peer.credit;
    transfer->sequence = peer.next_sequence++;
    if (transfer->on_stream) {
      finish(transfer, TUTTI_OK, {});
    } else if (eager) {
      link.sent += transfer->bytes;
      finish(transfer, TUTTI_OK, {});
    } else {
      peer.announced[transfer->sequence] = transfer;
      in_hand_ = nullptr;
    }
  }
  return moved;
}

bool PointToPoint::flush(uint32_t rank, Peer& peer) {
  Link& link = (*links_)[rank];
  bool moved = false;
  while (!peer.replies.empty()) {
    const std::string& message = peer.replies.front();
    const tutti_status status = link.port->api->send_control(link.handle, message.data(), message.size());
    if (status == TUTTI_AGAIN) break;
    peer.replies.pop_front();  // progress reports a failed link
    --replies_;
    moved = true;
  }
  return moved;
}

bool PointToPoint::move(Link& link, Bulk& bulk, bool* moved) {
  Transfer& t = *bulk.transfer;
  Flow& flow = t.sending ? static_cast<Flow&>(bulk.out) : bulk.in;
  if (!std::exchange(bulk.opened, true)) {
    t.sending ? bulk.out.open(&link, lane_, t.bytes) : bulk.in.open(&link, lane_, t.bytes);
    const Registration r = link.port->find(t.data, t.bytes);
    bulk.memory = {r.region, r.offset};
  }
  if (flow.status == TUTTI_OK)
    t.sending ? bulk.out.advance(t.data, t.bytes, bulk.memory) : bulk.in.advance(t.data, false, bulk.memory.region);
  const uint64_t now = t.sending ? flow.handed : flow.completed;
  *moved |= std::exchange(flow.seen, now) != now;
  if (flow.status < 0) throw broken_way(t.sending ? "send to" : "receive from", link, flow.status);
  if (!(t.sending ? bulk.out.done() : bulk.in.done())) return false;
  finish(&t, TUTTI_OK, {});
  return true;
}

bool PointToPoint::advance_peer(uint32_t rank, Peer& p) {
  bool moved = false;
  if (!p.replies.empty()) moved |= flush(rank, p);
  if (!p.waiting.empty()) moved |= announce(rank, p);
  for (auto* queue : {&p.outgoing, &p.incoming})
    while (!queue->empty() && move((*links_)[rank], *queue->front(), &moved)) {
      queue->pop_front();
      moved = true;
    }
  p.moved |= moved;
  return moved;
}

bool PointToPoint::on_control(uint32_t rank, const std::byte* data, uint64_t bytes, std::string* error) {
  MessageHeader e{};
  if (bytes < sizeof e) {
    *error = fmt::format("a control message of {} bytes, expected at least {}", bytes, sizeof e);
    return false;
  }
  std::memcpy(&e, data, sizeof e);
  Peer& p = peer(rank);
  p.moved = true;
  switch (e.type) {
    case type_stream_rts:
    case type_rts: {
      const uint64_t payload = bytes - sizeof e;
      if (payload != (e.size <= eager_bytes && !on_stream(e) ? e.size : 0) || p.arrivals.size() >= rts_credit) {
        *error = fmt::format("an RTS that breaks the protocol (size {}, {} bytes along, {} unmatched)", e.size, payload,
                             p.arrivals.size());
        return false;
      }
      (*links_)[rank].received += payload;
      Arrival arrival{e, std::string(reinterpret_cast<const char*>(data) + sizeof e, payload)};
      const auto found =
          std::find_if(p.receives.begin(), p.receives.end(), [&](const Transfer* t) { return meet(e, *t); });
      if (found == p.receives.end()) {
        p.arrivals.push_back(std::move(arrival));
        return true;
      }
      Transfer* receive = *found;
      p.receives.erase(found);
      match(rank, p, receive, arrival);
      return true;
    }
    case type_cts:
    case type_reject: {
      const auto found = p.announced.find(e.sequence);
      if (found == p.announced.end()) {
        *error = fmt::format("an answer to send {}, which was never announced", e.sequence);
        return false;
      }
      Transfer* transfer = in_hand_ = found->second;
      p.announced.erase(found);
      if (e.type == type_reject) {
        finish(transfer, TUTTI_MISMATCH,
               fmt::format("send of {} bytes to rank {} with tag {} met a receive of {} bytes: both must be equal",
                           transfer->bytes, rank, transfer->tag, e.size));
        return true;
      }
      auto bulk = std::make_unique<Bulk>();
      bulk->transfer = transfer;
      p.outgoing.push_back(std::move(bulk));
      in_hand_ = nullptr;
      return true;
    }
    case type_credit:
      if (e.size > rts_credit - p.credit) {
        *error = fmt::format("credit for {} RTS messages where {} are unmatched", e.size, rts_credit - p.credit);
        return false;
      }
      p.credit += static_cast<uint32_t>(e.size);
      return true;
    default:
      *error = fmt::format("a control message of unknown type {:#x}", e.type);
      return false;
  }
}

void PointToPoint::fail_all(tutti_status status, const std::string& error) {
  if (in_hand_) finish(in_hand_, status, error);
  for (auto& [rank, p] : peers_) {
    for (Transfer* t : p.waiting) finish(t, status, error);
    for (auto& [sequence, t] : p.announced) finish(t, status, error);
    for (Transfer* t : p.receives) finish(t, status, error);
    for (auto* queue : {&p.outgoing, &p.incoming})
      for (auto& bulk : *queue) finish(bulk->transfer, status, error);
  }
  failed_ = std::exchange(peers_, {});
  replies_ = 0;
}

const Transfer* PointToPoint::Peer::oldest() const {
  if (!outgoing.empty()) return outgoing.front()->transfer;
  if (!incoming.empty()) return incoming.front()->transfer;
  if (!announced.empty()) return announced.begin()->second;
  if (!waiting.empty()) return waiting.front();
  return receives.empty() ? nullptr : receives.front();
}

const Transfer* PointToPoint::Peer::most_urgent() const {
  const Transfer* urgent = nullptr;
  const auto look = [&](const Transfer* transfer) {
    if (!urgent || transfer->timeout_ns < urgent->timeout_ns) urgent = transfer;
  };
  for (const auto* queue : {&outgoing, &incoming})
    for (const auto& bulk : *queue) look(bulk->transfer);
  for (const auto& [sequence, transfer] : announced) look(transfer);
  for (const auto* queue : {&waiting, &receives})
    for (const Transfer* transfer : *queue) look(transfer);
  return urgent;
}

const Transfer* PointToPoint::oldest() const {
  for (const auto& [rank, p] : peers_)
    if (const Transfer* transfer = p.oldest()) return transfer;
  return nullptr;
}

std::string PointToPoint::standpoint(const Transfer& transfer) {
  const char* other = transfer.sending ? "receive" : "send";
  if (transfer.on_stream)
    return fmt::format("{} on device memory, which waits for the other side's {}", text_of(transfer), other);
  return fmt::format("{} rank {} with tag {}, which waits for the other side's {}",
                     transfer.sending ? "send to" : "receive from", transfer.peer, transfer.tag, other);
}

const Transfer* PointToPoint::overdue(uint64_t now_ns) {
  for (auto& [rank, p] : peers_) {
    const Transfer* urgent = p.most_urgent();
    if (!urgent || p.moved || p.last_move_ns == 0) p.last_move_ns = now_ns;
    p.moved = false;
    if (urgent && now_ns - p.last_move_ns > urgent->timeout_ns) return urgent;
  }
  return nullptr;
}

}  // namespace tutti::core
