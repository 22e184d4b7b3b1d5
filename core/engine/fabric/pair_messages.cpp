// SPDX-License-Identifier: Apache-2.0
#include "engine/fabric/pair_messages.hpp"

#include <fmt/format.h>

#include "bootstrap/control_plane.hpp"
#include "registry/host.hpp"

namespace tutti::core {
namespace {

tutti_status refuse(tutti_status status, const std::string& text) {
  host_table()->set_error(host_table()->self, status, text.c_str());
  return status;
}

}  // namespace

const tutti_pair_messages* PairMessages::open(ControlPlane& control, std::string transport) {
  control_ = &control;
  transport_ = std::move(transport);
  table_ = {sizeof table_, 0, this, send};
  return &table_;
}

tutti_status PairMessages::send(void* self, uint32_t peer, const void* data, uint64_t bytes) {
  const auto& [table, control, transport] = *static_cast<PairMessages*>(self);
  try {
    if (peer >= control->nranks() || peer == control->rank())
      return refuse(TUTTI_INVALID_ARGUMENT,
                    fmt::format("{}: a pair message of rank {} to rank {}: expected another rank of 0 to {}", transport,
                                control->rank(), peer, control->nranks() - 1));
    if (bytes > TUTTI_PAIR_BYTES || (!data && bytes))
      return refuse(TUTTI_INVALID_ARGUMENT, fmt::format("{}: a pair message of {} bytes{}: at most {} are carried",
                                                        transport, bytes, data ? "" : " at NULL", TUTTI_PAIR_BYTES));
    if (control->is_gone(peer)) return refuse(TUTTI_PEER_FAILED, fmt::format("{}: rank {} is lost", transport, peer));
    control->send_pair(peer, encode(PairMessageParts{transport, {static_cast<const char*>(data), bytes}}));
    return TUTTI_OK;
  } catch (const Failure& failure) {
    return refuse(failure.status, failure.text);
  } catch (const std::bad_alloc&) {  // nothing of it is on its way
    host_table()->set_error(host_table()->self, TUTTI_NO_RESOURCES, "out of memory for a pair message");
    return TUTTI_NO_RESOURCES;
  }
}

PairMessageParts split_pair_message(uint32_t from, std::string_view message) {
  auto parts = decode<PairMessageParts>(message, fmt::format("rank {}'s pair message", from).c_str());
  if (parts.bytes.size() > TUTTI_PAIR_BYTES)
    throw Failure(TUTTI_MISMATCH, fmt::format("rank {} sent {} a pair message of {} bytes: expected at most {}", from,
                                              parts.transport, parts.bytes.size(), TUTTI_PAIR_BYTES));
  return parts;
}

}  // namespace tutti::core
