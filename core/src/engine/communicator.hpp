// SPDX-License-Identifier: Apache-2.0
//
// The communicator: what tutti_comm is. It owns the ports and links, finds or makes the plan of a call, runs operations
// in windows, and turns every failure into one that all its pending operations end with.
#pragma once

#include <tutti/tutti.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/membership.hpp"
#include "engine/call_check.hpp"
#include "engine/executor.hpp"
#include "engine/flight_recorder.hpp"
#include "engine/point_to_point.hpp"
#include "engine/progress.hpp"
#include "engine/selector.hpp"
#include "engine/stream_runner.hpp"
#include "engine/topology.hpp"
#include "engine/transport_choice.hpp"

namespace tutti::core {
class Communicator;
}

// One operation: a collective's launch or a transfer. Asynchronous ones belong to the user until tutti_request_free.
struct tutti_request {
  enum class State { queued, running, done };
  tutti::core::Communicator* comm = nullptr;
  tutti::core::Plan* plan = nullptr;  // nullptr: a transfer
  const void* in = nullptr;
  void* out = nullptr;
  uint64_t sequence = 0;
  uint64_t timeout_ns = 0;
  uint64_t last_progress_ns = 0;
  uint64_t begin_ticks = 0;
  uint32_t service = 0;
  State state = State::done;
  std::atomic<bool> complete{true};
  tutti_status status = TUTTI_OK;
  std::string error;
  tutti::core::Transfer transfer;
  bool exchange = false;  // sends and receives: a group, or of device memory
  std::vector<tutti::core::Transfer> group;
  uint64_t open = 0;                               // of the group, on the host
  std::shared_ptr<const std::atomic<bool>> alive;  // the communicator; nullptr: it outlives the request
};

namespace tutti::core {

class Communicator final : public Engine, private PortEvents {
 public:
  // What is known of one that follows another.
  struct Succession {
    uint32_t newcomers = 0;                 // of the config's ranks, those that come with TUTTI_COMM_JOIN
    std::function<std::string()> hopeless;  // why not all can come, or ""
  };
  explicit Communicator(const tutti_comm_config& config, const Succession& succession = {0, nullptr});
  ~Communicator() override;

  uint32_t rank() const { return rank_; }
  uint32_t nranks() const { return nranks_; }

  // Both validated by the caller. request == nullptr: blocks.
  tutti_status collective(const Shape& shape, const void* in, void* out, const tutti_options* options,
                          tutti_request** request);
  // The same on device memory, and calls without buffers on a stream: returns when the work is in the stream.
  tutti_status stream_collective(StreamRunner::Call call, const tutti_options* options, tutti_request** request);
  tutti_status transfer(bool sending, void* data, uint64_t bytes, uint32_t peer, uint32_t tag,
                        const tutti_options* options, tutti_request** request);
  // Several at once, in communicator_transfer.cpp; with data of every transfer on the host.
  tutti_status exchange(std::vector<Transfer> transfers, const tutti_options* options, tutti_request** request);
  // One or several, none empty, on device memory: returns when the work is in the stream.
  tutti_status stream_exchange(StreamRunner::Call call, std::vector<Transfer> transfers, const tutti_options* options,
                               tutti_request** request);
  tutti_status test(tutti_request& request);
  // timeout_ns UINT64_MAX: until complete.
  tutti_status wait(tutti_request& request, uint64_t timeout_ns);

  // Any thread. `reason` goes on after "rank 3 ": "aborted: ...".
  void abort(const std::string& reason);
  // What follows a failure, in communicator_membership.cpp; timeout_ns 0: the connect timeout. Collective over the
  // ranks that live. All throw Failure.
  std::unique_ptr<tutti_comm> shrink(uint64_t timeout_ns);
  std::string invite(uint64_t timeout_ns);
  std::unique_ptr<tutti_comm> grow(const std::string& id, uint32_t newcomers, uint64_t timeout_ns);
  // Any thread.
  std::vector<uint32_t> lost_ranks() const;

  // Collective: all ranks meet once more, so that nothing sent is lost. To be called before destruction.
  tutti_status end();
  // Any thread: what has broken the communicator, also where only the control plane knows it yet.
  tutti_status async_error() const;
  // Remembers an error's text for tutti_comm_error; returns the status. What has broken the communicator stays in it.
  tutti_status remember(tutti_status status, std::string text);
  const char* error_text() const { return error_text_.c_str(); }
  // Throws when the communicator cannot be used: broken, or in a forked child. The engine is held.
  void require_usable();
  // Is this a forked child, which has no part in the communicator?
  bool forked() const;

