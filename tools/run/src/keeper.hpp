// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <sys/types.h>

#include <string>

namespace tuttirun {

// A small process that outlives tuttirun, so that nothing else does: when tuttirun ends without saying so (SIGKILL), it
// kills every process group it was told of and removes the network namespaces.
class Keeper {
 public:
  // Forks: call it before anything else is started. Throws std::runtime_error.
  Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  // Dismisses it: everything was cleaned up.
  ~Keeper();

  void watch_group(pid_t group);
  // To be removed by `script down prefix`.
  void watch_hosts(const std::string& script, const std::string& prefix);

 private:
  void tell(char kind, const std::string& text);
  int pipe_ = -1;
  pid_t pid_ = -1;
};

}  // namespace tuttirun
