// SPDX-License-Identifier: Apache-2.0
#include "tally.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>

#include "loaded_mpi.hpp"
#include "pmpi.hpp"
#include "settings.hpp"

namespace tutti::mpi {
namespace {

constexpr size_t functions = static_cast<size_t>(Function::all), verdicts = static_cast<size_t>(Verdict::all);

constexpr const char* function_names[] = {"MPI_Barrier",
                                          "MPI_Bcast",
                                          "MPI_Reduce",
                                          "MPI_Allreduce",
                                          "MPI_Gather",
                                          "MPI_Gatherv",
                                          "MPI_Allgather",
                                          "MPI_Allgatherv",
                                          "MPI_Scatter",
                                          "MPI_Scatterv",
                                          "MPI_Alltoall",
                                          "MPI_Alltoallv",
                                          "MPI_Alltoallw",
                                          "MPI_Reduce_scatter",
                                          "MPI_Reduce_scatter_block",
                                          "MPI_Scan",
                                          "MPI_Exscan",
                                          "MPI_Ibarrier",
                                          "MPI_Ibcast",
                                          "MPI_Ireduce",
                                          "MPI_Iallreduce",
                                          "MPI_Igather",
                                          "MPI_Igatherv",
                                          "MPI_Iallgather",
                                          "MPI_Iallgatherv",
                                          "MPI_Iscatter",
                                          "MPI_Iscatterv",
                                          "MPI_Ialltoall",
                                          "MPI_Ialltoallv",
                                          "MPI_Ialltoallw",
                                          "MPI_Ireduce_scatter",
                                          "MPI_Ireduce_scatter_block",
                                          "MPI_Iscan",
                                          "MPI_Iexscan",
                                          "MPI_Barrier_init",
                                          "MPI_Bcast_init",
                                          "MPI_Reduce_init",
                                          "MPI_Allreduce_init",
                                          "MPI_Gather_init",
                                          "MPI_Gatherv_init",
                                          "MPI_Allgather_init",
                                          "MPI_Allgatherv_init",
                                          "MPI_Scatter_init",
                                          "MPI_Scatterv_init",
                                          "MPI_Alltoall_init",
                                          "MPI_Alltoallv_init",
                                          "MPI_Alltoallw_init",
                                          "MPI_Reduce_scatter_init",
                                          "MPI_Reduce_scatter_block_init",
                                          "MPI_Scan_init",
                                          "MPI_Exscan_init",
                                          "MPI_Neighbor_allgather",
                                          "MPI_Neighbor_allgatherv",
                                          "MPI_Neighbor_alltoall",
                                          "MPI_Neighbor_alltoallv",
                                          "MPI_Neighbor_alltoallw",
                                          "MPI_Ineighbor_allgather",
                                          "MPI_Ineighbor_allgatherv",
                                          "MPI_Ineighbor_alltoall",
                                          "MPI_Ineighbor_alltoallv",
                                          "MPI_Ineighbor_alltoallw",
                                          "MPI_Neighbor_allgather_init",
                                          "MPI_Neighbor_allgatherv_init",
                                          "MPI_Neighbor_alltoall_init",
                                          "MPI_Neighbor_alltoallv_init",
                                          "MPI_Neighbor_alltoallw_init"};
static_assert(std::size(function_names) == functions);

constexpr const char* reasons[] = {"served",
                                   "arguments that MPI refuses",
                                   "an intercommunicator",
                                   "a non-blocking call is the first collective of its communicator",
                                   "MPI does not define the operator for the type",
                                   "a persistent collective",
                                   "a neighborhood collective"};
static_assert(std::size(reasons) == verdicts);

std::atomic<uint64_t> counts[functions][verdicts];

// 1204 -> "1,204".
std::string grouped(uint64_t number) {
  std::string digits = std::to_string(number);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

void print(uint64_t (&sums)[functions][verdicts], int ranks) {
  std::string text;
  for (size_t f = 0; f < functions; ++f) {
    uint64_t calls = 0;
    for (const uint64_t one : sums[f]) calls += one;
    if (!calls) continue;
    text += "tutti-mpi: " + grouped(sums[f][0]) + " of " + grouped(calls) + " " + function_names[f] + " served";
    const char* between = "; not: ";
    for (size_t v = 1; v < verdicts; ++v) {
      if (!sums[f][v]) continue;
      text += between + grouped(sums[f][v]) + " (" + reasons[v] + ")";
      between = ", ";
    }
    text += "\n";
  }
  if (text.empty()) text = "tutti-mpi: the program called no collective that Tutti can serve\n";
  text.pop_back();  // say ends the line
  say("calls of all " + std::to_string(ranks) + " ranks:\n" + text);
}

}  // namespace

const char* name_of(Function function) {
  return function == Function::all ? "a new communicator" : function_names[static_cast<size_t>(function)];
}

Function function_of(std::string name) {
  if (name.ends_with("_c")) name.resize(name.size() - 2);
  if (name.starts_with("MPIX_")) name.replace(0, 5, "MPI_");
  const auto* found = std::find(std::begin(function_names), std::end(function_names), name);
  return static_cast<Function>(found - function_names);
}

void count(Function function, Verdict verdict) {
  counts[static_cast<size_t>(function)][static_cast<size_t>(verdict)].fetch_add(1, std::memory_order_relaxed);
}

void refuse_fall_through(Function function, Verdict verdict, const std::string& subject, MPI_Comm comm) {
  if (verdict == Verdict::invalid) return;
  int rank = 0;
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  pmpi::Comm_rank(comm, &rank);
  pmpi::Comm_get_name(comm, name, &length);
  say("rank " + std::to_string(rank) + " of " + (length ? name : "a communicator") + ": " + name_of(function) +
      subject + " is not served by Tutti: " + reasons[static_cast<size_t>(verdict)] +
      ". TUTTI_MPI_REQUIRE=1 makes this an error; without it the MPI library carries out the call");
  pmpi::Abort(MPI_COMM_WORLD, 1);
}

void report() {
  if (!settings().report) return;
  uint64_t mine[functions][verdicts], sums[functions][verdicts] = {};
  for (size_t f = 0; f < functions; ++f)
    for (size_t v = 0; v < verdicts; ++v) mine[f][v] = counts[f][v].load();
  int rank = 0, ranks = 0;
  pmpi::Comm_rank(MPI_COMM_WORLD, &rank);
  pmpi::Comm_size(MPI_COMM_WORLD, &ranks);
  pmpi::Reduce(mine, sums, static_cast<int>(functions * verdicts), MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) print(sums, ranks);
}

}  // namespace tutti::mpi