  std::vector<tutti_service> services();
  std::vector<tutti_link_traffic> traffic();
  std::vector<tutti_rail_traffic> rails();
  // Throws when the collective has not been called yet.
  tutti_plan_facts plan_facts(uint32_t collective);
  std::string explain(uint32_t collective, uint64_t count, uint32_t dtype);
  std::string topology_text() const { return topology_.text(); }
  const std::string& name() const { return name_; }

  bool try_progress() override;

 private:
  struct Window {
    Execution execution;
    tutti_request* running = nullptr;
  };
  struct Service {
    std::string collective, algorithm, transports;
    uint64_t calls = 0, bytes = 0, ticks = 0;
  };
  class Hold;  // communicator_hold.hpp

  // Making, in communicator_setup.cpp.
  void meet(const tutti_comm_config& config, const Succession& succession);
  FlightRecorder::Meeting meeting_of(const tutti_comm_config& config) const;
  std::vector<const tutti_algorithm*> agree();
  void open_ports(const TransportChoice& choice);
  // Windows, point to point, and those of device memory.
  uint32_t lanes_of_link() const { return windows_count_ * lanes_ + 1 + (device_lanes_ ? lanes_ + 1 : 0); }
  void describe_ranks();
  void share_board();
  void receive_board();
  void choose_links();
  void prepare(const tutti_comm_config& config);
  void set_wait_policy();
  void close();

  // Going on.
  Membership& membership(const char* call);
  tutti_comm_config heritage(const Roster& roster, uint32_t newcomers) const;
  std::unique_ptr<tutti_comm> make_next(Membership& members, const Roster& roster, uint32_t newcomers,
                                        std::chrono::nanoseconds timeout, std::string* why);

  // Plans.
  Plan& find_plan(const Shape& shape);
  Plan& make_plan(const Shape& shape);
  void evict_plans();
  uint32_t service_row(const char* collective, const char* algorithm, const std::string& transports);

  // Operations; the engine is held.
  void begin(tutti_request& request, Plan& plan, const void* in, void* out, const tutti_options* options);
  bool connected(const std::vector<Link*>& links);
  bool connect(Link& link);
  bool try_launch(tutti_request& request);
  void hear_news(const Call& mine);
  bool listen_once(Plan& plan);
  void complete(tutti_request& request, tutti_status status);
  bool advance_operations();
  bool advance_transfers();
  bool progress();
  bool advance_all();

  // Device memory, in communicator_stream.cpp.
  void make_streams();
  void require_streams();
  void begin_on_stream(StreamRunner::Call& call, const tutti_options* options, bool wants_request);
  void check_stream_call(const Call& mine, uint64_t timeout_ns);
  void tell_of_streams();
  void issue_stream(const StreamRunner::Call& call, StreamPlan& plan);
  [[noreturn]] void end_issue(const Failure& failure);
  void await_streams(const std::function<bool()>& enough);
  StreamPlan& open_channels(const StreamRunner::Call& call, StreamPlan& plan);
  void await_peers(const std::function<bool()>& enough, uint64_t timeout_ns, std::optional<uint64_t> sequence);

  // Sends and receives, in communicator_transfer.cpp.
  void record(tutti_request& request);
  void match(std::vector<Transfer>& transfers);
  void end_difference();
  void put_transfers(const StreamRunner::Call& call, const std::vector<Transfer>& transfers);
  bool advance_streams();
  void end_stream_request(tutti_request* request, tutti_status status);
  void end_streams(tutti_status status);

  void notice_abort();
  bool progress_ports(bool all);
  void look_around();
  void pause(uint32_t& fruitless);
  void check_deadlines(uint64_t now);
  void record_waits(uint64_t now, bool moved);
  std::string flight_record_text() const;
  std::string describe(const tutti_request& request) const;
  // Where this rank stands, for messages: "seen by rank 0 in world: all_reduce #7 (ring over tcp), at step 3 ...".
  std::string standpoint() const;
  // Ends every pending operation and the communicator's use. `culprit` `reason` are told to the others, unless one of
  // them was first: then that is the cause here too.
  void break_down(tutti_status status, uint32_t culprit, const std::string& reason);
  void break_down(const Loss& cause);
  // This rank cannot go on.
  void break_down(const std::exception& problem);
  // Does what comes before an operation can begin. Where this rank lacks something for it (memory, a device that
  // works), the others go on to wait for this rank: they are told. A call that is wrong or that nobody offers ends here
  // alone.
  template <typename Body>
  decltype(auto) or_tell(Body&& body);
  // An operation's time is over: who keeps it waiting? `sequence`: of a collective.
  void break_down_late(uint64_t timeout_ns, std::optional<uint64_t> sequence);
  void drain();
  void run_directly(tutti_request& request);
  void sleep();
  void check_end();
  void settle();
  void progress_thread();
  bool await_work();
  tutti_status result_of(tutti_request& request);

