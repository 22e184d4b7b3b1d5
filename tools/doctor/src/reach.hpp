// SPDX-License-Identifier: Apache-2.0
//
// Can a TCP connection be made to another host? Seen by making it: routes, firewalls and doubled addresses all show.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace doctor {

// Listens on a port of TUTTI_TCP_PORTS, else an ephemeral one, of all addresses. A thread sends the token to each peer
// that connects, until destruction.
class Listener {
 public:
  // `ports`: "FIRST-LAST" or "". Throws std::runtime_error.
  explicit Listener(const std::string& ports);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  uint16_t port() const { return port_; }
  uint64_t token() const { return token_; }

 private:
  void serve() const;
  int socket_ = -1;
  uint16_t port_ = 0;
  uint64_t token_ = std::random_device{}() | uint64_t{std::random_device{}()} << 32;
  std::thread thread_;
};

struct Target {
  std::string address;  // numeric, IPv4 or IPv6
  uint16_t port = 0;
  uint64_t token = 0;
  std::string problem;  // filled in: why it was not reached; "": reached
};

// Tries many at once, each for so many milliseconds.
void reach(std::vector<Target>& targets, int milliseconds = 2000);

// The addresses that the transport tcp would tell to other hosts; loopback is not among them.
std::vector<std::string> own_addresses();

}  // namespace doctor
