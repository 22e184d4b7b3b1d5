// SPDX-License-Identifier: Apache-2.0
#include "engine/point_to_point.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::core {
namespace {

// In the transport's own words where it has some.
std::string broken_way(const char* what, const Link& link, tutti_status status) {
  const std::string why = take_plugin_error();
  return fmt::format("{} rank {} over {}: {}{}{}", what, link.peer, link.port->api->name, tutti_status_text(status),
                     why.empty() ? "" : ": ", why);
}

enum : uint32_t { type_envelope = 0x54545031, type_ticket, type_reject, type_credit, type_stream_envelope };

bool on_stream(const Envelope& envelope) { return envelope.type == type_stream_envelope; }

// Has this send to meet this receive? On streams everything meets in the order of the calls.
bool meet(const Envelope& envelope, const Transfer& receive) {
  return envelope.tag == receive.tag || (on_stream(envelope) && receive.on_stream);
}

}  // namespace

void PointToPoint::place(uint32_t rank, std::vector<Link>* links, uint32_t lane, uint64_t control_bytes) {
  rank_ = rank;
  links_ = links;
  lane_ = lane;
  eager_bytes_ = control_bytes - sizeof(Envelope);
}

void PointToPoint::start(Transfer* transfer) {
  Peer& p = peer(transfer->peer);
  if (!p.oldest()) p.last_move_ns = 0;  // its time begins now, not when the last one ended
  ++active_;
  if (transfer->sending) {
    p.waiting.push_back(transfer);
    return;
  }
  const auto found =
      std::find_if(p.arrivals.begin(), p.arrivals.end(), [&](const Arrival& a) { return meet(a.envelope, *transfer); });
  if (found == p.arrivals.end()) {
    p.receives.push_back(transfer);
    return;
  }
  const Arrival arrival = std::move(*found);
  p.arrivals.erase(found);
  match(transfer->peer, p, transfer, arrival);
}

void PointToPoint::finish(Transfer* transfer, tutti_status status, const std::string& error) {
  transfer->done = true;
  transfer->status = status;
  transfer->error = error;
  --active_;
  if (transfer->finished) transfer->finished();
}

void PointToPoint::reply(Peer& peer, uint32_t type, uint64_t sequence, uint64_t size) {
  const Envelope envelope{type, 0, size, sequence};
  peer.replies.emplace_back(reinterpret_cast<const char*>(&envelope), sizeof envelope);
  ++replies_;
}

void PointToPoint::match(uint32_t rank, Peer& peer, Transfer* receive, const Arrival& arrival) {
  const Envelope& e = arrival.envelope;
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
  reply(peer, type_ticket, e.sequence, 0);
  auto bulk = std::make_unique<Bulk>();
  bulk->transfer = receive;
  peer.incoming.push_back(std::move(bulk));
}

void PointToPoint::differ(Transfer* receive, const Envelope& e) {
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
    const Envelope envelope{transfer->on_stream ? type_stream_envelope : type_envelope, transfer->tag, transfer->bytes,
                            peer.next_sequence};
    std::memcpy(message, &envelope, sizeof envelope);
    const bool eager = transfer->bytes <= eager_bytes_ && !transfer->on_stream;
    if (eager && transfer->bytes) std::memcpy(message + sizeof envelope, transfer->data, transfer->bytes);
    const uint64_t size = sizeof envelope + (eager ? transfer->bytes : 0);
    const tutti_status status = link.port->api->send_control(link.handle, message, size);
    if (status == TUTTI_AGAIN) return moved;
    peer.waiting.pop_front();
    moved = true;
    if (status < 0) {
      finish(transfer, status,
             fmt::format("send to rank {} over {}: {}", rank, link.port->api->name, take_plugin_error()));
      continue;
    }
    --peer.credit;
    transfer->sequence = peer.next_sequence++;
    if (transfer->on_stream) {
      finish(transfer, TUTTI_OK, {});
    } else if (eager) {
      link.sent += transfer->bytes;
      finish(transfer, TUTTI_OK, {});
    } else {
      peer.announced[transfer->sequence] = transfer;
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
    peer.replies.pop_front();  // a failed link is told of by progress
    --replies_;
    moved = true;
  }
  return moved;
}

