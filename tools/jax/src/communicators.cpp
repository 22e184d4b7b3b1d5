// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "job.hpp"

using namespace tutti::mpitrampoline;

namespace {

// The arguments of a rank's MPI_Comm_split.
struct Wish {
  int32_t color, key;
};

// JAX numbers the devices of a communicator from 0, and asks for each of the process's devices once. If a process has
// several, a communicator of processes lacks some of them, and collectives would give wrong results in silence.
void require_one_device(const std::vector<Wish>& wishes, int color) {
  std::vector<int32_t> keys;
  for (const Wish& wish : wishes)
    if (wish.color == color) keys.push_back(wish.key);
  std::ranges::sort(keys);
  for (size_t i = 0; i < keys.size(); ++i)
    if (keys[i] != static_cast<int32_t>(i))
      throw Failure(
          fmt::format("the keys of color {} are {}, expected 0 to {}, each once: JAX has several devices in a "
                      "process, or devices that take no part. Set JAX_NUM_CPU_DEVICES=1, and let all "
                      "processes run each program",
                      color, fmt::join(keys, ", "), keys.size() - 1));
}

}  // namespace

TUTTI_MPITRAMPOLINE_EXPORT int MPIABI_Comm_rank(Handle comm, int* rank) {
  return ending("MPI_Comm_rank", [&] { *rank = static_cast<int>(tutti_comm_rank(communicator(comm)->comm)); });
}

TUTTI_MPITRAMPOLINE_EXPORT int MPIABI_Comm_size(Handle comm, int* size) {
  return ending("MPI_Comm_size", [&] { *size = static_cast<int>(tutti_comm_nranks(communicator(comm)->comm)); });
}

TUTTI_MPITRAMPOLINE_EXPORT int MPIABI_Comm_split(Handle comm, int color, int key, Handle* made) {
  return ending("MPI_Comm_split", [&] {
    if (color < 0 && color != MPI_UNDEFINED)
      throw Failure(fmt::format("the color is {}, expected 0 or more, or MPI_UNDEFINED", color));
    const std::shared_ptr<Communicator> parent = communicator(comm);
    tutti_comm* part = nullptr;
    use(*parent, [&](tutti_comm* whole) {
      const Wish wish{color, key};
      std::vector<Wish> wishes(tutti_comm_nranks(whole));
      const tutti_status status = tutti_all_gather(whole, &wish, wishes.data(), 2, TUTTI_INT32, nullptr, nullptr);
      if (status != TUTTI_OK) return status;
      if (color != MPI_UNDEFINED) require_one_device(wishes, color);
      tutti_split how{};
      how.struct_size = sizeof how;
      how.color = color == MPI_UNDEFINED ? TUTTI_NO_COLOR : static_cast<uint32_t>(color);
      how.key = key;
      return tutti_comm_split(whole, &how, &part);
    });
    *made = part ? add(part) : MPI_COMM_NULL;
  });
}

// Nothing after MPI_Finalize, which has freed it: JAX frees its communicators when the interpreter ends.
TUTTI_MPITRAMPOLINE_EXPORT int MPIABI_Comm_free(Handle* comm) {
  return ending("MPI_Comm_free", [&] {
    if (!finalized()) use(*take_communicator(*comm), [](tutti_comm* freed) { return tutti_comm_destroy(freed); });
    *comm = MPI_COMM_NULL;
  });
}
