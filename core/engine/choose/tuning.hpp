// SPDX-License-Identifier: Apache-2.0
//
// A tuning file: the measured times of algorithms, as tutti-perf --tune writes them and TUTTI_TUNING names them.
// docs/algorithms.md lists its keys.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "topology/topology.hpp"

namespace tutti::core {

class Tuning {
 public:
  // Reads the file's text. Throws std::runtime_error, which names the key.
  explicit Tuning(std::string text);
  // Reads the file at `path`; "": there is none, nullptr. Throws Failure.
  static std::shared_ptr<const Tuning> read(const std::string& path);

  const std::string& text() const { return text_; }
  // The words that ranks compare: equal for equal files.
  std::string digest() const;
  // Why the times say nothing of these ranks; "": they were measured with ranks that are placed and connected alike.
  std::string misfit(const Topology& topology) const;
  // The seconds of a call with blocks of so many bytes. Between two measured sizes of an algorithm they are
  // interpolated in the logarithms of size and time. Nothing: not measured there.
  std::optional<double> seconds(uint32_t collective, const std::string& algorithm, uint64_t block_bytes) const;
  // The measured sizes of a collective, for people: "blocks of 8 to 4096 bytes"; "no size" where there is none.
  std::string sizes(uint32_t collective) const;

 private:
  struct Point {
    uint64_t block_bytes = 0;
    std::map<std::string, double> seconds;  // by algorithm
  };
  std::vector<uint32_t> host_of_rank_;
  std::vector<std::string> transports_;            // ascending
  std::map<uint32_t, std::vector<Point>> points_;  // by collective; sizes rise
  std::string text_;
};

}  // namespace tutti::core
