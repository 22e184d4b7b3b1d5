// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "job.hpp"

using namespace tutti::mpitrampoline;

TUTTI_MPITRAMPOLINE_EXPORT int MPIABI_Allreduce(const void* in, void* out, int count, Handle type, Handle op,
                                                Handle comm) {
  return returned("MPI_Allreduce", [&] {
    use(*communicator(comm), [&](tutti_comm* ranks) {
      return tutti_all_reduce(ranks, input(in), output(out), elements(count), element(type), reduction(op), nullptr,
                              nullptr);
    });
  });
}

TUTTI_MPITRAMPOLINE_EXPORT int MPIABI_Allgather(const void* in, int count, Handle type, void* out, int out_count,
                                                Handle out_type, Handle comm) {
  return returned("MPI_Allgather", [&] {
    if (count != out_count || type != out_type)
      throw Failure(fmt::format("each rank sends {} of {} and receives {} of {}, expected the same", count,
                                handle_text(type), out_count, handle_text(out_type)));
    use(*communicator(comm), [&](tutti_comm* ranks) {
      return tutti_all_gather(ranks, input(in), output(out), elements(count), element(type), nullptr, nullptr);
    });
  });
}

TUTTI_MPITRAMPOLINE_EXPORT int MPIABI_Reduce_scatter(const void* in, void* out, const int* counts, Handle type,
                                                     Handle op, Handle comm) {
  return returned("MPI_Reduce_scatter", [&] {
    use(*communicator(comm), [&](tutti_comm* ranks) {
      std::vector<uint64_t> blocks(tutti_comm_nranks(ranks));
      std::transform(counts, counts + blocks.size(), blocks.begin(), elements);
      if (std::ranges::count(blocks, blocks.front()) == static_cast<ptrdiff_t>(blocks.size()))
        return tutti_reduce_scatter(ranks, input(in), output(out), blocks.front(), element(type), reduction(op),
                                    nullptr, nullptr);
      return tutti_reduce_scatter_v(ranks, input(in), output(out), blocks.data(), nullptr, element(type), reduction(op),
                                    nullptr, nullptr);
    });
  });
}
