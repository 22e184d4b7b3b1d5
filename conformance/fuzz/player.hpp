// SPDX-License-Identifier: Apache-2.0
//
// Carrying out a program in one of its processes: every rank of the process, each strand in a thread of its own.
#pragma once

#include <atomic>
#include <string>

#include "case.hpp"
#include "fuzz/program.hpp"

namespace tutti::conformance::fuzz {

// The position of each thread of a job, to diagnose a job that does not end: shared memory in the job's folder.
class Whereabouts {
 public:
  static constexpr uint32_t not_begun = 0, ending = UINT32_MAX - 1, done = UINT32_MAX;

  // Made by the first who comes.
  Whereabouts(const std::string& folder, const Program& program);
  Whereabouts(const Whereabouts&) = delete;
  Whereabouts& operator=(const Whereabouts&) = delete;
  ~Whereabouts();

  // The id of the event that a rank's strand carries out.
  std::atomic<uint32_t>& of(uint32_t rank, uint32_t strand) const { return places_[rank * strands_ + strand]; }
  // How many calls of Tutti a process has made.
  std::atomic<uint64_t>& calls() const { return *calls_; }

 private:
  uint32_t strands_;
  uint64_t bytes_;
  void* memory_;
  std::atomic<uint64_t>* calls_;
  std::atomic<uint32_t>* places_;
};

// Runs process `place.rank` of the program. A failing outcome's message begins with a word that says what kind of
// finding it is ("wrong", "error", "child", "leak") and a colon. Threads that are still in a call go on then: the
// process is of no more use.
Outcome play(const Program& program, const Place& place);

}  // namespace tutti::conformance::fuzz
