// SPDX-License-Identifier: Apache-2.0
//
// A program: the commands of one shape for the streams of all ranks of a process, in the order in which they are
// enqueued. It is compiled once, from the ranks' plans. A call fills in what differs between calls, the relocations,
// and enqueues:
//
//   address   base of a rank's buffer IN, OUT or SCRATCH, and an offset
//   slot      where a fragment lies on its way to or from another process, and the flags before and behind it
//   counter   of a rank: its operation begins, and ends
//   event     of the process's ranks among themselves: events belong to the communicator
//
// Ranks of the process read each other's memory and are ordered by events, all others by the flags of their slots. A
// rank that is read by another waits for the reader before it overwrites the bytes, and in the end.
#pragma once

#include <cstdint>
#include <vector>

#include "stream/stream_writer.hpp"

namespace tutti::core {

struct StreamLaunch;

class StreamProgram {
 public:
  // `launches` are those of the ranks of one operation, by rising rank. Throws Failure where the plans' levels are
  // wrong.
  explicit StreamProgram(const std::vector<StreamLaunch*>& launches);
  StreamProgram(const StreamProgram&) = delete;
  StreamProgram& operator=(const StreamProgram&) = delete;

  // Was it compiled from the plans of these launches?
  bool serves(const std::vector<StreamLaunch*>& launches) const;
  // Spare events that a rank's commands use.
  uint32_t events(size_t rank) const { return ranks_[rank].events; }
  // Fills in what the launches bring. The writer has their streams as targets, in order.
  void relocate(const std::vector<StreamLaunch*>& launches, const StreamWriter& writer);

  // Commands of one stream that are enqueued one after the other: commands(rank)[from, to).
  struct Run {
    size_t rank;
    size_t from, to;
  };
  const std::vector<Run>& runs() const { return runs_; }
  const tutti_command* commands(size_t rank) const { return ranks_[rank].commands.data(); }

  // Does `reader` still read the owner's memory, unknown to the owner's stream, when so many commands of both have been
  // enqueued?
  bool reads(size_t owner, uint64_t owners_commands, size_t reader, uint64_t readers_commands) const;

 private:
  friend class StreamCompiler;
  static constexpr uint32_t none = UINT32_MAX;
  struct Address {
    uint32_t command;
    uint32_t source;  // of the rank's sources; none: it is the command's destination
    uint32_t base;    // rank * 3 + buffer
    uint64_t offset;
  };
  enum class CommandField : uint32_t { destination, source, awaited, notified };
  struct SlotUse {
    uint32_t command;
    CommandField part;
    uint32_t source;
    uint32_t way;  // of the plan's traffic
    uint64_t number;
  };
  struct EventUse {
    uint32_t command;
    uint32_t rank, number;
  };
  struct Rank {
    std::vector<tutti_command> commands;
    std::vector<const void*> sources;
    std::vector<uint32_t> first_source;  // of each command
    std::vector<Address> addresses;
    std::vector<SlotUse> slots;
    std::vector<EventUse> event_uses;
    uint32_t events = 0;
  };
  // A command of `reader` reads the owner's memory, until the owner's command `cover` waits for it.
  struct PeerRead {
    size_t owner, reader;
    uint64_t at, cover;
  };

  std::vector<uint64_t> plans_;  // their ids
  const bool counts_;            // each rank's first and last command store into its counter
  std::vector<Rank> ranks_;
  std::vector<Run> runs_;
  std::vector<PeerRead> reads_;
  std::vector<std::byte*> bases_;  // of the call under way
};

}  // namespace tutti::core