  // PortEvents
  void on_control(Port& port, uint32_t peer, const std::byte* data, uint64_t bytes) override;
  void on_peer_failed(Port& port, uint32_t peer, const char* reason) override;
  void on_port_error(Port& port, tutti_status status, const std::string& reason) override;

  std::string name_ = "world";
  uint32_t rank_ = 0, nranks_ = 1;
  uint32_t windows_count_ = 0, lanes_ = 0;
  uint64_t connect_timeout_ns_ = 0, timeout_ns_ = 0, scratch_limit_ = 0;
  bool threaded_ = false;
  bool verifies_ = false;
  bool checksums_ = false;  // every message carries a seal
  bool checks_calls_ = false;
  uint64_t fork_generation_ = 0;
  std::string transport_setting_, algorithm_setting_;
  std::unique_ptr<Bootstrap> bootstrap_;
  std::unique_ptr<Membership> membership_;  // once it was needed
  Roster invitation_;                       // of the last invite
  Topology topology_;
  std::unique_ptr<Selector> selector_;
  std::deque<Port> ports_;
  std::vector<Link> links_;

  std::unordered_map<Shape, std::unique_ptr<Plan>, ShapeHash> plans_;
  Plan* memo_[TUTTI_BARRIER + 1] = {};
  // What served the last call of a collective where that was one on device memory: then it has no memo.
  struct StreamFacts {
    bool there = false;
    uint32_t service = 0;
    uint64_t slices = 0, schedule_hash = 0;
  };
  StreamFacts stream_facts_[TUTTI_BARRIER + 1];
  uint64_t plan_clock_ = 0;
  std::set<std::string> rail_names_;  // handed out likewise
  std::deque<Service> services_;      // its strings are handed out: they stay where they are

  std::vector<Window> windows_;
  uint64_t next_sequence_ = 0;
  std::list<tutti_request*> in_order_;  // collectives not complete, oldest first
  tutti_request direct_;                // the blocking call's own
  PointToPoint point_to_point_;
  uint64_t id_ = 0;                           // of the communicator, the same on all ranks
  bool device_lanes_ = false;                 // some rank has a device: links have lanes for it
  std::unique_ptr<MemoryExchange> exchange_;  // nullptr: device memory is not mapped by others
  std::shared_ptr<DirectBoard> board_;        // nullptr: no buffers are read directly, for the reason in no_board_
  std::string no_board_;
  std::unique_ptr<StreamRunner> streams_;
  std::vector<std::unique_ptr<tutti_request>> own_requests_;  // of stream calls without a request
  CallCheck call_check_;
  // Ranks to be told of a stream plan's first use, once their links are there.
  struct Untold {
    Call call;
    Link* link;
  };
  std::vector<Untold> untold_;
  std::shared_ptr<FlightRecorder> recorder_;  // who answers roll calls holds it too
  WaitPolicy policy_;
  uint64_t next_look_ns_ = 0;
  uint64_t polls_ = 0;

  std::mutex mutex_;
  uint64_t unfinished_ = 0;           // asynchronous operations not complete
  std::atomic<uint64_t> pending_{0};  // the same, published when the engine is let go
  std::condition_variable work_;      // with mutex_, for the progress thread: something is pending, or stop_
  std::atomic<bool> stop_{false};
  std::atomic<bool> inside_{false};  // the owner is, without the lock
  std::shared_ptr<std::atomic<bool>> alive_ = std::make_shared<std::atomic<bool>>(true);
  std::thread thread_;

  bool breaking_ = false;  // break_down has begun; broken_status_ is published once the text is complete
  std::atomic<tutti_status> broken_status_{TUTTI_OK};
  std::string broken_text_;
  std::string lost_reason_;  // of a peer that a port has given up, until break_down
  uint32_t lost_peer_ = 0;
  tutti_status lost_status_ = TUTTI_OK;
  std::string error_text_;
  std::atomic<bool> abort_asked_{false};
  std::mutex abort_mutex_;
  std::string abort_reason_;
};

}  // namespace tutti::core

struct tutti_comm {
  explicit tutti_comm(const tutti_comm_config& config,
                      const tutti::core::Communicator::Succession& succession = {0, nullptr})
      : communicator(new tutti::core::Communicator(config, succession)) {}
  ~tutti_comm() { delete communicator.load(); }
  std::atomic<tutti::core::Communicator*> communicator;  // nullptr once destroyed: the handle itself stays
  std::string last_words = "the communicator was destroyed: no call may use it any more";
};
