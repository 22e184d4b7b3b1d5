// SPDX-License-Identifier: Apache-2.0
//
// The communicator: what tutti_comm is. It owns the ports and links, finds or makes the plan of a call, runs operations
// in windows, and turns every failure into one that all its pending operations end with.
#pragma once

#include <tutti/tutti.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/membership.hpp"
#include "comm/breakdown.hpp"
#include "comm/configuration.hpp"
#include "comm/departures.hpp"
#include "comm/introduction.hpp"
#include "comm/operations.hpp"
#include "comm/progress.hpp"
#include "comm/rendezvous.hpp"
#include "comm/split.hpp"
#include "comm/stream_calls.hpp"
#include "comm/waiter.hpp"
#include "comm/windows.hpp"
#include "engine/check/call_check.hpp"
#include "engine/choose/selector.hpp"
#include "engine/fabric/fabric.hpp"
#include "engine/fabric/memory.hpp"
#include "engine/p2p/point_to_point.hpp"
#include "engine/plan/plan_cache.hpp"
#include "engine/plan/planner.hpp"
#include "record/reports.hpp"
#include "stream/stream_runner.hpp"
#include "topology/topology.hpp"
#include "topology/topology_file.hpp"

namespace tutti::core {

class Communicator final : public Engine, private PortEvents, private Breakdown::Parts, private Waiter::Work {
 public:
  explicit Communicator(Configuration configuration, const Succession& succession = {});
  // One of the communicators into which `parent` is split. It opens its own endpoints and asks no other rank.
  Communicator(const Communicator& parent, Part part);
  ~Communicator() override;

  uint32_t rank() const { return rank_; }
  uint32_t nranks() const { return nranks_; }
  // Its device, or why it has none.
  const DeviceMemory& device() const { return device_; }
  const char* why_no_device() const;
  // Is it memory that the host has registered? Then no device need be asked what it is.
  bool is_known_host_memory(const void* address, uint64_t bytes) { return known_host_.holds(address, bytes); }
  bool checks_calls() const { return configuration_.checks_calls; }

  // Both validated by the caller. request == nullptr: blocks. `blocks`: where they are unequal.
  tutti_status collective(const Shape& shape, const HostBuffers& buffers, const tutti_options* options,
                          tutti_request** request, const BlockTable* blocks = nullptr);
  // The same on device memory, and calls without buffers on a stream: returns when the work is in the stream. With
  // transfers it is a group of sends and receives.
  tutti_status in_stream(StreamCall call, std::span<const Transfer> transfers, const tutti_options* options,
                         tutti_request** request, const BlockTable* blocks = nullptr);
  // One or several sends and receives. `call` says where those on device memory are; they
  // are in its stream when this returns. `name`: of the call, for reports.
  tutti_status exchange(const char* name, std::span<const Transfer> transfers, const StreamCall& call,
                        const tutti_options* options, tutti_request** request);
  // A group of calls: from open_group() on they are remembered, and end_group() begins them together. They throw
  // Failure.
  void open_group();
  tutti_status end_group(const tutti_options& options, tutti_request** request);
  void cancel_group();
  bool in_group() const { return open_group_.has_value(); }
  // Persistent requests, made by the calls above with TUTTI_PERSISTENT. release: the application is about to free one.
  void start(tutti_request& request);
  void release(const tutti_request& request);
  // Operators of the application. free_op throws Failure when an operation under way uses it.
  uint32_t make_op(UserOperator op);
  void free_op(uint32_t op);
  const UserOperators& operators() const { return operators_; }
  // Waits for a message that the envelope asks for, at most so long: TUTTI_AGAIN.
  tutti_status probe(tutti_envelope& envelope, uint64_t timeout_ns);
  tutti_status test(tutti_request& request);
  // timeout_ns UINT64_MAX: until complete.
  tutti_status wait(tutti_request& request, uint64_t timeout_ns);

  // There is no memory for a call that others wait for: they are told.
  void out_of_memory();

  // Any thread. `reason` goes on after "rank 3 ": "aborted: ...".
  void abort(const std::string& reason);
  // Recovery from a failure, in communicator_membership.cpp; timeout_ns 0: the connect timeout. Collective over the
  // ranks that live. All throw Failure.
  std::unique_ptr<tutti_comm> shrink(uint64_t timeout_ns);
  std::string invite(uint64_t timeout_ns);
  std::unique_ptr<tutti_comm> grow(const std::string& id, uint32_t newcomers, uint64_t timeout_ns);
  // Any thread.
  std::vector<uint32_t> lost_ranks() const;

  // Collective, in communicator_split.cpp: this rank's part; nullptr: it has none. Throws Failure.
  std::unique_ptr<Communicator> split(const SplitCall& call);