bool PointToPoint::move(uint32_t rank, Peer& peer) {
  Link& link = (*links_)[rank];
  bool moved = false;
  while (!peer.outgoing.empty()) {
    Bulk& bulk = *peer.outgoing.front();
    if (!bulk.opened) {
      bulk.out.open(&link, lane_, bulk.transfer->bytes);
      const Registration r = Memory::process().find(*link.port->domain, bulk.transfer->data, bulk.transfer->bytes);
      bulk.place = {r.region, r.offset};
    }
    bulk.opened = true;
    const uint64_t before = bulk.out.handed;
    if (bulk.out.status == TUTTI_OK) bulk.out.advance(bulk.transfer->data, bulk.transfer->bytes, bulk.place);
    moved |= bulk.out.handed != before;
    if (bulk.out.status < 0 ? bulk.out.pending != 0 : !bulk.out.done()) break;
    finish(bulk.transfer, bulk.out.status,
           bulk.out.status < 0 ? broken_way("send to", link, bulk.out.status) : std::string());
    peer.outgoing.pop_front();
    moved = true;
  }
  while (!peer.incoming.empty()) {
    Bulk& bulk = *peer.incoming.front();
    if (!bulk.opened) {
      bulk.in.open(&link, lane_, bulk.transfer->bytes);
      const Registration r = Memory::process().find(*link.port->domain, bulk.transfer->data, bulk.transfer->bytes);
      bulk.place = {r.region, r.offset};
    }
    bulk.opened = true;
    if (bulk.in.status == TUTTI_OK) bulk.in.advance(bulk.transfer->data, false, bulk.place.region);
    moved |= std::exchange(bulk.in.seen, bulk.in.completed) != bulk.in.completed;
    if (bulk.in.status < 0 ? bulk.in.pending != 0 : !bulk.in.done()) break;
    finish(bulk.transfer, bulk.in.status,
           bulk.in.status < 0 ? broken_way("receive from", link, bulk.in.status) : std::string());
    peer.incoming.pop_front();
    moved = true;
  }
  return moved;
}

bool PointToPoint::advance_peer(uint32_t rank, Peer& p) {
  bool moved = false;
  if (!p.replies.empty()) moved |= flush(rank, p);
  if (!p.waiting.empty()) moved |= announce(rank, p);
  if (!p.outgoing.empty() || !p.incoming.empty()) moved |= move(rank, p);
  p.moved |= moved;
  return moved;
}

bool PointToPoint::on_control(uint32_t rank, const std::byte* data, uint64_t bytes, std::string* error) {
  Envelope e{};
  if (bytes < sizeof e) {
    *error = fmt::format("a control message of {} bytes, expected at least {}", bytes, sizeof e);
    return false;
  }
  std::memcpy(&e, data, sizeof e);
  Peer& p = peer(rank);
  p.moved = true;
  switch (e.type) {
    case type_stream_envelope:
    case type_envelope: {
      const uint64_t payload = bytes - sizeof e;
      if (payload != (e.size <= eager_bytes_ && !on_stream(e) ? e.size : 0) || p.arrivals.size() >= envelope_credit) {
        *error = fmt::format("an envelope that breaks the protocol (size {}, {} bytes along, {} unmatched)", e.size,
                             payload, p.arrivals.size());
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
    case type_ticket:
    case type_reject: {
      const auto found = p.announced.find(e.sequence);
      if (found == p.announced.end()) {
        *error = fmt::format("an answer to send {}, which was never announced", e.sequence);
        return false;
      }
      Transfer* transfer = found->second;
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
      return true;
    }
    case type_credit:
      if (e.size > envelope_credit - p.credit) {
        *error = fmt::format("credit for {} envelopes where {} are out", e.size, envelope_credit - p.credit);
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
  for (auto& [rank, p] : peers_) {
    for (Transfer* t : p.waiting) finish(t, status, error);
    for (auto& [sequence, t] : p.announced) finish(t, status, error);
    for (Transfer* t : p.receives) finish(t, status, error);
    for (auto* queue : {&p.outgoing, &p.incoming})
      for (auto& bulk : *queue) {
        finish(bulk->transfer, status, error);
        failed_.push_back(std::move(bulk));
      }
  }
  peers_.clear();
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
