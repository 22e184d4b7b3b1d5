// SPDX-License-Identifier: Apache-2.0
#include "setting.hpp"

#include <unistd.h>

#include <cstring>

namespace perf {
namespace {

// The description of a rank, sent to rank 0. Exchanged as bytes.
struct Introduction {
  int64_t pid;
  char host[256];
};

}  // namespace

Setting meet(const tutti::Communicator& comm) {
  Introduction mine{};
  mine.pid = getpid();
  gethostname(mine.host, sizeof mine.host - 1);
  std::vector<Introduction> all(comm.nranks());
  comm.all_gather<uint8_t>({reinterpret_cast<const uint8_t*>(&mine), sizeof mine},
                           {reinterpret_cast<uint8_t*>(all.data()), all.size() * sizeof mine});
  Setting setting;
  setting.nranks = comm.nranks();
  for (uint32_t rank = 0; rank < comm.nranks(); ++rank) {
    all[rank].host[sizeof all[rank].host - 1] = '\0';
    setting.ranks.push_back({rank, all[rank].pid, all[rank].host});
  }
  for (const tutti_service& service : comm.services())
    if (std::strcmp(service.collective, "all_gather") == 0) setting.transports = service.transports;
  return setting;
}

}  // namespace perf
