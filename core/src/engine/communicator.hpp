// SPDX-License-Identifier: Apache-2.0
//
// The communicator: what tutti_comm is. It owns the ports and links, finds or makes the plan of a call, runs operations
// in windows, and turns every failure into one that all its pending operations end with.
#pragma once

#include <tutti/tutti.h>

#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "engine/executor.hpp"
#include "engine/point_to_point.hpp"
#include "engine/progress.hpp"
#include "engine/selector.hpp"
#include "engine/topology.hpp"

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
  std::shared_ptr<const std::atomic<bool>> alive;  // the communicator; nullptr: it outlives the request
};

namespace tutti::core {

struct ShapeHash {
  size_t operator()(const Shape& s) const {
    uint64_t h = s.count * 0x9e3779b97f4a7c15u;
    h ^= (uint64_t{s.collective} << 48) ^ (uint64_t{s.dtype} << 40) ^ (uint64_t{s.op} << 36) ^
         (uint64_t{s.in_place} << 33) ^ s.root;
    return h ^ (h >> 29);
  }
};

class Communicator final : public Engine, private PortEvents {
 public:
  explicit Communicator(const tutti_comm_config& config);
  ~Communicator() override;

  uint32_t rank() const { return rank_; }
  uint32_t nranks() const { return nranks_; }

  // Both validated by the caller. request == nullptr: blocks.
  tutti_status collective(const Shape& shape, const void* in, void* out, const tutti_options* options,
                          tutti_request** request);
  tutti_status transfer(bool sending, void* data, uint64_t bytes, uint32_t peer, uint32_t tag,
                        const tutti_options* options, tutti_request** request);
  tutti_status test(tutti_request& request);
  // timeout_ns UINT64_MAX: until complete.
  tutti_status wait(tutti_request& request, uint64_t timeout_ns);

  void abort(const std::string& reason);
  // Collective: all ranks meet once more, so that nothing sent is lost. To be called before destruction.
  tutti_status end();
  tutti_status async_error() const { return broken_status_.load(std::memory_order_acquire); }
  // Remembers an error's text for tutti_comm_error; returns the status.
  tutti_status remember(tutti_status status, std::string text);
  const char* error_text() const { return error_text_.c_str(); }
  // Throws when the communicator cannot be used: broken, or in a forked child.
  void require_usable() const;
  // Is this a forked child, which has no part in the communicator?
  bool forked() const;

  std::vector<tutti_service> services();
  std::vector<tutti_link_traffic> traffic();
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
  void meet(const tutti_comm_config& config);
  std::vector<const tutti_algorithm*> agree(uint64_t* id);
  void open_ports(uint64_t id);
  void describe_ranks();
  void choose_links();
  void set_wait_policy();
  void close();

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
  void complete(tutti_request& request, tutti_status status);
  bool advance_operations();
  bool advance_transfers();
  bool progress();
  bool advance_all();
  void notice_abort();
  bool progress_ports(bool all);
  void give_up_lost_peer();
  void look_around();
  void pause(uint32_t& fruitless);
  void check_deadlines(uint64_t now);
  std::string describe(const tutti_request& request) const;
  std::string under_way() const;
  // Ends every pending operation with the error, and the communicator's use.
  void break_down(tutti_status status, const std::string& text, bool tell_others);
  void drain();
  void run_directly(tutti_request& request);
  void sleep();
  void settle();
  void progress_thread();
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
  uint64_t fork_generation_ = 0;
  std::string transport_setting_, algorithm_setting_;
  std::unique_ptr<Bootstrap> bootstrap_;
  Topology topology_;
  std::unique_ptr<Selector> selector_;
  std::deque<Port> ports_;
  std::vector<Link> links_;

  std::unordered_map<Shape, std::unique_ptr<Plan>, ShapeHash> plans_;
  Plan* memo_[TUTTI_BARRIER + 1] = {};
  uint64_t plan_clock_ = 0;
  std::deque<Service> services_;  // its strings are handed out: they stay where they are

  std::vector<Window> windows_;
  uint64_t next_sequence_ = 0;
  std::list<tutti_request*> in_order_;  // collectives not complete, oldest first
  tutti_request direct_;                // the blocking call's own
  PointToPoint point_to_point_;
  WaitPolicy policy_;
  uint64_t next_look_ns_ = 0;
  uint64_t polls_ = 0;

  std::mutex mutex_;
  uint64_t unfinished_ = 0;           // asynchronous operations not complete
  std::atomic<uint64_t> pending_{0};  // the same, published when the engine is let go
  std::atomic<bool> stop_{false};
  std::atomic<bool> inside_{false};  // the owner is, without the lock
  std::shared_ptr<std::atomic<bool>> alive_ = std::make_shared<std::atomic<bool>>(true);
  std::thread thread_;

  bool breaking_ = false;  // break_down has begun; broken_status_ is published once the text is complete
  std::atomic<tutti_status> broken_status_{TUTTI_OK};
  std::string broken_text_;
  std::string lost_text_;  // of a peer that a port has given up, until break_down
  tutti_status lost_status_ = TUTTI_OK;
  std::string error_text_;
  std::atomic<bool> abort_asked_{false};
  std::mutex abort_mutex_;
  std::string abort_reason_;
};

}  // namespace tutti::core

struct tutti_comm {
  tutti::core::Communicator communicator;
  explicit tutti_comm(const tutti_comm_config& config) : communicator(config) {}
};
