// SPDX-License-Identifier: Apache-2.0
#include "engine/p2p/point_to_point.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/failure.hpp"

namespace tutti::core {
namespace {

// A link that fails ends the communicator. In the transport's own words if it has any.
Failure broken_way(const char* what, const Link& link, tutti_status status) {
  const std::string why = take_plugin_error();
  return Failure(status, fmt::format("{} rank {} over {}: {}{}{}", what, link.peer, link.port->api->name,
                                     tutti_status_text(status), why.empty() ? "" : ": ", why));
}

std::string size_mismatch(const Transfer& receive, uint64_t sent) {
  return fmt::format("{} matched a send of {} bytes: both must be equal", text_of(receive), sent);
}

enum : uint32_t { type_rts = 0x54545031, type_cts, type_reject, type_credit, type_stream_rts };

bool by_stream(const MessageHeader& rts) { return rts.type == type_stream_rts; }
bool is_eager(const MessageHeader& rts) { return rts.size <= eager_bytes && !by_stream(rts); }

// True if this send matches this receive. Transfers by streams match in the order of the calls.
bool meet(const MessageHeader& rts, const Transfer& receive) {
  if (receive.any_tag) return !by_stream(rts);
  if (receive.any_peer && by_stream(rts)) return false;
  return rts.tag == receive.tag || (by_stream(rts) && receive.by_stream());
}

tutti_status send_control(const Link& link, const void* message, uint64_t bytes) {
  return link.port->api->send_control(link.handle, message, bytes);
}

}  // namespace

void PointToPoint::start(Transfer& transfer) {
  if (transfer.bytes > eager_bytes && !transfer.on_stream) {
    transfer.bulk = &bulks_.take();
    transfer.bulk->opened = false;
  }
  Peer& own = home(transfer);
  transfer.begun_ns = 0;
  ++active_;
  if (transfer.sending) return own.waiting.push(transfer);
  transfer.order = ++order_;
  own.receives.push(transfer);
  UnexpectedMessage* arrival = nullptr;
  uint32_t from = transfer.peer;
  const auto look = [&](uint32_t rank, const Peer& p) {
    UnexpectedMessage* const found = p.arrivals.find([&](const UnexpectedMessage& a) { return meet(a.rts, transfer); });
    if (!found || (arrival && arrival->order < found->order)) return;
    arrival = found;
    from = rank;
  };
  if (transfer.any_peer)
    for (const auto& [rank, p] : peers_) look(rank, p);
  else
    look(from, own);
  if (!arrival) return;
  Peer& p = transfer.any_peer ? adopt(transfer, from) : own;
  p.arrivals.remove(*arrival);
  --p.unmatched;
  match(p, transfer, arrival->rts, arrival->payload.data());
  arrivals_.give_back(*arrival);
}

PointToPoint::Peer& PointToPoint::adopt(Transfer& receive, uint32_t rank) {
  anyone_.receives.remove(receive);
  receive.any_peer = false;
  receive.peer = rank;
  Peer& p = peer(rank);
  p.receives.push(receive);
  return p;
}

std::optional<tutti_envelope> PointToPoint::probe(const tutti_envelope& wanted) const {
  const UnexpectedMessage* first = nullptr;
  uint32_t from = 0;
  for (const auto& [rank, p] : peers_) {
    if (!(wanted.flags & TUTTI_ANY_PEER) && rank != wanted.peer) continue;
    const UnexpectedMessage* const found = p.arrivals.find([&](const UnexpectedMessage& a) {
      return !by_stream(a.rts) && ((wanted.flags & TUTTI_ANY_TAG) || a.rts.tag == wanted.tag);
    });
    if (!found || (first && first->order < found->order)) continue;
    first = found;
    from = rank;
  }
  if (!first) return std::nullopt;
  return tutti_envelope{sizeof(tutti_envelope), wanted.flags, from, first->rts.tag, first->rts.size};
}

void PointToPoint::finish(Transfer& transfer, tutti_status status, const std::string& error) {
  if (transfer.bulk) bulks_.give_back(*std::exchange(transfer.bulk, nullptr));
  --active_;
  if (transfer.envelope && status == TUTTI_OK) {
    transfer.envelope->peer = transfer.peer;
    transfer.envelope->tag = transfer.tag;
    transfer.envelope->bytes = transfer.bytes;
  }
  ended_(transfer, status, error);
}

void PointToPoint::match(Peer& peer, Transfer& receive, const MessageHeader& rts, const std::byte* payload) {
  if (++peer.matched == credit_batch) ++replies_;
  if (std::exchange(receive.any_tag, false)) receive.tag = rts.tag;
  std::string difference;
  const bool equal = rts.size == receive.bytes;
  if (by_stream(rts) || receive.on_stream) {
    if (!equal || by_stream(rts) != receive.by_stream() || rts.tag != receive.tag) difference = differ(receive, rts);
  } else if (!is_eager(rts)) {
    receive.sequence = rts.sequence;
    receive.sent = rts.size;
    peer.receives.remove(receive);
    peer.answered.push(receive);
    ++replies_;
    return;
  } else if (!equal) {
    difference = size_mismatch(receive, rts.size);
  } else if (rts.size) {
    std::memcpy(receive.data, payload, rts.size);
  }
  peer.receives.remove(receive);
  finish(receive, difference.empty() ? TUTTI_OK : TUTTI_MISMATCH, difference);
}

std::string PointToPoint::differ(const Transfer& receive, const MessageHeader& rts) {
  difference_ = CallDifference{
      receive.peer,
      fmt::format("sent {} bytes of {} memory with tag {}, which met rank {}'s receive of {} bytes of {} memory with "
                  "tag {}: both have to be device memory, or both host memory, and equal in size and tag",
                  rts.size, by_stream(rts) ? "device" : "host", rts.tag, rank_, receive.bytes,
                  receive.by_stream() ? "device" : "host", receive.tag)};
  return fmt::format("rank {} {}", receive.peer, difference_->reason);
}

// Announcing a bulk send is not progress: its time goes on until the other side answers.
bool PointToPoint::announce(Link& link, Peer& peer) {
  bool moved = false;
  while (!peer.waiting.empty() && peer.credit) {
    Transfer& transfer = *peer.waiting.first();
    std::byte message[TUTTI_CONTROL_BYTES];
    const MessageHeader rts{transfer.by_stream() ? type_stream_rts : type_rts, transfer.tag, transfer.bytes,
                            peer.next_sequence};
    std::memcpy(message, &rts, sizeof rts);
    const uint64_t payload = is_eager(rts) ? transfer.bytes : 0;
    if (payload) std::memcpy(message + sizeof rts, transfer.data, payload);
    const tutti_status status = send_control(link, message, sizeof rts + payload);
    if (status == TUTTI_AGAIN) break;
    if (status < 0) throw broken_way("send to", link, status);
    moved = true;
    --peer.credit;
    transfer.sequence = peer.next_sequence++;
    link.sent += payload;
    peer.waiting.remove(transfer);
    if (transfer.bulk) {
      peer.announced.push(transfer);
      continue;
    }
    peer.moved = true;
    finish(transfer, TUTTI_OK, {});
  }
  return moved;
}

// Progress reports a failed link.
bool PointToPoint::reply(Link& link, Peer& peer) {
  const uint64_t before = replies_;
  if (peer.owes_credit()) {
    const MessageHeader credit{type_credit, 0, peer.matched, 0};
    if (send_control(link, &credit, sizeof credit) == TUTTI_AGAIN) return false;
    peer.matched = 0;
    --replies_;
  }
  while (!peer.answered.empty()) {
    Transfer& receive = *peer.answered.first();
    const bool equal = receive.sent == receive.bytes;
    const std::string difference = equal ? "" : size_mismatch(receive, receive.sent);
    const MessageHeader answer{equal ? type_cts : type_reject, 0, equal ? 0 : receive.bytes, receive.sequence};
    if (send_control(link, &answer, sizeof answer) == TUTTI_AGAIN) break;
    peer.answered.remove(receive);
    ++peer.answered_here;
    --replies_;
    if (equal)
      peer.incoming.push(receive);
    else
      finish(receive, TUTTI_MISMATCH, difference);
  }
  return replies_ != before;
}

bool PointToPoint::move(Link& link, Transfer& t, bool* moved) const {
  Bulk& bulk = *t.bulk;
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
  return t.sending ? bulk.out.done() : bulk.in.done();
}

bool PointToPoint::advance_peer(uint32_t rank, Peer& p) {
  Link& link = links_[rank];
  bool moved = reply(link, p);
  const bool announced = announce(link, p);
  for (auto* queue : {&p.outgoing, &p.incoming})
    while (!queue->empty() && move(link, *queue->first(), &moved)) {
      finish(queue->pop(), TUTTI_OK, {});
      moved = true;
    }
  p.moved |= moved;
  return moved || announced;
}

bool PointToPoint::on_rts(uint32_t rank, const MessageHeader& rts, const std::byte* payload, uint64_t bytes,
                          std::string* error) {
  Peer& p = peer(rank);
  if (const uint32_t held = p.unmatched + p.matched; bytes != (is_eager(rts) ? rts.size : 0) || held >= rts_credit) {
    *error = fmt::format("an RTS that breaks the protocol (size {}, {} bytes along, {} without credit)", rts.size,
                         bytes, held);
    return false;
  }
  links_[rank].received += bytes;
  ++p.heard.told;
  const auto meets = [&](const Transfer& t) { return meet(rts, t); };
  Transfer* receive = p.receives.find(meets);
  if (Transfer* any = anyone_.receives.find(meets); any && (!receive || any->order < receive->order)) {
    adopt(*any, rank);
    receive = any;
  }
  if (receive) {
    match(p, *receive, rts, payload);
    return true;
  }
  UnexpectedMessage& arrival = arrivals_.take();
  arrival.rts = rts;
  arrival.order = ++order_;
  if (bytes) std::memcpy(arrival.payload.data(), payload, bytes);
  p.arrivals.push(arrival);
  ++p.unmatched;
  return true;
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
    case type_rts:
      return on_rts(rank, e, data + sizeof e, bytes - sizeof e, error);
    case type_cts:
    case type_reject: {
      Transfer* transfer = p.announced.find([&](const Transfer& t) { return t.sequence == e.sequence; });
      if (!transfer) {
        *error = fmt::format("an answer to send {}, which was never announced", e.sequence);
        return false;
      }
      ++p.heard.answered;
      const bool rejected = e.type == type_reject;
      const std::string difference =
          rejected
              ? fmt::format("send of {} bytes to rank {} with tag {} met a receive of {} bytes: both must be equal",
                            transfer->bytes, rank, transfer->tag, e.size)
              : "";
      p.announced.remove(*transfer);
      if (rejected)
        finish(*transfer, TUTTI_MISMATCH, difference);
      else
        p.outgoing.push(*transfer);
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
  for (auto& [rank, p] : peers_)
    for (auto* queue : {&p.waiting, &p.announced, &p.receives, &p.answered, &p.outgoing, &p.incoming})
      while (!queue->empty()) {
        Transfer& transfer = queue->pop();
        transfer.bulk = nullptr;  // a transport may still know it
        finish(transfer, status, error);
      }
  while (!anyone_.receives.empty()) finish(anyone_.receives.pop(), status, error);
  peers_.clear();
  replies_ = 0;
}

TransferCounts PointToPoint::counts(uint32_t peer) const {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return {};
  return {found->second.next_sequence, found->second.answered_here};
}

const Transfer* PointToPoint::left_behind(const Departed& departed) const {
  bool all_heard = departed.size() + 1 == links_.size();
  for (const auto& [rank, last] : departed) {
    const auto found = peers_.find(rank);
    const TransferCounts heard = found == peers_.end() ? TransferCounts{} : found->second.heard;
    all_heard &= heard.told == last.told;
    if (found == peers_.end()) continue;
    const Peer& p = found->second;
    if (heard.told == last.told && !p.receives.empty()) return p.receives.first();
    if (heard.answered == last.answered && !p.announced.empty()) return p.announced.first();
  }
  return all_heard ? anyone_.receives.first() : nullptr;
}

const Transfer* PointToPoint::Peer::oldest() const {
  for (const auto* queue : queues())
    if (!queue->empty()) return queue->first();
  return nullptr;
}

const Transfer* PointToPoint::Peer::overdue(uint64_t now_ns) {
  if (std::exchange(moved, false)) last_move_ns = now_ns;
  const auto late = [&](Transfer& transfer) {
    if (!transfer.begun_ns) transfer.begun_ns = now_ns;
    return now_ns - std::max(transfer.begun_ns, last_move_ns) > transfer.timeout_ns;
  };
  for (const auto* queue : queues())
    if (const Transfer* transfer = queue->find(late)) return transfer;
  return nullptr;
}

const Transfer* PointToPoint::oldest() const {
  for (const auto& [rank, p] : peers_)
    if (const Transfer* transfer = p.oldest()) return transfer;
  return anyone_.oldest();
}

std::string PointToPoint::standpoint(const Transfer& transfer) {
  const char* other = transfer.sending ? "receive" : "send";
  if (transfer.on_stream)
    return fmt::format("{} on device memory, which waits for the other side's {}", text_of(transfer), other);
  return fmt::format("{} {}, which waits for the other side's {}", transfer.sending ? "send to" : "receive from",
                     other_end_of(transfer), other);
}

std::string PointToPoint::hint(const Transfer& transfer) const {
  if (!transfer.sending || transfer.on_stream) return "";
  for (const auto& [rank, p] : peers_)
    if (const UnexpectedMessage* arrival = p.arrivals.first())
      return fmt::format(
          "; rank {} sends to this rank too, with tag {}, and no receive was issued for it: ranks that send to "
          "each other put the sends and receives into one group (tutti_exchange), or issue the receives first with "
          "requests",
          rank, arrival->rts.tag);
  return "";
}

const Transfer* PointToPoint::overdue(uint64_t now_ns) {
  const Transfer* late = anyone_.overdue(now_ns);
  for (auto& [rank, p] : peers_)
    if (const Transfer* transfer = p.overdue(now_ns); transfer && !late) late = transfer;
  return late;
}

}  // namespace tutti::core
