// SPDX-License-Identifier: Apache-2.0
//
// Sends and receives of device memory: how a group of them is put into one rank's stream. The sides meet by their order
// (point_to_point.hpp), in the call within a process and otherwise at any time. Each side moves the bytes that it was
// called for, whatever the other's call says: sides that differ end the communicator, and touch nothing else.
//
// Within a process the receiver's stream copies out of the sender's memory, ordered by events. Every rank fills its own
// stream, and an event is waited for once it is set:
//
//   sender     event "ready"                                             wait for "done"
//   receiver                  wait for "ready", copy, event "done"
//
// The handovers is where the two tell each other. A rank first offers all that it sends, then takes all that it
// receives, then waits for its receivers; so whatever the ranks' groups are, none waits for a peer that waits for it.
//
// Between processes messages go through channels (stream_channel.hpp), as fragments of a slot. All that a group sends
// one way counts as one message. Fragment f of a way is fetched at level 2f + 1 and put at level max(0, 2 (f - s) + 2),
// s being the slots, and a rank's stream goes by rising level. Fetching f needs f to be put, at a lower level; putting
// f needs f - s to be fetched, at level 2 (f - s) + 1, a lower one too. So of all that is not done in groups that have
// met something of lowest level can be done, and however long the messages are the streams cannot lock up.
#pragma once

#include <tutti/registry.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/failure.hpp"
#include "engine/p2p/queue.hpp"
#include "engine/p2p/transfer.hpp"
#include "stream/stream_channel.hpp"
#include "stream/stream_plan.hpp"

namespace tutti::core {

// One message between ranks of a process. It is the handovers's.
struct Handover {
  enum class Stage { offered, taken, fetched, settled };
  uint32_t from = 0, to = 0;
  const std::byte* data = nullptr;
  uint32_t device = 0;           // of the sender
  tutti_event* ready = nullptr;  // the sender's
  tutti_event* done = nullptr;   // the receiver's, behind its copy; from `fetched` on
  Stage stage = Stage::offered;  // taken, fetched: its receiver, its sender uses the other's event
  Handover *next = nullptr, *previous = nullptr;
};

// Where the ranks of a process hand over. All functions: any thread.
class Handovers {
 public:
  Handover* offer(uint32_t from, uint32_t to, const std::byte* data, uint32_t device, tutti_event* ready);
  // The oldest offer of the pair that was not taken; nullptr: there is none yet. It counts as taken.
  Handover* take(uint32_t from, uint32_t to);
  // A rank that uses the other's event says when it is done with it, whatever has happened meanwhile. Its sender
  // forgets it when it is settled.
  void advance(Handover& handover, Handover::Stage stage, tutti_event* done = nullptr);
  // Its receiver has seen that it is settled, and forgets it.
  void close(Handover& handover);
  // Has it come that far? Waits at most so long. Throws the Failure of whoever gave up.
  bool reached(const Handover& handover, Handover::Stage stage, std::chrono::microseconds patience);
  // The rank gives up, and with it all. What it sends is taken by nobody from now on. Returns the ranks that are still
  // putting the copy of what they have taken into their streams, "1, 3", after waiting so long that none does; "".
  std::string leave(uint32_t rank, const Failure& why, std::chrono::microseconds patience);
  Handover::Stage stage_of(const Handover& handover);
  // Two ranks may share a stream: one at a time adds to it.
  std::mutex& filling(void* stream);

 private:
  void require_hope() const;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<uint32_t, uint32_t>, Queue<Handover>> offers_;  // not taken, oldest first
  Queue<Handover> taken_;
  Pool<Handover> handovers_;
  std::unique_ptr<Failure> failure_;     // for good
  std::map<void*, std::mutex> filling_;  // by stream
};

// A rank's part in a group. It keeps the memory of a former issue().
struct StreamExchange : StreamPart {
  struct Fragment {
    uint64_t level = 0;
    StreamChannel* channel = nullptr;
    uint64_t number = 0;  // of the channel
    std::byte* data = nullptr;
    uint64_t bytes = 0;
    bool put = false;
  };
  std::vector<Fragment> fragments;
  std::vector<Handover*> sent, received;

  const std::vector<Transfer>* transfers = nullptr;  // those within the process are matched
  DeviceTables tables;
  uint64_t operation = 0;  // its number, for the channels
  Handovers* handovers = nullptr;
  std::function<StreamChannel*(uint32_t peer, bool outgoing)> channel;  // gives nullptr: the peer is of this process
  StreamWriter* writer = nullptr;
  std::mutex* turn = nullptr;  // of the stream, see Handovers::filling(); nullptr: the process has one rank
  uint64_t most_queued = 0;    // commands that may be in the device's queue
  // Other ranks' streams may share the device's queue with this one, and nobody orders them: nothing is put into the
  // stream that would have to wait there for another process.
  bool paced = false;
  // Set by issue(). The call itself waits for that rank of its process, besides the device.
  enum class Awaits { nothing, receiving, sending, going_on } awaits = Awaits::nothing;
  uint32_t awaited_rank = 0;
  std::string waits_for() const;  // in words; "": nothing
};

// Puts the group into the stream. `meanwhile` is called while it waits; what it throws ends the issue. Throws Failure.
// Work that was put into the stream before stays there, and the stream comes to its end after all that read what it
// sends.
void issue(StreamExchange& exchange, const std::function<void()>& meanwhile);

}  // namespace tutti::core
