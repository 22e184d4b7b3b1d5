// SPDX-License-Identifier: Apache-2.0
//
// The movement of data in a schedule set: its messages, the round of each, and the way of one chunk.
//
// A message's round is one more than the longest chain of messages whose data it needs, as in a proof.
#pragma once

#include <tutti/schedule.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "simulation/simulation.hpp"

namespace tutti::plan {

using simulation::StepTimes;

// The chunk whose way is to be shown: of IN of one rank, or of every rank.
struct Follow {
  uint32_t chunk = 0;
  std::optional<uint32_t> rank;
};

struct Message {
  uint32_t from = 0, to = 0, lane = 0, send = 0, receive = 0;  // the numbers of the steps
  uint32_t round = 1;
  double blocks = 0;      // its size; 0: a signal
  bool reduces = false;   // the receiver adds it
  bool followed = false;  // it carries data of the chunk
};

struct Movement {
  std::vector<Message> messages;  // by round
  uint32_t rounds = 0;
  // The round in which a step takes part, at least 1, never before that of the lane's previous step:
  // [rank][lane][step].
  std::vector<std::vector<std::vector<uint32_t>>> step_round;
  std::vector<std::vector<std::vector<bool>>> followed;
};

// The schedules must have been verified. Throws std::invalid_argument where there is no such chunk.
Movement find_movement(const Problem& problem, const std::vector<Schedule>& schedules, const StepTimes& times,
                       const std::optional<Follow>& follow);

// "1/8", "3", "0.37"
std::string blocks_text(double blocks);

}  // namespace tutti::plan
