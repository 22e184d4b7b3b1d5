// SPDX-License-Identifier: Apache-2.0
//
// The options of train_digits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

struct Options {
  // Fixed before the held-out digits were looked at.
  uint32_t epochs = 30;
  uint32_t batch = 64;  // samples per step, of all ranks together
  double rate = 0.2;
  uint64_t seed = 1;
  std::string data;  // the digits
  std::string device = "host";
  std::string wire = "plain";
  double min_accuracy = 95;      // percent of the held-out digits
  std::string loss_file;         // "": not written
  std::string expect_loss;       // a loss file to agree with; "": none
  std::string expect_transport;  // "": any
};

// The options, or nothing when the program should end now with `status` (after --help, or a message).
std::optional<Options> parse_options(int argc, char** argv, int& status);