  // Windows. Collective; `flags`: TUTTI_WINDOW_*; timeout_ns 0: the communicator's. They throw Failure.
  tutti_window* register_window(void* address, uint64_t bytes, uint32_t flags, uint64_t timeout_ns);
  void deregister_window(const tutti_window* window, uint64_t timeout_ns);
  tutti_window_facts window_facts(const tutti_window* window) const { return windows_.facts(window); }

  // Collective: all ranks meet once more, so that nothing sent is lost. To be called before destruction.
  tutti_status end();
  // Any thread: what has broken the communicator, also where only the control plane knows it yet.
  tutti_status async_error() const { return breakdown_.error(); }
  // Remembers an error's text for tutti_comm_error; returns the status. What has broken the communicator stays in it.
  tutti_status remember(tutti_status status, std::string text) noexcept;
  const char* error_text() const { return error_text_.c_str(); }
  // Is this a forked child, which has no part in the communicator?
  bool forked() const;

  std::vector<tutti_service> services();
  std::vector<tutti_link_traffic> traffic();
  std::vector<tutti_rail_traffic> rails();
  // Throws when the collective has not been called yet.
  tutti_plan_facts plan_facts(uint32_t collective);
  std::string explain(uint32_t collective, uint64_t count, uint32_t dtype) const;
  tutti_host_facts host_facts(uint32_t rank) const {
    return {sizeof(tutti_host_facts),         topology_.host_of_rank()[rank],   topology_.hosts(),
            topology_.rank_on_its_host(rank), topology_.ranks_on_host_of(rank), 0};
  }
  std::string topology_text();
  std::string topology_file() const { return core::topology_file(topology_); }
  const std::string& name() const { return configuration_.name; }

  bool try_progress() noexcept override;
  void join(Sleep& sleep) noexcept override;

 private:
  class Hold;  // communicator_hold.hpp
  class Attendance;

  // This rank's choices, made before the ranks meet.
  struct Means {
    AlgorithmFilter filter{""};
    TransportChoice transports;
    const tutti_selector* chooser = nullptr;
    std::optional<TracePlace> trace;
    std::optional<BackgroundProgress> meanwhile;
  };
  void find(Means& means);
  void take_place(std::unique_ptr<Bootstrap> bootstrap);
  void introduce(Means& means, const Deadline& deadline);
  void begin_trace(const Means& means);
  void open_fabric(Means& means);
  void describe_ranks(std::vector<RankDescription> ranks, Means& means);
  void make_natives(const Deadline& deadline);
  [[noreturn]] void give_up(const std::exception& problem);
  Fabric::Config fabric_config(bool devices) const;
  // Lanes for the windows and point to point, and for device memory.
  uint32_t host_lanes() const { return configuration_.windows * configuration_.lanes + 1; }
  uint32_t device_lanes() const { return configuration_.lanes + 1; }
  void prepare();

  // Going on.
  Membership& membership(const char* call);
  Configuration heritage(const Roster& roster, uint32_t newcomers) const;
  std::unique_ptr<tutti_comm> make_next(Membership& members, const Roster& roster, uint32_t newcomers,
                                        uint64_t timeout_ns, std::string* why);

  // Splitting.
  void grow_trunk(const std::string& place, const Patience& patience);
  std::unique_ptr<Communicator> make_part(const std::vector<uint32_t>& members, const std::string& name);

  // Operations; the engine is held.
  std::vector<tutti_link_traffic> traffic_rows() const;
  uint64_t timeout(const tutti_options* options) const {
    return options && options->timeout_ns ? options->timeout_ns : configuration_.timeout.ns;
  }
  void require_sound();
  bool advance_all();

  // Device memory.
  void make_streams();
  void require_mover();
  void keep_streams();

  // Sends and receives.
  tutti_status exchange_on_host(const char* name, std::span<const Transfer> transfers, const tutti_options* options,
                                tutti_request** request);
  uint32_t transfer_service(const char* name, std::span<const Transfer> transfers);
  tutti_request& begin_group(Operations::Request made, std::span<const Transfer> transfers,
                             tutti_request* group_of_calls = nullptr);

  // Groups of calls.
  tutti_status add_to_group(GroupedCall made, const tutti_options* options, tutti_request** request);
  tutti_status add_to_group(std::span<const Transfer> transfers, const StreamCall& call, const tutti_options* options,
                            tutti_request** request);
  void plan_calls(CallGroup& group);
  tutti_request& begin_calls(Operations::Request made);
  void begin_parts(tutti_request& request);

  // Persistent requests.
  static bool persistent(const tutti_options* options) { return options && options->flags & TUTTI_PERSISTENT; }
  tutti_status keep_in_stream(const StreamCall& call, std::span<const Transfer> transfers, const BlockTable* blocks,
                              tutti_request*& request);
  void start_sound(tutti_request& request);

