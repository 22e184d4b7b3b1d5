// SPDX-License-Identifier: Apache-2.0
//
// The trace of one communicator: with TUTTI_TRACE each rank records its calls, steps, waits and bytes per link
// (tutti/trace.h has the layout), and a tracer takes them: tracer/1, of which plugins/trace makes files.
//
// Records go into a ring of fixed size, from which a thread hands them to the tracer. Where the ring is full, or the
// tracer takes no more, records are dropped and counted. Steps are recorded of calls of `least_step_call` bytes and
// more: those of smaller ones would take a larger part of the call.
//
// Threads: put() and what calls it by whoever holds the communicator's engine, one at a time.
#pragma once

#include <tutti/flight_record.h>
#include <tutti/plugin/tracer.h>
#include <tutti/trace.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/wire.hpp"

namespace tutti::core {

// Where traces go, as TUTTI_TRACE says: FOLDER, or plugin:NAME:PLACE.
struct TracePlace {
  const tutti_tracer* tracer;
  std::string place;
};
// Nothing where TUTTI_TRACE is not set. Throws Failure where there is no such tracer, or it cannot write there.
std::optional<TracePlace> trace_place();

class Trace {
 public:
  static constexpr uint64_t capacity = 16384;         // records in the ring
  static constexpr uint64_t least_step_call = 16384;  // bytes

  struct Owner {
    std::string name;  // the communicator's
    uint64_t communicator = 0;
    uint32_t rank = 0, nranks = 0;
  };
  // Throws Failure.
  Trace(const TracePlace& where, const Owner& owner);
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  // Hands over what is left.
  ~Trace();

  void service(uint32_t service, const std::string& algorithm, const std::string& transports);
  void call(const tutti_flight_operation& o, uint64_t end_ticks, int32_t status) {
    moved(end_ticks);
    if (o.tag) put(tutti_trace_tag{TUTTI_TRACE_TAG, 0, o.number - 1, o.tag, {}});
    put(tutti_trace_call{TUTTI_TRACE_CALL, status, o.number - 1, o.begin_ticks, end_ticks, o.count, o.plan,
                         o.collective, o.dtype, o.op, o.root, o.service, o.in_place, static_cast<uint32_t>(o.slices)});
  }
  void transfer(const tutti_flight_transfer& t, uint64_t end_ticks, int32_t status) {
    moved(end_ticks);
    put(tutti_trace_transfer{TUTTI_TRACE_TRANSFER, t.peer, t.number - 1, t.begin_ticks, end_ticks, t.bytes, t.sending,
                             t.tag, status, t.service, 0});
  }
  void step(const tutti_trace_step& step) { put(step); }
  // A call or transfer whose beginning is not known any more.
  void miss() { lost_.fetch_add(1, std::memory_order_relaxed); }
  void link(uint32_t peer, const char* transport, uint64_t sent, uint64_t received);

  // A wait has polled, and nothing has moved. `position` returns the tutti_trace_step that is waited for. It is asked
  // once the wait has become worth a record, and then now and then: where the peer is another one, a new wait begins.
  template <typename Position>
  void idle(Position&& position) {
    if (++idle_polls_ < polls_of_a_pause) return;  // most waits of small calls end here, without a clock read
    if (idle_polls_ == polls_of_a_pause) idle_since_ = ticks();
    if (idle_polls_ < polls_of_a_wait || (idle_polls_ < polls_of_a_long_wait && idle_polls_ % polls_of_a_wait)) return;
    const tutti_trace_step step = position();
    if (idle_polls_ > polls_of_a_wait && step.peer != waited_for_.peer) {
      const uint64_t now = ticks(), polls = idle_polls_;
      moved(now);
      idle_polls_ = polls;
      idle_since_ = now;
    }
    waited_for_ = step;
  }
  // Something has moved: a wait is over.
  void moved() {
    if (idle_polls_ >= polls_of_a_wait) return moved(ticks());
    idle_polls_ = 0;
  }

  // Collective: all ranks tell each other the time, so that tutti-trace can align the clocks of several hosts. A rank
  // without a trace takes part, too.
  static void exchange_clocks(Trace* trace, uint32_t rank, const Gather& gather);

 private:
  static constexpr uint64_t polls_of_a_pause = 8, polls_of_a_wait = 16, polls_of_a_long_wait = 512;
  struct alignas(64) Record {  // a cache line
    std::array<std::byte, 64> bytes;
  };

  template <typename T>
  void put(const T& record) {
    static_assert(sizeof(T) == sizeof(Record));
    const uint64_t at = written_.load(std::memory_order_relaxed);
    if (at - known_saved_ == capacity && !find_room(at)) return;
    new (&ring_[at % capacity]) T(record);  // so compilers store each field here, without a copy of the record
    __builtin_prefetch(&ring_[(at + 8) % capacity], 1);  // the thread has read it last: it lies in another cache
    written_.store(at + 1, std::memory_order_release);
    if ((at + 1) % (capacity / 4) == 0) wake_.notify_one();
  }
  bool find_room(uint64_t at);
  void moved(uint64_t now) {
    if (idle_polls_ >= polls_of_a_wait) {
      waited_for_.begin_ticks = idle_since_;
      waited_for_.end_ticks = now;
      put(waited_for_);
    }
    idle_polls_ = 0;
  }
  void run();
  void save();
  bool write(const void* records, uint64_t n);

  const tutti_tracer& tracer_;
  const std::string name_;  // of the trace, for messages
  tutti_tracing* tracing_ = nullptr;
  std::unique_ptr<Record[]> ring_;
  std::atomic<uint64_t> written_{0};
  uint64_t known_saved_ = 0;
  uint64_t idle_polls_ = 0;
  uint64_t idle_since_ = 0;
  tutti_trace_step waited_for_{};
  alignas(64) std::atomic<uint64_t> saved_{0};
  std::atomic<uint64_t> lost_{0};
  // The thread's.
  uint64_t told_lost_ = 0;
  std::string refusal_;  // why the tracer has dropped records
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tutti::core
