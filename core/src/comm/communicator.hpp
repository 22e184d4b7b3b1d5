// SPDX-License-Identifier: Apache-2.0
//
// The communicator: what tutti_comm is. It puts its parts together; each has a header of its own:
//
//   Foundation         what the ranks settled before the first call
//   ProgressEngine     what carries out operations, and ends them all when one fails
//   RegisteredWindows  the memory that all ranks registered together
//   Waits              waits for requests and messages
//   Calls              calls that begin operations
//   Recovery           shrink, invite, grow
#pragma once

#include <tutti/tutti.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fork_generation.hpp"
#include "comm/calls.hpp"
#include "comm/foundation.hpp"
#include "comm/progress_engine.hpp"
#include "comm/recovery.hpp"
#include "comm/waits.hpp"
#include "comm/windows.hpp"
#include "engine/fabric/memory.hpp"

namespace tutti::core {

class Communicator {
 public:
  // Collective. Both throw Failure, and the other ranks are notified.
  static std::unique_ptr<Communicator> make(Configuration configuration, const Succession& succession);
  // One of the communicators into which the parent is split. It asks no other rank.
  static std::unique_ptr<Communicator> make_part(const Foundation& parent, SplitPart part);
  explicit Communicator(std::shared_ptr<Foundation> base);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  // ---- Its parts.

  Foundation& base() { return *base_; }
  RegisteredWindows& windows() { return windows_; }
  Waits& waits() { return waits_; }
  Calls& calls() { return calls_; }
  Recovery& recovery() { return recovery_; }

  // ---- What it is.

  uint32_t rank() const { return base_->rank(); }
  uint32_t nranks() const { return base_->nranks(); }
  const std::string& name() const { return base_->name(); }
  // Its device, or why it has none.
  const DeviceMemory& device() const { return base_->device; }
  const char* why_no_device() const { return base_->why_no_device(); }
  // Is it memory that the host has registered? Then no device need be asked what it is.
  bool is_known_host_memory(const void* address, uint64_t bytes) { return known_host_.holds(address, bytes); }
  bool checks_calls() const { return base_->configuration.checks_calls; }
  Order order() const { return base_->configuration.order; }
  // Throws Failure.
  uint64_t algorithms_of_call(const char* call, const char* text) {
    return text ? base_->selector->algorithms_of_call(call, text) : 0;
  }
  const UserOperators& operators() const { return engine_.operators; }
  // Is this a forked child, which has no part in the communicator?
  bool forked() const { return fork_generation_ != fork_generation(); }

  // ---- Splitting, failing and ending.

  // Collective: this rank's part; nullptr: it has none. Throws Failure.
  std::unique_ptr<Communicator> split(const SplitCall& call) { return core::split(engine_, call); }
  // Any thread. `reason` goes on after "rank 3 ": "aborted: ...".
  void abort(const std::string& reason);
  // This rank alone cannot go on with a call that others wait for: ends the communicator on all ranks.
  void give_up(const std::exception& problem);
  // Collective: all ranks meet once more, so that nothing sent is lost. To be called before destruction.
  tutti_status end();
  // Any thread: what has broken the communicator, also where only the control plane knows it yet.
  tutti_status async_error() const { return engine_.breakdown.error(); }
  // The text of the last call that failed: Breakdown::remember.
  tutti_status remember(tutti_status status, std::string text) noexcept {
    return engine_.breakdown.remember(status, std::move(text));
  }
  const char* error_text() const { return engine_.breakdown.last_error(); }

  // ---- Reports.

  std::vector<tutti_service> services();
  std::vector<tutti_link_traffic> traffic();
  std::vector<tutti_rail_traffic> rails();
  // Throws when the collective has not been called yet.
  tutti_plan_facts plan_facts(uint32_t collective);
  std::string explain(uint32_t collective, uint64_t count, uint32_t dtype) const;
  tutti_host_facts host_facts(uint32_t rank) const;
  std::string topology_text();
  std::string topology_file() const;

 private:
  const uint64_t fork_generation_ = fork_generation();
  const std::shared_ptr<Foundation> base_;
  Memory::Lookup known_host_;
  ProgressEngine engine_;
  RegisteredWindows windows_;
  Waits waits_;
  Calls calls_;
  Recovery recovery_;
};

}  // namespace tutti::core
