// SPDX-License-Identifier: Apache-2.0
//
// The ranks of one communicator that are threads of one process meet here. In a collective on device memory all of them
// do: the last to come puts the work of all into their streams, in one order that cannot lock up a device whose streams
// share a queue. In sends and receives two of them do, once for each message, and each fills its own stream.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/failure.hpp"
#include "engine/p2p/queue.hpp"
#include "stream/stream_plan.hpp"

namespace tutti::core {

// One message between two ranks of a process.
struct Handover {
  enum class Stage { offered, taken, fetched, dropped };
  uint32_t from = 0, to = 0;
  const std::byte* data = nullptr;
  uint32_t device = 0;           // of the sender
  tutti_event* ready = nullptr;  // the sender's
  tutti_event* done = nullptr;   // behind the receiver's copy, from `fetched` on; made by the first receiver
  std::atomic<Stage> stage{Stage::offered};
  Handover *next = nullptr, *previous = nullptr;
};

class LocalRendezvous {
 public:
  // The rendezvous of communicator `id` in this process, made by the rank that comes first.
  static std::shared_ptr<LocalRendezvous> of(uint64_t id, std::vector<uint32_t> ranks);
  explicit LocalRendezvous(std::vector<uint32_t> ranks) : ranks_(std::move(ranks)) {}
  // Destroys the events that were left here.
  ~LocalRendezvous();

  // A rank's part: `device`, `call` and `tag` are checked to be the same for all.
  struct Arrival {
    StreamLaunch* launch = nullptr;
    DeviceTables device;
    Shape call;
    // Called by issue() while the device is busy; throws when the rank gives up. Lives until the turn has passed.
    const std::function<void()>* meanwhile = nullptr;
    uint64_t tag = 0;
  };
  // Any thread; one arrival per rank and turn. Takes the rendezvous's lock once, in a process with one rank never.
  // Returns the turn, to be asked for with passed().
  uint64_t arrive(const Arrival& arrival);
  // True when the work of the turn is in the streams. Throws the Failure with which it ended for all. Waits at most
  // so long, and takes no lock unless it throws.
  bool passed(uint64_t turn, std::chrono::microseconds patience);
  // The rank gives up: the rendezvous has failed for all, and no rank takes what it has offered. True: its launch is
  // not touched any more. False: the issuer has not come to an end in that time.
  bool leave(uint32_t rank, const Failure& why, std::chrono::microseconds patience);
  // The rank whose thread is putting the work of all into their streams, where that thread has been in one call of the
  // device for so long.
  std::optional<uint32_t> issuer(std::chrono::nanoseconds silent = {});
  // The ranks that have not come to this turn, "1, 3"; "" when all have, or the turn has ended.
  std::string missing(uint64_t turn);
  // Events that streams of other ranks may still wait for: those behind copies, and all of a rank that ends after a
  // failure. They are destroyed with the last rank's end; never, where a rank's streams are kept for ever.
  void leave_events(const tutti_executor* executor, std::vector<tutti_event*> events);

  // A send. The sender keeps what it offers until close().
  Handover& offer(uint32_t from, uint32_t to, const std::byte* data, uint32_t device, tutti_event* ready);
  // The oldest offer of the pair that was not taken; nullptr: none has come within that time. Its receiver puts the
  // copy into its stream and says `fetched`, or gives up and says `dropped`. Throws the Failure of the rank that gave
  // up.
  Handover* take(uint32_t from, uint32_t to, std::chrono::microseconds patience);
  void advance(Handover& handover, Handover::Stage stage);
  // How far it has come; waits at most so long until its receiver needs the sender's memory and event no more.
  Handover::Stage await(const Handover& handover, std::chrono::microseconds patience);
  // The sender's stream waits for the copy: the handover is used again.
  void close(Handover& handover);
  // Throws the Failure of the rank that gave up.
  void require_no_failure();
  // Two ranks may share a stream: one at a time adds to it.
  std::mutex& filling(void* stream);

 private:
  // Threads that wait for a change. Ringing takes no lock, so a thread that waits for one cannot hold it up.
  class Bell {
   public:
    uint32_t rings() const { return rings_.load(std::memory_order_acquire); }
    void ring();
    // Until it has rung after `seen`, at most so long.
    void wait(uint32_t seen, std::chrono::nanoseconds patience);

   private:
    std::atomic<uint32_t> rings_{0}, waiting_{0};
  };

  std::unique_lock<std::mutex> lock_if_shared();
  void hold(std::unique_lock<std::mutex> lock);
  bool is_over(uint64_t turn) const;
  static void require_default_stream(const Arrival& arrival);
  static void require_same(const Arrival& first, const Arrival& other);
  void put_into_streams(const std::function<void()>& meanwhile);

  const std::vector<uint32_t> ranks_;
  std::mutex mutex_;
  Bell changed_;
  std::vector<Arrival> arrivals_;
  std::vector<Arrival> present_;         // of the turn that is being issued
  std::vector<StreamLaunch*> launches_;  // of those, by rank
  StreamWriter writer_;
  std::atomic<uint64_t> turn_{0};
  std::atomic<bool> issuing_{false};             // all have come, and their launches are in use without the mutex
  uint32_t issuer_ = 0;                          // in the thread of this rank
  std::chrono::steady_clock::time_point heard_;  // when that thread was not in a call of the device
  std::exception_ptr failure_;                   // once it has failed, for good; to keep it takes no memory
  std::atomic<bool> failed_{false};              // it has
  std::vector<std::pair<const tutti_executor*, tutti_event*>> events_;
  // Messages from one rank to another.
  struct Pair {
    Queue<Handover> offers;  // not taken, oldest first
    Pool<Handover> handovers;
  };
  std::map<std::pair<uint32_t, uint32_t>, Pair> pairs_;
  std::map<void*, std::mutex> filling_;  // by stream
};

}  // namespace tutti::core
