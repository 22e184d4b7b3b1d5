// SPDX-License-Identifier: Apache-2.0
//
// Tutti's communicator of an MPI communicator. It is made with that, or at its first blocking collective. It is kept as
// an attribute, and destroyed with the MPI communicator or before MPI is finalized, whichever is first.
#pragma once

#include <tutti/tutti.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "pmpi.hpp"
#include "tally.hpp"

namespace tutti::mpi {

// An operator of Tutti that applies an operator of MPI. A call has it to itself until it is complete.
struct Operator {
  uint32_t number = 0;  // of Tutti
  bool commutes = false;
  bool is_taken = false;
  MPI_Op op;  // of the current call
  MPI_Datatype type;
  uint64_t size = 0;
  std::vector<std::byte> swapped;
};

class Communicator {
 public:
  explicit Communicator(MPI_Comm mpi);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  MPI_Comm mpi() const { return mpi_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  bool is_inter() const { return is_inter_; }
  // nullptr: open() has not succeeded.
  tutti_comm* tutti() const { return tutti_; }
  // Collective: makes Tutti's communicator. Otherwise `error` has the reason, the same on all ranks.
  tutti_status open(std::string& error);
  // Collective: a part of Tutti's communicator, for the ranks of one color.
  tutti_status split(uint32_t color, int key, tutti_comm** part) const;
  void adopt(tutti_comm* part) { tutti_ = part; }
  // Local. nullptr: tutti_comm_error() has the reason.
  Operator* take_operator(MPI_Op op, bool commutes, MPI_Datatype type, uint64_t size);

  // Only one thread at a time uses Tutti's communicator.
  std::mutex& mutex() { return mutex_; }

 private:
  MPI_Comm mpi_;
  int rank_ = 0, size_ = 0;
  bool is_inter_ = false;
  tutti_comm* tutti_ = nullptr;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Operator>> operators_;
};

// That of an MPI communicator other than MPI_COMM_NULL; made if there is none yet.
Communicator& communicator_of(MPI_Comm mpi);
// Before MPI_Finalize: collective over all communicators that the program has not freed.
void destroy_communicators();

// Reports an error of a call as MPI does: prints the text, calls the communicator's error handler, returns the code.
int raise(MPI_Comm comm, Function function, const char* text);

}  // namespace tutti::mpi
