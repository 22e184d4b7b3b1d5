// SPDX-License-Identifier: Apache-2.0
//
// The reports of a communicator: which algorithm served how many calls, what the last call of each collective
// was carried out by, and the flight recorder.
//
// Threads: whoever holds the communicator's engine, one at a time; recorder().report() any thread.
#pragma once

#include <tutti/schedule.h>
#include <tutti/tutti.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "record/flight_recorder.hpp"

namespace tutti::core {

class Reports {
 public:
  explicit Reports(std::shared_ptr<FlightRecorder> recorder) : recorder_(std::move(recorder)) {}

  FlightRecorder& recorder() { return *recorder_; }
  const FlightRecorder& recorder() const { return *recorder_; }
  // For whoever answers roll calls.
  std::shared_ptr<FlightRecorder> shared_recorder() const { return recorder_; }
  // " [flight record: ...]", for the text of a failure; "" when there is no file.
  std::string recorder_hint() const;

  // The row of the operations that one algorithm carries out over some transports.
  uint32_t row(const char* collective, const char* algorithm, std::string_view transports);
  // The row of sends and receives. It is found by addresses, so every text stays where it is: the name of the call, the
  // device's, or nullptr on the host, and those of the carriers in any order, each once.
  uint32_t transfer_row(const char* call, const char* device, std::span<const char* const> carriers);
  // An operation of that row is complete.
  void count(uint32_t row, uint64_t bytes, uint64_t ticks) {
    Row& r = rows_[row];
    ++r.calls;
    r.bytes += bytes;
    r.ticks += ticks;
  }
  // From now on calls of the collective are served like this.
  void set_service(uint32_t collective, uint32_t row, uint64_t slices, uint64_t schedule_hash) {
    served_[collective] = {true, row, slices, schedule_hash};
  }
  // A schedule of `row` is served by another one. A later call by another schedule stays what it is.
  void move(uint32_t collective, uint64_t schedule_hash, uint32_t from, uint32_t to) {
    Served& served = served_[collective];
    if (served.row == from && served.schedule_hash == schedule_hash) served.row = to;
  }

  // Texts stay valid as long as this object.
  std::vector<tutti_service> services() const;
  // The plan that has served the last call of the collective. Throws Failure when it has not been called yet.
  tutti_plan_facts plan_facts(uint32_t collective) const;

 private:
  struct Row {
    std::string collective, algorithm, transports;
    uint64_t calls = 0, bytes = 0, ticks = 0;
  };
  struct TransferRow {
    const char *call, *device;
    std::vector<const char*> carriers;
    uint32_t row;
  };
  struct Served {
    bool there = false;
    uint32_t row = 0;
    uint64_t slices = 0, schedule_hash = 0;
  };
  std::shared_ptr<FlightRecorder> recorder_;
  std::deque<Row> rows_;  // its strings are handed out: they stay where they are
  std::vector<TransferRow> transfer_rows_;
  std::array<Served, last_collective + 1> served_;
};

}  // namespace tutti::core
