// SPDX-License-Identifier: Apache-2.0
//
// One trial: a job of processes, one of which dies or stops at a seeded moment; what the others saw.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace survival {

// kill_two: two ranks, the second shortly after the first, so that it meets the failure or the shrink after it.
enum class Fault { kill, stop, kill_two };
enum class Moment { creation, first_call, mid_operation, idle, destroy };
enum class Carrier { shm, tcp, mixed };

const char* name_of(Fault fault);
const char* name_of(Moment moment);
const char* name_of(Carrier carrier);

struct Trial {
  uint64_t seed = 0;
  Fault fault = Fault::kill;
  Moment moment = Moment::creation;
  Carrier carrier = Carrier::shm;
  uint32_t nranks = 2;
  uint32_t victim = 0;
  uint32_t delay_us = 0;         // after the moment begins
  uint32_t second = UINT32_MAX;  // the second victim, if there is one
  uint32_t gap_us = 0;           // how much later it dies
};
// All of it from the seed.
Trial make_trial(uint64_t seed, Fault fault);
std::string describe(const Trial& trial);

struct Outcome {
  double slowest_ms = 0;             // from the fault to the last survivor's error
  double back_ms = 0;                // from the last fault to the last survivor's use of the new communicator
  bool noticed = false;              // somebody saw an error (a death at the end may come too late for one)
  bool twice = false;                // the survivors had to shrink a second time
  std::vector<std::string> defects;  // "hang", "wrong answer", "rank 3 does not name rank 1: ..."
  std::vector<std::string> errors;   // what the survivors were told, for the reader
};
// Runs it: `program` is this program, which is started once per rank as "PROGRAM rank FOLDER ...".
Outcome run(const Trial& trial, const std::string& program);

// A rank's side of it; returns the exit status. Reads the trial from its arguments.
int run_rank(int argc, char** argv);

}  // namespace survival
