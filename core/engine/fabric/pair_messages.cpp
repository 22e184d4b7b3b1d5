// SPDX-License-Identifier: Apache-2.0
#include "engine/fabric/pair_messages.hpp"

#include <fmt/format.h>

#include "base/failure.hpp"
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
    control->send_pair(peer, join_pair_message(transport, {static_cast<const char*>(data), bytes}));
    return TUTTI_OK;
  } catch (const Failure& failure) {
    return refuse(failure.status, failure.text);
  } catch (const std::bad_alloc&) {  // nothing of it is on its way
    host_table()->set_error(host_table()->self, TUTTI_NO_RESOURCES, "out of memory for a pair message");
    return TUTTI_NO_RESOURCES;
  }
}

std::string join_pair_message(std::string_view transport, std::string_view bytes) {
  std::string message(1, static_cast<char>(transport.size()));
  return message.append(transport).append(bytes);
}

PairMessageParts split_pair_message(uint32_t from, std::string_view message) {
  const size_t length = message.empty() ? 0 : static_cast<unsigned char>(message[0]);
  if (length == 0 || message.size() < 1 + length || message.size() > 1 + length + TUTTI_PAIR_BYTES)
    throw Failure(TUTTI_MISMATCH,
                  fmt::format("rank {} sent a pair message of {} bytes in a form that is not understood: do all ranks "
                              "run the same version of Tutti?",
                              from, message.size()));
  return {message.substr(1, length), message.substr(1 + length)};
}

}  // namespace tutti::core
