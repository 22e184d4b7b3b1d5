// SPDX-License-Identifier: Apache-2.0
//
// A communicator's calls on device memory: the face that streams have for the communicator. A call returns when its
// work is in the stream. It is an operation that is pending until the device has finished it; meanwhile a thread of
// the process advances the channels that carry its bytes. DeviceStreams (device_streams.hpp) implements it.
//
// Threads: the one that holds the communicator's engine.
#pragma once

#include <tutti/reports.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stream/stream_call.hpp"
#include "stream/stream_comm.hpp"
#include "stream/stream_setup.hpp"

namespace tutti::core {

class Streams {
 public:
  // Was this library built with streams (TUTTI_STREAM)? Without them a communicator is bound to no device.
  static bool exist();
  static std::unique_ptr<Streams> make(StreamSetup setup, StreamComm& comm);
  Streams() = default;
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  // After close().
  virtual ~Streams() = default;

  // Puts a collective, or a group of sends and receives, into the call's stream. Both validated by the caller.
  // `blocks`: where they are unequal; not used after the call. Throws Failure.
  virtual void begin(const StreamCall& call, const BlockTable* blocks, const StreamAsker& asker) = 0;
  virtual void begin(const StreamCall& call, std::span<const Transfer> transfers, const StreamAsker& asker) = 0;
  // Moves channels, and completes the requests whose work the device has finished, oldest first. True when something
  // moved. Throws Failure.
  virtual bool advance() = 0;
  // The oldest operation, where the device has begun it and it stands still for longer than its timeout. Throws Failure
  // where the device has failed, which it is asked now and then.
  virtual const StreamOperation* overdue(uint64_t now_ns) = 0;
  // After a failure: gives all streams what they wait for, and waits some seconds until the device has finished.
  // Returns the error's words about memory that may still be in use, "; ..." or "".
  virtual std::string release() = 0;
  // Where operations were recorded whose replays wait for other processes, gives them what they wait for at this
  // moment; nobody sees when one runs. False: none was.
  virtual bool release_replays() = 0;
  // The communicator has ended, and so has all that is pending.
  virtual void fail_all() = 0;
  // No call will follow. Unmaps what belongs to other ranks, and takes back what they have mapped. False: streams may
  // still use it, and it stays. `last`, before the transports are closed: this is not tried again, and waits, not for
  // ever, until peers have unmapped this rank's memory.
  virtual bool end(bool last) = 0;
  // Behind that and the transports' end: releases all memory. False: the device, or the thread of another rank that
  // puts work into a stream, may still use it, and this object is to be kept for ever.
  virtual bool close() = 0;

  // ---- Memory that all ranks register (windows.hpp). `until` waits until its argument says true, or throws.
  using Until = std::function<void(const std::function<bool()>&)>;
  // Collective: exports the window to the other ranks and imports theirs. Returns "", or why this rank cannot; the
  // ranks then agree, and one that could calls drop().
  virtual std::string share(tutti_window& window, const Until& until) = 0;
  virtual void drop(tutti_window& window, const Until& until) = 0;
  // Releases what was taken back and no peer has mapped any more.
  virtual void release_pending_windows() = 0;

  // ---- How things stand.
  virtual bool has_channels() const = 0;
  virtual bool pending() const = 0;
  // nullptr: none is pending.
  virtual const StreamOperation* oldest() const = 0;
  virtual bool is_held_up() const = 0;
  // Where the oldest operation stands, for messages.
  virtual std::string standpoint() const = 0;
  // Bytes that other ranks' memory was read in place for, and those of mapped channels, by peer.
  virtual std::vector<tutti_link_traffic> traffic() const = 0;
};

}  // namespace tutti::core
