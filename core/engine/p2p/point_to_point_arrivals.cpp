// SPDX-License-Identifier: Apache-2.0
//
// The messages of the other ranks: control messages, RTS messages in lanes, and bytes that were posted with their RTS.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/p2p/point_to_point.hpp"

namespace tutti::core {

bool PointToPoint::take_from_lane(uint32_t rank, Peer& p, std::string* error) {
  Link& link = links_[rank];
  if (!p.greeted || !link.view || !link.handle) return false;
  uint64_t bytes = 0;
  const auto* const message = static_cast<const std::byte*>(link.view->try_receive(link.handle, rts_lane_, &bytes));
  if (!message) return false;
  MessageHeader rts{};
  if (bytes >= sizeof rts) std::memcpy(&rts, message, sizeof rts);
  if (rts.type != type_rts && rts.type != type_stream_rts) {
    *error = fmt::format("{} bytes of type {:#x} in the lane of RTS messages", bytes, rts.type);
    return false;
  }
  if (rts.sequence != p.heard.told) return false;
  p.moved = true;
  const uint64_t begin = bytes <= 2 * sizeof rts ? sizeof rts : std::min(bytes, data_begins(bytes));
  link.received += bytes - begin;
  const bool taken = on_rts(rank, rts, message + begin, bytes - begin, error);
  link.view->release(link.handle, rts_lane_);
  return taken;
}

bool PointToPoint::listen(uint32_t rank, Peer& p) {
  bool moved = false;
  std::string error;
  while (listens_to(p) && take_from_lane(rank, p, &error)) moved = true;
  if (!error.empty()) difference_ = CallDifference{rank, "sent " + error};
  return moved;
}

bool PointToPoint::keep(uint32_t rank, const MessageHeader& rts, const std::byte* payload, uint64_t bytes,
                        std::string* error) {
  Peer& p = peer(rank);
  const bool in_lane = rts.type == type_rts_posted;
  if (p.landing == rts_credit || bytes > most_eager_bytes || (in_lane && (bytes || rts.size > most_eager_bytes))) {
    *error = fmt::format("an RTS of {} bytes, {} along, behind {} others: more than were allowed", rts.size, bytes,
                         p.landing);
    return false;
  }
  Landing& landing = landings_.take();
  landing.rts = rts;
  landing.rts.type = in_lane ? type_rts : rts.type;
  landing.in.open(&links_[rank], rts_lane_, in_lane ? rts.size : bytes);
  if (!in_lane) {
    if (bytes) std::memcpy(landing.bytes.data(), payload, bytes);
    landing.in.handed = landing.in.completed = bytes;
    landing.in.signalled = true;
  }
  p.landings.push(landing);
  ++p.landing;
  ++replies_;
  return true;
}

bool PointToPoint::land(uint32_t rank, Peer& p) {
  for (Landing* landing = p.landings.first(); landing; landing = landing->next) {
    Inflow& in = landing->in;
    if (in.status == TUTTI_OK) in.advance(landing->bytes.data(), false);
    if (in.status < 0) throw broken_way("receive from", links_[rank], in.status);
    if (!in.all_handed()) break;
  }
  bool moved = false;
  std::string error;
  while (p.landing && p.landings.first()->in.done()) {
    Landing& landing = p.landings.pop();
    --p.landing;
    --replies_;
    p.moved = moved = true;
    const bool taken = on_rts(rank, landing.rts, landing.bytes.data(), landing.in.bytes, &error);
    landings_.give_back(landing);
    if (taken) continue;
    difference_ = CallDifference{rank, "sent " + error};
    break;
  }
  return moved;
}

bool PointToPoint::on_rts(uint32_t rank, const MessageHeader& rts, const std::byte* payload, uint64_t bytes,
                          std::string* error) {
  Peer& p = peer(rank);
  while (rts.sequence != p.heard.told && take_from_lane(rank, p, error)) {
  }
  const bool eager = bytes == rts.size && !rts.by_stream();
  const uint32_t held = p.unmatched + p.matched;
  if (rts.sequence != p.heard.told || (!eager && bytes) || bytes > most_eager_bytes || held >= rts_credit) {
    *error = fmt::format(
        "an RTS that breaks the protocol (number {}, expected {}; size {}, {} bytes along, {} without credit)",
        rts.sequence, p.heard.told, rts.size, bytes, held);
    return false;
  }
  ++p.heard.told;
  const auto meets = [&](const Transfer& t) { return meet(rts, t); };
  Transfer* receive = p.receives.find(meets);
  if (Transfer* any = anyone_.receives.find(meets); any && (!receive || any->order < receive->order)) {
    adopt(*any, rank);
    receive = any;
  }
  if (receive) {
    match(p, *receive, rts, eager ? payload : nullptr);
    return true;
  }
  UnexpectedMessage& arrival = arrivals_.take();
  arrival.rts = rts;
  arrival.order = ++order_;
  arrival.eager = eager;
  if (bytes > eager_bytes) arrival.rest = &payloads_.take();
  if (bytes) std::memcpy(arrival.rest ? arrival.rest->bytes.data() : arrival.payload.data(), payload, bytes);
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
    case type_rts_posted:
      bytes -= sizeof e;
      links_[rank].received += bytes;
      if (p.landing || e.type == type_rts_posted) return keep(rank, e, data + sizeof e, bytes, error);
      return on_rts(rank, e, data + sizeof e, bytes, error);
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
      p.reads_lane = true;
      return true;
    default:
      *error = fmt::format("a control message of unknown type {:#x}", e.type);
      return false;
  }
}

}  // namespace tutti::core
