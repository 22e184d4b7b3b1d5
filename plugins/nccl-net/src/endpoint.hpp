// SPDX-License-Identifier: Apache-2.0
//
// The domain and the endpoint of transport/1 over a network plugin of NCCL.
#pragma once

#include <tutti/plugin/transport.h>

#include <memory>
#include <string_view>
#include <vector>

#include "connector.hpp"
#include "link.hpp"
#include "memory.hpp"
#include "network.hpp"
#include "settings.hpp"

namespace tutti::nccl {

// One per process and communicator configuration.
struct Domain {
  explicit Domain(const tutti_domain_config& config);
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  tutti_region* register_memory(const tutti_memory& memory);
  void deregister_memory(tutti_region* region);
  // Is the memory of this domain's device the network's, too?
  bool has_device() const { return device_kind != TUTTI_MEMORY_HOST && adapter.pointers & kCudaPointer; }

  const Settings settings = Settings::read();
  Network& network;
  const std::unique_ptr<Context> context;  // to ask for adapters
  const int device;
  const Adapter adapter;
  // The settings, or less by the adapter's limit of a message.
  const uint64_t fragment_bytes, eager_bytes;
  const uint32_t device_kind;
  const std::shared_ptr<Registrations> registrations;
};

class Endpoint : public sdk::NetworkEndpoint<Endpoint, Link> {
 public:
  Endpoint(Domain& domain, const tutti_endpoint_config& config);
  // Waits, at most kLinger, until completed messages have left. Comms with requests pending are closed later.
  ~Endpoint();

  void receive_pair(uint32_t peer, std::string_view message) {
    check_peer(peer);
    connector_.receive(peer, message);
  }

  // For NetworkEndpoint.
  Link* link_of(uint32_t peer) const { return links_[peer].get(); }
  Link* reach(uint32_t peer);
  void check_region(const tutti_transfer& transfer) const;
  void advance();
  void flush();
  void give_up(uint32_t peer) { connector_.give_up(peer, is_aborted()); }

  Domain& domain() const { return domain_; }
  const std::shared_ptr<Context>& context() const { return context_; }
  void establish(uint32_t peer, std::unique_ptr<Link> link) { links_[peer] = std::move(link); }

 private:
  void leave_in_order();
  Domain& domain_;
  const std::shared_ptr<Context> context_;    // of the communicator
  std::vector<std::unique_ptr<Link>> links_;  // by peer
  Connector connector_;
};

}  // namespace tutti::nccl
