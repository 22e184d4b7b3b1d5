// SPDX-License-Identifier: Apache-2.0
#include "engine/p2p/point_to_point.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::core {
namespace {

std::string size_mismatch(const Transfer& receive, uint64_t sent) {
  return fmt::format("{} matched a send of {} bytes: both must be equal", text_of(receive), sent);
}

// Is the message posted with its RTS, as a message of the lane?
bool goes_ahead(const Link& link, const Transfer& send) {
  return !link.view && send.bulk && send.bytes <= std::min(most_eager_bytes, link.fragment);
}

tutti_status send_control(const Link& link, const void* message, uint64_t bytes) {
  return link.port->api->send_control(link.handle, message, bytes);
}

}  // namespace

bool PointToPoint::meet(const MessageHeader& rts, const Transfer& receive) {
  if (receive.any_tag) return !rts.by_stream();
  if (receive.any_peer && rts.by_stream()) return false;
  return rts.tag == receive.tag || (rts.by_stream() && receive.by_stream());
}

Failure PointToPoint::broken_way(const char* what, const Link& link, tutti_status status) {
  // In the transport's own words if it has any.
  const std::string why = take_plugin_error();
  return Failure(status, fmt::format("{} rank {} over {}: {}{}{}", what, link.peer, link.port->api->name,
                                     tutti_status_text(status), why.empty() ? "" : ": ", why));
}

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
  LongPayload* const rest = std::exchange(arrival->rest, nullptr);
  const std::byte* const payload = rest ? rest->bytes.data() : arrival->payload.data();
  match(p, transfer, arrival->rts, arrival->eager ? payload : nullptr);
  if (rest) payloads_.give_back(*rest);
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
      return !a.rts.by_stream() && ((wanted.flags & TUTTI_ANY_TAG) || a.rts.tag == wanted.tag);
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
  const bool owed = peer.owes_credit();
  ++peer.matched;
  if (!owed && peer.owes_credit()) ++replies_;
  if (std::exchange(receive.any_tag, false)) receive.tag = rts.tag;
  std::string difference;
  const bool equal = rts.size == receive.bytes;
  if (rts.by_stream() || receive.on_stream) {
    if (!equal || rts.by_stream() != receive.by_stream() || rts.tag != receive.tag) difference = differ(receive, rts);
  } else if (!payload) {
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
                  rts.size, rts.by_stream() ? "device" : "host", rts.tag, rank_, receive.bytes,
                  receive.by_stream() ? "device" : "host", receive.tag)};
  return fmt::format("rank {} {}", receive.peer, difference_->reason);
}

// Announcing a bulk send is not progress: its time goes on until the other side answers.
bool PointToPoint::announce(Link& link, Peer& peer) {
  bool moved = false;
  while (!peer.waiting.empty() && peer.credit) {
    Transfer& transfer = *peer.waiting.first();
    const bool ahead = goes_ahead(link, transfer);
    if (ahead && !post(link, transfer)) break;
    uint64_t along = 0;
    const tutti_status status = send_rts(link, peer, transfer, &along);
    if (status == TUTTI_AGAIN) break;
    if (status < 0) throw broken_way("send to", link, status);
    moved = true;
    --peer.credit;
    transfer.sequence = peer.next_sequence++;
    link.sent += along;
    peer.waiting.remove(transfer);
    if (transfer.bulk && !along) {
      (ahead ? peer.posted : peer.announced).push(transfer);
      continue;
    }
    peer.moved = true;
    finish(transfer, TUTTI_OK, {});
  }
  return moved;
}

