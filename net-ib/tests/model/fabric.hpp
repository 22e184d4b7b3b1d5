// SPDX-License-Identifier: Apache-2.0
//
// The model's objects. verbs.cpp hands them out as libibverbs' types, fabric.cpp moves the bytes.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapters.hpp"

namespace tutti_test::model {

using Clock = std::chrono::steady_clock;

struct Device {
  ibv_device verbs{};
  Adapter adapter;
  Manners manners;
  bool up = true, fatal = false;
  std::array<ibv_gid, 2> gids{};
  Clock::time_point line_is_free{};
  Counts counts;
};

struct Context {
  verbs_context verbs{};  // its last part is what callers see
  Device* device = nullptr;
  std::deque<ibv_async_event> events;
  int protection_domains = 0;
};
inline Context* of(ibv_context* context) { return reinterpret_cast<Context*>(verbs_get_ctx(context)); }

struct Region {
  ibv_mr verbs{};
  Device* device = nullptr;
  uint64_t begin = 0, bytes = 0;  // as requests address it
  char* memory = nullptr;         // where it lies
  bool on_device = false;
  int access = 0;
  void* mapping = nullptr;
  std::deque<std::pair<uint64_t, std::string>> late_writes;  // at an offset
};

struct Channel {
  ibv_comp_channel verbs{};
  std::deque<ibv_cq*> events;
};

struct CompletionQueue {
  struct Entry {
    ibv_wc wc{};
    uint32_t serial = 0;  // of a request to send
    bool receive = false;
  };
  ibv_cq verbs{};
  Channel* channel = nullptr;
  bool armed = false, broken = false;
  int unacknowledged = 0;
  std::deque<Entry> entries;
};

struct SharedReceives {
  ibv_srq verbs{};
  uint32_t most = 0, occupied = 0;
  struct Request {
    uint64_t id;
    ibv_sge part;
  };
  std::deque<Request> requests;
};

struct QueuePair {
  struct Request {
    ibv_send_wr wr{};
    std::vector<ibv_sge> parts;
    std::string inline_bytes;
    uint64_t bytes = 0;
    uint32_t serial = 0;
    Clock::time_point arrives{}, acknowledged{};
    bool executed = false;
  };
  ibv_qp verbs{};
  Device* device = nullptr;
  ibv_qp_init_attr limits{};
  ibv_qp_state state = IBV_QPS_RESET;
  ibv_ah_attr address{};
  ibv_gid own_gid{};
  uint32_t peer = 0;
  unsigned access = 0;
  uint32_t timeout = 0, retries = 0, tries = 0;
  std::deque<Request> sends;
  size_t executed = 0;                 // so many of `sends`
  uint32_t posted = 0, retired = 0;    // serials
  std::vector<CompletionQueue::Entry> held;
  uint32_t epoch = 0;                  // counts resets
  int unacknowledged = 0;              // events
};

// `verbs` is the first part of each of these.
template <typename T, typename V>
T* owner(V* verbs) {
  return reinterpret_cast<T*>(verbs);
}

// Everything. All members need the lock.
class Fabric {
 public:
  static Fabric& get();
  std::recursive_mutex mutex;

  void install(const std::vector<Adapter>& adapters);
  Device& device(const std::string& name);
  // Carries out what is due.
  void advance();
  void at(Clock::time_point when, std::function<void()> what);

  // A list of requests to send, as ibv_post_send's.
  int post(QueuePair& qp, ibv_send_wr* requests, ibv_send_wr** bad);
  int modify(QueuePair& qp, const ibv_qp_attr& attr, int mask);
  void discard(QueuePair& qp);  // as RESET does
  void to_error(QueuePair& qp);
  void raise(Device& device, ibv_event_type type, QueuePair* qp = nullptr);
  void add(CompletionQueue& cq, const CompletionQueue::Entry& entry);

  std::vector<std::unique_ptr<Device>> devices;
  std::set<Context*> contexts;
  std::map<uint32_t, QueuePair*> queue_pairs;
  std::map<uint32_t, Region*> regions;  // by key
  std::set<uint32_t> flow_labels;
  uint32_t next_number = 17;
  uint64_t locked_bytes = 0;
  bool fork_is_safe = false;

 private:
  enum class Outcome { kDone, kLost, kNotReady, kFailed };
  void run(uint32_t number, uint32_t epoch);
  void wake(QueuePair& qp, Clock::time_point when);
  Outcome execute(QueuePair& qp, QueuePair::Request& request, ibv_wc_status* status);
  Device* way(QueuePair& qp);
  bool gather(QueuePair& qp, const QueuePair::Request& request, std::string* bytes);
  bool scatter(ibv_pd* pd, std::span<const ibv_sge> parts, std::string_view bytes);
  Region* region(uint32_t key, ibv_pd* pd, uint64_t address, uint64_t bytes, int access);
  void write(Region& region, uint64_t address, std::string_view bytes);
  void complete(QueuePair& qp, const QueuePair::Request& request, ibv_wc_status status, Clock::time_point when);
  void fail(QueuePair& qp, ibv_wc_status status);
  bool retry(QueuePair& qp);
  void receive(QueuePair& qp, const QueuePair::Request& request, const SharedReceives::Request& taken);

  std::multimap<Clock::time_point, std::function<void()>> due_;
};

void settle_writes(Region& region);

}  // namespace tutti_test::model