  bool progress_ports(bool all);
  // The checks that not every poll needs: of this communicator, and of the process's others, too. `waits`: of a call
  // that waits.
  void look(bool waits);
  void look_around(bool waits);
  void check_deadlines(uint64_t now);
  void hear_who_leaves();
  bool carry_out_unless_inside();
  void run_directly(tutti_request& request);
  tutti_status wait_for(tutti_request& request);
  Fabric::Armed arm(std::pmr::vector<pollfd>* descriptors);
  void arm_for(Sleep& sleep);
  void keep_watched();
  // Operations are pending here, and nobody may be at them: those that sleep for other engines are to have this one,
  // too.
  void call_sleepers() {
    if (!attended_.load() && !is_watched()) ActiveEngines::process().wake_all();
  }
  void wait_on(const tutti_request& request, uint32_t& fruitless, uint64_t deadline_ns = Waiter::for_ever);
  void trace_wait(Trace& trace, bool moved) const;
  std::chrono::nanoseconds patience_at_end() const;
  [[noreturn]] void end_late(const Failure& late, bool was_short);
  void check_end(const Deadline& deadline);
  std::string word_of_end() const;
  std::optional<Cause> compare_ends(const Deadline& deadline, bool is_short);
  void settle(const Deadline& deadline, bool is_short);
  std::unique_lock<std::mutex> lock_for_call();
  void begin_progress_thread();
  void progress_thread();
  bool await_work();
  tutti_status result_of(tutti_request& request);

  // Waiter::Work
  bool progress() override;
  void look_around() override { look_around(true); }
  void sleep(uint64_t most_ns) override;
  bool is_over() const override { return breakdown_.begun(); }

  // Breakdown::Parts
  void hear() override { fabric_.progress(true, *this); }
  // "seen by rank 0 in world: all_reduce #7 (ring over tcp), at step 3 ..."
  std::string standpoint() const override;
  void stop(Breakdown::Text& text) override;
  void end_operations(tutti_status status, const std::string& text) override;

  // PortEvents
  void on_control(Port& port, uint32_t peer, const std::byte* data, uint64_t bytes) override;
  void on_peer_failed(Port& port, uint32_t peer, const char* reason) override;
  void on_port_error(Port& port, tutti_status status, const std::string& reason) override;

  Configuration configuration_;
  uint32_t rank_ = 0, nranks_ = 1;
  bool threaded_ = false;  // there is a progress thread
  const uint64_t fork_generation_;
  DeviceMemory device_;  // that it is bound to
  Memory::Reader known_host_;
  std::unique_ptr<Bootstrap> bootstrap_;
  std::unique_ptr<Membership> membership_;  // once it was needed
  Roster invitation_;                       // of the last invite
  Family family_;
  Topology topology_;
  std::unique_ptr<Selector> selector_;
  Agreement common_;  // of all ranks
  std::vector<std::unique_ptr<NativeGroup>> natives_;
  Fabric fabric_;
  std::unique_ptr<Reports> reports_;
  UserOperators operators_;
  Planner planner_;
  PlanCache plans_;

  PointToPoint point_to_point_;
  std::unique_ptr<StreamRunner> streams_;
  std::optional<CallCheck> call_check_;
  Breakdown breakdown_{*this};
  Departures departures_{point_to_point_, breakdown_};
  Waiter waiter_{*this};
  // Polls in a row without progress by waits of limited time: a caller that waits in many short ones comes to sleep.
  uint32_t fruitless_polls_ = 0;
  Meetings meetings_{waiter_, breakdown_};
  RegisteredWindows windows_{{fabric_, topology_, meetings_, breakdown_, operations_, configuration_, device_}};
  Operations operations_{{*this, fabric_, *this, breakdown_, windows_.list()}};
  std::optional<StreamCalls> stream_calls_;
  std::optional<CallGroup> open_group_;
  std::vector<const char*> carriers_;  // of the transfers that begin, while they are told
  uint64_t next_look_ns_ = 0;
  const tutti_request* awaited_ = nullptr;  // by the call that passes time

  std::mutex mutex_;
  std::atomic<uint32_t> wanted_{0};    // calls that wait for mutex_: the progress thread lets them go first
  std::atomic<uint64_t> pending_{0};   // operations and asleep_, published when the engine is let go
  std::atomic<uint32_t> attended_{0};  // threads that wait here, and the progress thread
  uint32_t asleep_ = 0;                // threads that sleep without the lock
  bool stirred_ = false;               // something has moved since this was last asked
  std::unique_lock<std::mutex>* open_to_others_ = nullptr;  // of the thread that may go to sleep without it
  std::condition_variable work_;  // with mutex_, for the progress thread: something is pending, or stop_
  std::atomic<bool> stop_{false};
  std::atomic<bool> settling_{false};  // settle() waits for the others
  std::atomic<bool> inside_{false};    // the owner is, without the lock
  std::thread thread_;

  std::thread failure_thread_;  // carries out a failure that a visitor has met
  bool ending_ = false;         // end() is under way and holds the engine
  std::string error_text_;
};

}  // namespace tutti::core
