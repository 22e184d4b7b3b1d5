// SPDX-License-Identifier: Apache-2.0
//
// The parts of a communicator that carry out its operations, and what advances them. A poll advances all that is
// pending; now and then a look finds what no poll shows: deadlines, lost ranks, ranks that leave. Every failure comes
// to the breakdown, which ends all pending operations alike.
//
// Threads: the one that holds the engine (engine_lock.hpp). The parts are public: the classes that make calls are built
// on the engine and hold it.
#pragma once

#include <tutti/tutti.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/breakdown.hpp"
#include "comm/departures.hpp"
#include "comm/engine_lock.hpp"
#include "comm/foundation.hpp"
#include "comm/operations.hpp"
#include "comm/rendezvous.hpp"
#include "comm/stream_requests.hpp"
#include "comm/waiter.hpp"
#include "engine/check/call_check.hpp"
#include "engine/fabric/window.hpp"
#include "engine/p2p/point_to_point.hpp"
#include "engine/plan/plan_cache.hpp"
#include "engine/plan/planner.hpp"
#include "stream/streams.hpp"

namespace tutti::core {

class ProgressEngine final : private PortEvents, private Breakdown::Parts {
 public:
  // `comm`: for its requests. The foundation outlives the engine.
  ProgressEngine(Communicator& comm, Foundation& foundation);
  ProgressEngine(const ProgressEngine&) = delete;
  ProgressEngine& operator=(const ProgressEngine&) = delete;
  // Closes the endpoints. Memory that peers or devices may still use is kept.
  ~ProgressEngine();

  // Advances what is pending; true when something moved.
  bool progress();
  // Only the endpoints.
  bool progress_ports(Ports which);
  // Advances all endpoints, and leaves failures to the breakdown.
  void poll() override { base.fabric.progress(Ports::all, *this); }
  // The checks that not every poll needs: of this communicator, and of the process's others, too. `waits`: of a call
  // that waits.
  void look(bool waits);
  void look_around(bool waits = true);
  // The beginning of a call that may be made of any kind. Throws Failure when the communicator has ended.
  void require_sound() {
    if (breakdown.pending()) look_around();
    breakdown.require_none();
  }
  // The first call on device memory: streams wait for bytes while the application does something else, so the progress
  // thread moves them. The caller holds the lock.
  void require_mover();
  // Do streams need a thread that moves their bytes?
  bool has_channels() const { return streams && streams->has_channels(); }
  std::vector<tutti_link_traffic> traffic() const;
  // A wait has polled: traces the rank that it waits for, if nothing has moved.
  void trace_wait(Trace& trace, bool moved) const;

  // In the order in which they are made.
  Foundation& base;
  EngineLock lock{*this};
  Waiter waiter;
  Breakdown breakdown;
  UserOperators operators;
  Planner planner;
  PlanCache plans;
  CallCheck call_check;
  PointToPoint point_to_point;
  Departures departures;
  WindowList windows;
  Operations operations;
  Meetings meetings;
  StreamRequests stream_requests;
  std::unique_ptr<Streams> streams;  // nullptr without a device
  const tutti_request* awaited = nullptr;  // by the call that passes time

 private:
  std::unique_ptr<Streams> make_streams();
  bool advance_all();
  bool advance_transfers();
  void check_deadlines(uint64_t now);

  // Breakdown::Parts
  // "seen by rank 0 in world: all_reduce #7 (ring over tcp), at step 3 ..."
  std::string standpoint() const override;
  void stop(Breakdown::ErrorText& text) override;
  void end_operations(tutti_status status, const std::string& text) override;

  // PortEvents
  void on_control(Port& port, uint32_t peer, const std::byte* data, uint64_t bytes) override;
  void on_peer_failed(Port& port, uint32_t peer, const char* reason) override;
  void on_port_error(Port& port, tutti_status status, const std::string& reason) override;

  uint64_t next_look_ns_ = 0;
  bool knows_of_failure_ = false;  // of another rank, since a look
};

}  // namespace tutti::core
