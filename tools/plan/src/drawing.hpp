// SPDX-License-Identifier: Apache-2.0
//
// SVGs of a schedule set, which must have been verified.
//
//   steps    a band for each rank, its lanes as rows, a box for each step, round after round from left to right
//   rounds   a line for each rank, an arrow for each message from its sender to its receiver, round after round
//   matrix   a square for each round: who sends (rows) to whom (columns)
//
// Where the view is automatic: steps as far as they fit a page, then rounds up to 32 ranks, then the matrix. Of many
// rounds, rounds and matrix show the first and the last.
#pragma once

#include <tutti/schedule.h>

#include <optional>
#include <string>

#include "movement.hpp"

namespace tutti::plan {

enum class View { automatic, steps, rounds, matrix };

struct DrawingOptions {
  View view = View::automatic;
  std::optional<Follow> follow;
};

// Throws std::invalid_argument where there is no chunk as it is to be followed.
std::string draw(const Problem& problem, const std::vector<Schedule>& schedules, const std::string& title,
                 const DrawingOptions& options = {});

// The views of messages, in message_drawing.cpp. `hosts`: as in Problem.
std::string draw_rounds(const Movement& movement, uint32_t nranks, const std::vector<uint32_t>& hosts,
                        const std::string& title, bool follows);
std::string draw_matrix(const Movement& movement, uint32_t nranks, const std::string& title, bool follows);

}  // namespace tutti::plan
