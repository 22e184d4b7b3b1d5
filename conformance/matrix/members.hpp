// SPDX-License-Identifier: Apache-2.0
//
// The communicators of one job of the matrix: what its cases share in one process.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

#include "case.hpp"
#include "matrix/cell.hpp"
#include "matrix/device.hpp"

namespace tutti::conformance {

// As many lanes as every communicator of the matrix has: an algorithm's schedule depends on it.
constexpr uint32_t matrix_lanes = 4;

class Members {
 public:
  // The ranks meet in `folder`, which all processes of the job see. `rank` is this process's; with threads it holds
  // all. Cells are on the host. `patience` as in Place.
  Members(std::string folder, uint32_t rank, const Mix& mix, uint32_t nranks, double patience);
  // For cells on a device: each rank gets the device and stream that the cell names, as in all cells of the job.
  Members(std::string folder, uint32_t rank, const Mix& mix, const Cell& cell, double patience);
  ~Members();

  // The ranks that live in this process.
  std::vector<uint32_t> local() const;
  // The communicator of a local rank on which `algorithm` serves every collective that it knows. Collective: made on
  // first use; another algorithm's is destroyed first. Each local rank calls it in a thread of its own. Throws
  // tutti::Error.
  Communicator& communicator(uint32_t rank, const std::string& algorithm);
  // A local rank's seat; nullptr: its cells are on the host.
  Seat* seat(uint32_t rank) const { return members_[rank].seat.get(); }

  // Told to all ranks through shared memory, so that a barrier can be held to its promise: how many each has entered.
  void enter_barrier(uint32_t rank);
  // Waits until all have been here; the case's deadline ends it where they do not come.
  void meet(uint32_t rank);
  // The first rank that has entered fewer than `rank` has, or nranks.
  uint32_t missing_at_barrier(uint32_t rank) const;

 private:
  struct Member {
    std::string algorithm;
    std::unique_ptr<Seat> seat;  // outlives what uses its streams
    std::unique_ptr<Communicator> communicator;
    uint32_t made = 0;  // communicators so far: the same on all ranks, since all run the same cases
  };
  std::string folder_;
  uint32_t rank_, nranks_;
  Mix mix_;
  bool threads_;
  uint64_t timeout_ns_;
  std::vector<Member> members_;
  std::atomic<uint64_t>* entered_ = nullptr;
};

}  // namespace tutti::conformance
