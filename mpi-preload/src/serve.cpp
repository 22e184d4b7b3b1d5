// SPDX-License-Identifier: Apache-2.0
#include "serve.hpp"

#include <atomic>

#include "settings.hpp"

namespace tutti::mpi {
namespace {

std::atomic<bool> running;

}  // namespace

void set_running(bool is) { running.store(is); }

bool is_running() {
  if (running.load(std::memory_order_relaxed)) return true;
  require_matching_library();
  int initialized = 0, finalized = 0;
  pmpi::Initialized(&initialized);
  pmpi::Finalized(&finalized);
  if (initialized && !finalized) set_running(true);
  return initialized && !finalized;
}

Communicator* if_met(MPI_Comm comm) {
  static const MPI_Comm none = MPI_COMM_NULL;
  if (!is_running() || comm == none) return nullptr;
  Communicator& communicator = communicator_of(comm);
  if (!communicator.tutti()) return nullptr;
  advance_mpi_in_waits();
  return &communicator;
}

Communicator* prepare(Function function, MPI_Comm comm, Verdict& verdict, int& code) {
  verdict = Verdict::served;
  if (Communicator* met = if_met(comm)) return met;
  verdict = Verdict::invalid;
  if (!is_running()) return nullptr;
  static const MPI_Comm none = MPI_COMM_NULL;
  if (comm == none) return nullptr;
  Communicator& communicator = communicator_of(comm);
  verdict = Verdict::intercommunicator;
  if (communicator.is_inter()) return nullptr;
  // One that has only this rank waits for nobody.
  if (function >= Function::i_barrier && communicator.size() > 1) {
    verdict = Verdict::not_met;
    return nullptr;
  }
  verdict = Verdict::served;
  advance_mpi_in_waits();
  std::string error;
  if (communicator.open(error) == TUTTI_OK) return &communicator;
  code = raise(comm, function, error.c_str());
  return nullptr;
}

int meet(MPI_Comm comm) {
  Communicator& communicator = communicator_of(comm);
  std::string error;
  if (communicator.is_inter() || communicator.open(error) == TUTTI_OK) return MPI_SUCCESS;
  return raise(comm, Function::all, error.c_str());
}

int become_part(const Communicator& whole, Communicator* part, uint32_t color) {
  tutti_comm* made = nullptr;
  const tutti_status status = whole.split(color, part ? part->rank() : 0, &made);
  if (status == TUTTI_NO_RESOURCES) return part ? meet(part->mpi()) : MPI_SUCCESS;  // the same on all ranks
  if (status != TUTTI_OK) return raise(whole.mpi(), Function::all, tutti_comm_error(whole.tutti()));
  if (part) part->adopt(made);
  return MPI_SUCCESS;
}

void fall_through(Function function, Verdict verdict, const std::string& subject, MPI_Comm comm) {
  count(function, verdict);
  if (settings().require) refuse_fall_through(function, verdict, subject, comm);
}

}  // namespace tutti::mpi
