// SPDX-License-Identifier: Apache-2.0
//
// from_mpi_test: run by mpirun with three ranks. Every rank checks the cases in order; the first that does not hold
// ends the job.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <tutti/mpi.hpp>
#include <vector>

namespace {

int rank = 0, nranks = 0;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "rank %d of %d: does not hold: %s\n", rank, nranks, what.c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

void expect_failure(tutti_status status, const std::vector<std::string>& words, const std::function<void()>& body) {
  try {
    body();
  } catch (const tutti::Error& error) {
    const std::string text = error.what();
    expect(error.status() == status,
           "status " + std::to_string(status) + " was expected, not " + std::to_string(error.status()) + ": " + text);
    for (const std::string& word : words) expect(text.find(word) != std::string::npos, word + " is in: " + text);
    return;
  }
  expect(false, "an error was expected: " + words[0]);
}

void expect_sum(const tutti::Communicator& comm, int expected_rank, int expected_nranks) {
  expect(comm.rank() == uint32_t(expected_rank), "the rank is that of the MPI communicator");
  expect(comm.nranks() == uint32_t(expected_nranks), "the number of ranks is that of the MPI communicator");
  std::vector<int> data(1000, expected_rank + 1);
  comm.all_reduce(data, data, tutti::Op::sum);
  expect(data[999] == expected_nranks * (expected_nranks + 1) / 2, "the sum over the ranks");
}

void world_and_parts() {
  const tutti::Communicator world = tutti::from_mpi(MPI_COMM_WORLD);
  expect_sum(world, rank, nranks);
  MPI_Comm reversed = MPI_COMM_NULL, some = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
  const tutti::Communicator backwards = tutti::from_mpi(reversed);
  MPI_Comm_free(&reversed);  // the communicator does not need it
  expect_sum(backwards, nranks - 1 - rank, nranks);
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 0, rank, &some);
  if (rank == 0) {
    expect_failure(TUTTI_INVALID_USAGE, {"MPI_COMM_NULL"}, [&] { tutti::from_mpi(some); });
  } else {
    expect_sum(tutti::from_mpi(some), rank - 1, nranks - 1);
    MPI_Comm_free(&some);
  }
}

// One rank cannot take part: by its arguments, which MPI's ranks see before they gather, or by its plugins.
void failures_reach_all() {
  const int bad = nranks - 1;
  const std::string who = "rank " + std::to_string(bad) + " of the MPI communicator could not make its communicator";
  const auto by = [&](const std::function<void(tutti_comm_config&)>& change) {
    tutti_comm_config config = tutti::Communicator::defaults();
    if (rank == bad) change(config);
    tutti::from_mpi(MPI_COMM_WORLD, config);
  };
  const auto words = [&](std::vector<std::string> all) {
    if (rank != bad) all.push_back(who);
    return all;
  };
  expect_failure(TUTTI_INVALID_ARGUMENT, words({"expected none: the MPI communicator tells them"}),
                 [&] { by([](tutti_comm_config& config) { config.nranks = 7; }); });
  expect_failure(TUTTI_INVALID_ARGUMENT, words({"TUTTI_COMM_JOIN"}),
                 [&] { by([](tutti_comm_config& config) { config.flags = TUTTI_COMM_JOIN; }); });
  expect_failure(TUTTI_NOT_SUPPORTED, words({"unknown flags"}),
                 [&] { by([](tutti_comm_config& config) { config.flags = 1u << 30; }); });
  expect_failure(TUTTI_INVALID_ARGUMENT, words({"windows is 1000"}),
                 [&] { by([](tutti_comm_config& config) { config.windows = 1000; }); });
  expect_failure(TUTTI_NOT_FOUND, {"nonesuch"},
                 [&] { by([](tutti_comm_config& config) { config.transports = "nonesuch"; }); });
  tutti_comm_config forgotten{};
  tutti_comm* comm = nullptr;
  const tutti_status status = tutti_comm_create_from_mpi(MPI_COMM_WORLD, rank == 0 ? &forgotten : nullptr, &comm);
  expect(status == TUTTI_INVALID_ARGUMENT && !comm, "a struct_size that one rank forgot is refused on all");
  // The MPI communicator is as good as before.
  expect_sum(tutti::from_mpi(MPI_COMM_WORLD), rank, nranks);
}

}  // namespace

int main(int argc, char** argv) {
  expect_failure(TUTTI_INVALID_USAGE, {"call MPI_Init first"}, [] { tutti::from_mpi(MPI_COMM_WORLD); });
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &nranks);
  world_and_parts();
  failures_reach_all();
  {
    const tutti::Communicator outlives = tutti::from_mpi(MPI_COMM_WORLD);
    MPI_Finalize();
    expect_sum(outlives, rank, nranks);
  }
  expect_failure(TUTTI_INVALID_USAGE, {"MPI has been finalized"}, [] { tutti::from_mpi(MPI_COMM_WORLD); });
  if (rank == 0) std::printf("%d ranks: all cases hold\n", nranks);
  return 0;
}
