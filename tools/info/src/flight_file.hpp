// SPDX-License-Identifier: Apache-2.0
//
// Reads flight records (tutti/flight_record.h). Nothing in a file is believed before it is checked: it may be damaged,
// of another version, or somebody else's work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace info {

// A collective that a rank issued. Times are ns of its host's monotonic clock.
struct Operation {
  uint64_t sequence = 0;
  uint64_t count = 0, plan = 0;
  uint32_t collective = 0, dtype = 0, op = 0, root = 0, order = 0, wire = 0, algorithms = 0;
  uint64_t tag = 0;
  double begin_ns = 0, end_ns = 0;
  bool complete = false;
  int32_t status = 0;
  std::string algorithm, transports;

  bool same_call(const Operation& other) const {
    return count == other.count && collective == other.collective && dtype == other.dtype && op == other.op &&
           root == other.root && order == other.order && wire == other.wire && algorithms == other.algorithms &&
           tag == other.tag && plan == other.plan;
  }
  std::string text() const;  // "all_reduce(1000 x float32, sum, wire float16, tag 7)"
  std::string name() const;  // "all_reduce #17, tag 7"
  std::string order_name() const;
  std::string wire_name() const;
};

struct LaneWait {
  uint64_t sequence = 0;
  uint32_t lane = 0, step = 0, kind = 0, peer = UINT32_MAX;
  uint64_t slice = 0, slices = 0, bytes = 0, done = 0;
  std::string transport;
};

struct TransferRecord {
  uint64_t number = 0, bytes = 0;
  bool sending = false, complete = false;
  uint32_t peer = 0, tag = 0;
  int32_t status = 0;
  double begin_ns = 0;
  std::string transports;
  bool any_tag = false;  // of a receive; one from any rank has the peer UINT32_MAX

  std::string tag_text() const { return any_tag ? "any tag" : "tag " + std::to_string(tag); }
};

// One rank of one communicator.
struct FlightRecord {
  std::string path;
  uint64_t host = 0, pid = 0, thread = 0, process_start = 0, created = 0;
  double begin_ns = 0;
  std::string host_name, program;
  uint32_t phase = 0, rank = UINT32_MAX, nranks = 0;
  uint64_t communicator = 0, meeting = 0;
  double phase_ns = 0, look_ns = 0, moved_ns = 0;
  std::string name, place, note;
  std::vector<Operation> operations;  // by sequence, at most the last 256
  std::vector<LaneWait> waits;        // of the oldest operation under way
  std::vector<TransferRecord> transfers;
  uint64_t awaited = 0;  // tutti_flight_state::awaited
  std::string site;      // where the program makes that call; "": not known

  const Operation* last() const { return operations.empty() ? nullptr : &operations.back(); }
  const Operation* oldest_incomplete() const;
  // The operation or transfer in which a call waits; nullptr: none.
  const Operation* awaited_operation() const;
  const TransferRecord* awaited_transfer() const;
  // " (at train.py:14)"; "": not known
  std::string site_text() const { return site.empty() ? "" : " (at " + site + ")"; }
  const Operation* find(uint64_t sequence) const;
  uint64_t issued() const { return operations.empty() ? 0 : operations.back().sequence + 1; }
};

// Nothing with the reason in `error`.
std::optional<FlightRecord> decode_flight_record(std::span<const std::byte> bytes, std::string* error);
// Opens only ordinary files of this user, and no symbolic link.
std::optional<FlightRecord> read_flight_record(const std::string& path, std::string* error);

// FNV-1a-64, as the files use it.
uint64_t flight_hash(std::span<const std::byte> bytes);

}  // namespace info
