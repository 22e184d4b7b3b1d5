// SPDX-License-Identifier: Apache-2.0
//
// The settings of a communicator: tutti_comm_config, and the environment's settings in place of all that it leaves
// open.
#pragma once

#include <tutti/tutti.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/call_timeout.hpp"
#include "base/deadline.hpp"
#include "engine/choose/shape.hpp"

namespace tutti::core {

class Tuning;

struct Configuration {
  // Throws Failure.
  explicit Configuration(const tutti_comm_config& config);

  // Of meeting, from now on.
  Deadline connect_deadline() const {
    return Deadline(std::chrono::nanoseconds(connect_timeout_ns), connect_timeout_source);
  }

  std::string name;
  uint32_t windows, lanes;
  uint64_t scratch_limit, connect_timeout_ns;
  const char* connect_timeout_source;  // what has set that time, for messages
  CallTimeout timeout;
  bool progress_thread, joins, checks_calls;
  bool verifies;  // algorithms are proved before their first use
  Order order;    // of reductions
  uint32_t traffic_class;
  std::string transports, algorithms, selector;
  std::string wrappers;                  // plugins over each transport, the innermost first
  std::string tuning_file;               // its path; "": none
  std::shared_ptr<const Tuning> tuning;  // once ranks have met, rank 0's; parts and successors have it, too
  std::string device, device_source;  // source: what has said so, for messages
  // Where the ranks meet; a function of the application comes first.
  std::string rendezvous;
  uint32_t rank, nranks;  // nranks 0: the environment knows
  decltype(tutti_comm_config::all_gather) all_gather;
  void* all_gather_context;
};

}  // namespace tutti::core
