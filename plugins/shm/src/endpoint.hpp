// SPDX-License-Identifier: Apache-2.0
//
// One rank of one communicator: its doorbell, its links, and the connections on which links come about.
#pragma once

#include <tutti/plugin/transport.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tutti/sdk/plugin.hpp>
#include <vector>

#include "link.hpp"
#include "pair_claim.hpp"
#include "region.hpp"
#include "wire.hpp"

namespace tutti::shm {

// A connection whose handshake is under way.
struct Connection {
  enum Step { kAwaitHello, kAwaitChallenge, kAwaitProof, kAwaitSetup };
  Socket socket;
  bool active = false;             // this rank began it
  std::optional<PairClaim> claim;  // ... and may
  Step step = kAwaitHello;
  uint32_t peer = 0;  // claimed until kAwaitSetup, proved from then on
  Terms mine{}, theirs{};
  std::shared_ptr<Mapping> segment;  // the lower rank's, once it sent Setup
};

class Endpoint {
 public:
  Endpoint(Domain& domain, const tutti_endpoint_config& config);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  std::string address() const;
  Link* connect(uint32_t peer, std::string_view address);
  uint32_t post(std::span<const tutti_transfer> transfers);
  uint32_t progress(std::span<tutti_completion> completions);
  void fail_peer(uint32_t peer);
  void abort();

  // wait_fd/1.
  int wait_fd() const { return epoll_.get(); }
  bool arm();
  void disarm();

 private:
  bool take(const tutti_transfer& transfer);
  uint32_t deliver_control(std::span<tutti_completion> completions);
  uint32_t deliver_ends(std::span<tutti_completion> completions);
  bool has_news();

  // Sockets and handshakes.
  void read_sockets();
  void accept_connections();
  void step(Connection& connection);
  void advance(Connection& connection, Packet& packet);
  void on_hello(Connection& connection, const Hello& hello);
  void on_challenge(Connection& connection, const Challenge& challenge);
  void authenticated(Connection& connection);
  void on_setup(Connection& connection, Packet& packet);
  void make_link(Connection& connection, FileDescriptor doorbell, FileDescriptor eventfd,
                 std::shared_ptr<Mapping> segment);
  void check_terms(const Terms& theirs) const;
  Terms terms_for(uint32_t peer) const;
  Address check_address(uint32_t peer, std::string_view bytes) const;
  bool connecting(uint32_t peer) const;
  void drop(Connection& connection);
  void watch(int fd);
  Doorbell& doorbell() const { return *reinterpret_cast<Doorbell*>(doorbell_->data()); }
  std::string me() const { return "shm: rank " + std::to_string(rank_) + " of " + name_; }

  Domain& domain_;
  const uint32_t rank_, nranks_, lanes_;
  const std::string name_, secret_;
  const uint64_t communicator_;
  const Geometry geometry_;
  Address address_{};

  FileDescriptor epoll_, listener_, eventfd_, doorbell_file_;
  std::shared_ptr<Mapping> doorbell_;
  std::vector<std::unique_ptr<Link>> links_;  // by rank
  std::vector<uint8_t> given_up_;             // by rank
  bool aborted_ = false;
  uint32_t link_count_ = 0;
  std::map<int, std::unique_ptr<Connection>> connections_;  // by descriptor
  std::map<int, Link*> link_sockets_;
  std::map<uint32_t, sdk::Error> connect_errors_;  // by rank, until connect tells it

  Attention attention_;
  uint32_t calls_ = 0;
  size_t next_active_ = 0;
  std::vector<uint64_t> control_pending_;  // ranks whose control ring is not empty yet, as bits
  bool any_control_pending_ = false;
  std::array<std::array<uint8_t, kControlBytes>, kControlDepth> control_data_;
};

}  // namespace tutti::shm
