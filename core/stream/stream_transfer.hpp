// SPDX-License-Identifier: Apache-2.0
//
// Sends and receives of device memory: how a group of them is put into one rank's stream. The sides meet by their order
// (point_to_point.hpp), in the call within a process and otherwise at any time. Each side moves the bytes that it was
// called for: sides that differ end the communicator, and touch no other memory.
//
// Within a process the receiver's stream copies out of the sender's memory, ordered by events. Every rank fills its own
// stream, and an event is waited for once it is set:
//
//   sender     event "ready"                                             wait for "done"
//   receiver                  wait for "ready", copy, event "done"
//
// The two meet for each message (local_rendezvous.hpp). A rank first offers all that it sends, then takes all that it
// receives, then waits for its receivers; so no rank waits for a peer that waits for it, for any groups.
//
// Between processes messages go through channels (stream_channel.hpp), as fragments of a slot. All that a group sends
// one way counts as one message. Fragment f of a way is fetched at level 2f + 1 and put at level max(0, 2 (f - s) + 2),
// s being the slots, and a rank's stream goes by rising level. Fetching f needs f to be put, at a lower level; putting
// f needs f - s to be fetched, at level 2 (f - s) + 1, a lower one too. So of all that is not done in groups that have
// met something of lowest level can be done, and however long the messages are the streams cannot lock up.
//
// A group is not compiled to a program, as collectives are (stream_program.hpp): for each message within the process
// the host waits until it knows the other side's address, and so a program could hold the other messages only.
#pragma once

#include <tutti/registry.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "engine/p2p/transfer.hpp"
#include "stream/local_rendezvous.hpp"
#include "stream/stream_channel.hpp"
#include "stream/stream_plan.hpp"

namespace tutti::core {

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
  std::vector<Handover*> sent;  // nullptr: this rank's stream waits for its copy

  const std::vector<Transfer>* transfers = nullptr;  // those within the process are matched
  DeviceTables tables;
  uint64_t operation = 0;  // its number, for the channels
  LocalRendezvous* rendezvous = nullptr;
  std::function<StreamChannel*(uint32_t peer, bool outgoing)> channel;  // gives nullptr: the peer is of this process
  StreamWriter* writer = nullptr;
  std::mutex* turn = nullptr;  // of the stream, see LocalRendezvous::filling(); nullptr: the process has one rank
  uint64_t most_queued = 0;    // commands that may be in the device's queue
  // Other ranks' streams may share the device's queue with this one, and nobody orders them: nothing is put into the
  // stream that would have to wait there for another process.
  bool paced = false;
  // Set by issue(). The call itself waits for that rank of its process, besides the device.
  enum class Awaits { nothing, receiving, sending } awaits = Awaits::nothing;
  uint32_t awaited_rank = 0;
  std::string waits_for() const;  // in words; "": nothing
};

// Puts the group into the stream. `meanwhile` is called while it waits; what it throws ends the issue. Throws Failure.
// Work that was put into the stream before stays there, and the stream comes to its end after all that read what it
// sends.
void issue(StreamExchange& exchange, const std::function<void()>& meanwhile);

}  // namespace tutti::core
