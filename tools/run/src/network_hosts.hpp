// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tuttirun {

class Keeper;

// Runs `script arguments...` in a process group of its own and gives its exit status (128 + signal).
int run_script(const std::string& script, const std::vector<std::string>& arguments);

// Network namespaces that stand for hosts, made and removed by tools/netns/hosts.sh. They live as long as the object;
// should tuttirun be killed, the keeper removes them, and should that be killed too, the next run.
class NetworkHosts {
 public:
  // Throws std::runtime_error when they cannot be made: not root, no iproute2, no script.
  NetworkHosts(uint32_t hosts, Keeper& keeper);
  NetworkHosts(const NetworkHosts&) = delete;
  NetworkHosts& operator=(const NetworkHosts&) = delete;
  ~NetworkHosts();

  // A descriptor of the namespace, for setns(2).
  int descriptor(uint32_t host) const { return descriptors_[host]; }
  // The host's share of the cores that this process may use; with fewer cores than hosts some share one.
  cpu_set_t cores(uint32_t host) const;
  static std::string address_of_first() { return "10.77.0.1"; }

 private:
  std::string script_, prefix_;
  std::vector<int> descriptors_;
};

}  // namespace tuttirun