tutti_status PointToPoint::send_rts(Link& link, const Peer& peer, const Transfer& transfer, uint64_t* along) const {
  const bool streams = transfer.by_stream();
  const uint32_t type = streams ? type_stream_rts : goes_ahead(link, transfer) ? type_rts_posted : type_rts;
  const MessageHeader rts{type, transfer.tag, transfer.bytes, peer.next_sequence};
  const auto write = [&](void* to, uint64_t begin) {
    std::memcpy(to, &rts, sizeof rts);
    if (*along) std::memcpy(static_cast<std::byte*>(to) + begin, transfer.data, *along);
  };
  if (link.view && peer.reads_lane) {
    const uint64_t most = std::min(most_eager_bytes, link.fragment - data_begins(most_eager_bytes));
    *along = !streams && transfer.bytes <= most ? transfer.bytes : 0;
    const uint64_t begin = data_begins(*along);
    if (void* const slot = link.view->try_reserve(link.handle, rts_lane_, begin + *along)) {
      write(slot, begin);
      link.view->commit(link.handle, rts_lane_, begin + *along);
      return TUTTI_OK;
    }
  }
  *along = !streams && transfer.bytes <= eager_bytes ? transfer.bytes : 0;
  std::byte message[TUTTI_CONTROL_BYTES];
  write(message, sizeof rts);
  return send_control(link, message, sizeof rts + *along);
}

// Progress reports a failed link.
bool PointToPoint::reply(Link& link, Peer& peer) {
  const uint64_t before = replies_;
  if (peer.owes_credit()) {
    const MessageHeader credit{type_credit, 0, peer.matched, 0};
    if (send_control(link, &credit, sizeof credit) == TUTTI_AGAIN) return false;
    peer.matched = 0;
    peer.greeted = true;
    peer.batch = credit_batch;
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

void PointToPoint::open(Link& link, uint32_t lane, Transfer& t) const {
  Bulk& bulk = *t.bulk;
  if (std::exchange(bulk.opened, true)) return;
  t.sending ? bulk.out.open(&link, lane, t.bytes) : bulk.in.open(&link, lane, t.bytes);
  bulk.out.chooses = t.sending;
  const Registration r = link.port->find(t.data, t.bytes);
  bulk.memory = {r.region, r.offset};
}

bool PointToPoint::post(Link& link, Transfer& t) const {
  open(link, rts_lane_, t);
  Outflow& out = t.bulk->out;
  if (out.status == TUTTI_OK) out.advance(t.data, t.bytes, t.bulk->memory);
  if (out.status < 0) throw broken_way("send to", link, out.status);
  return out.all_handed();
}

bool PointToPoint::move(Link& link, Transfer& t, bool* moved) const {
  Bulk& bulk = *t.bulk;
  Flow& flow = t.sending ? static_cast<Flow&>(bulk.out) : bulk.in;
  open(link, lane_, t);
  if (flow.status == TUTTI_OK)
    t.sending ? bulk.out.advance(t.data, t.bytes, bulk.memory) : bulk.in.advance(t.data, false, bulk.memory.region);
  const uint64_t now = t.sending ? flow.handed : flow.completed;
  *moved |= std::exchange(flow.seen, now) != now;
  if (flow.status < 0) throw broken_way(t.sending ? "send to" : "receive from", link, flow.status);
  return t.sending ? bulk.out.done() : bulk.in.done();
}

bool PointToPoint::advance_peer(uint32_t rank, Peer& p) {
  Link& link = links_[rank];
  bool moved = (p.owes_credit() || !p.answered.empty()) && reply(link, p);
  const bool announced = !p.waiting.empty() && announce(link, p);
  if (listens_to(p)) moved |= listen(rank, p);
  if (p.landing) moved |= land(rank, p);
  for (auto* queue : {&p.posted, &p.outgoing, &p.incoming})
    while (!queue->empty() && move(link, *queue->first(), &moved)) {
      finish(queue->pop(), TUTTI_OK, {});
      moved = true;
    }
  p.moved |= moved;
  return moved || announced;
}

void PointToPoint::fail_all(tutti_status status, const std::string& error) {
  for (auto& [rank, p] : peers_)
    for (auto* queue : {&p.waiting, &p.posted, &p.announced, &p.receives, &p.answered, &p.outgoing, &p.incoming})
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
