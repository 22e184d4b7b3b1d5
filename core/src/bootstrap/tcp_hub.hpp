// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <string>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/deadline.hpp"
#include "bootstrap/descriptor.hpp"
#include "bootstrap/socket_address.hpp"

namespace tutti::core {

struct TcpHubConfig {
  Descriptor listener;
  std::string place;      // what it listens on, for messages
  SocketAddress address;  // of the listener; set by the hub
  uint32_t nranks = 0;
  uint32_t newcomers = 0;  // the last ranks, which are numbered as they come
  std::string secret;
  std::string job;
  // A rank of another world is turned away like a stranger instead of ending the meeting: where a stale address may
  // have led it here.
  bool lenient = false;
  std::function<std::string()> hopeless = nullptr;  // as in Rendezvous
  std::chrono::nanoseconds handshake_limit = std::chrono::seconds(10);
  std::shared_ptr<const Tls> tls = nullptr;
  BootstrapLog log;
};

// Rank 0 of a star: all other ranks connect to it, and the connections stay as the control plane. One thread, one
// epoll: strangers and slow handshakes hold up nobody. Returns when all ranks have joined.
std::unique_ptr<Bootstrap> open_hub(TcpHubConfig config, const Deadline& deadline);

}  // namespace tutti::core
