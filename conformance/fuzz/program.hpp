// SPDX-License-Identifier: Apache-2.0
//
// A random program: what every rank of a job does, as plain data. It can be printed, read back, cut down and run.
//
// One list of events describes all ranks. Each rank carries out the events that it takes part in, in the order of the
// list; a rank has one thread for each strand and carries out each strand's events there. An event depends only on
// events before it in the list. Therefore some rank can always go on, and a program without a fault must end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::conformance::fuzz {

enum class Kind : uint32_t {
  make,        // members make communicator `comm`; text: how they meet (file, id, local, env, callback)
  destroy,     // members wait for what they have started on `comm` and destroy it
  collective,  // members call it; those in `asynchronous` get a request
  message,     // `rank` sends to `peer`, which receives
  send,        // the first half of a message whose receive is event `link`
  receive,     // the first or second half of a message whose send is event `link`
  exchange,    // members send to the ranks `list` further on, and receive from the ranks `list` before, in one group
  wait,        // `rank` ends its requests of the events `list`, in this order; text: wait, wait_for, test, free
  test,        // `rank` asks once after its requests of the events `list`
  sleep,       // `rank` does nothing for `ms`
  stop,        // the process of `rank` is stopped by a signal, and goes on after `ms`
  fork,        // `rank` forks; text: what the child does (exit, quick, calls, hold, exec)
  kill,        // `rank` dies by SIGKILL
  quit,        // `rank` ends its process without a word
  abort,       // `rank` aborts `comm`
  revoke,      // `rank` revokes `comm`
  shrink,      // the members of `comm` that live make `made` from it
};

struct Event {
  Kind kind{};
  uint32_t id = 0;      // unique; also the seed of the event's data
  uint32_t strand = 0;  // of every rank that takes part
  uint32_t comm = 0;
  uint32_t made = 0;
  uint32_t rank = 0, peer = 0;  // of the job, not of the communicator
  uint32_t link = 0;
  uint32_t tag = 0;
  uint32_t collective = 0, root = 0, op = 0;  // root: a rank of the communicator
  uint64_t count = 0;
  uint64_t asynchronous = 0;  // a bit for each rank of the job
  uint32_t place = 0, memory = 0, alignment = 0;
  uint32_t windows = 0, lanes = 0, flags = 0;  // of a communicator
  uint32_t ms = 0;
  uint32_t times = 1;      // so often a collective is called, each with buffers of its own
  std::string type;        // of elements
  std::string transports;  // of a communicator; "": all that reach
  std::string text;
  std::vector<uint32_t> members;  // of a communicator: ranks of the job, ascending
  std::vector<uint32_t> list;

  bool operator==(const Event&) const = default;
  bool is_asynchronous(uint32_t r) const { return asynchronous >> r & 1; }
};

struct Program {
  uint64_t seed = 0;  // of all data
  std::string theme;
  uint32_t ranks = 0;
  uint32_t strands = 1;
  // Communicators are made and destroyed while calls of others are under way. Otherwise all ranks settle first: they
  // wait for what they have started, and meet in a barrier of each communicator.
  bool overlap = false;
  std::vector<uint32_t> process;      // of each rank, from 0, ascending
  std::vector<uint32_t> host;         // of each rank, pretended (TUTTI_HOST_ID)
  std::vector<std::string> settings;  // "NAME=VALUE", of all processes
  std::vector<Event> events;

  bool operator==(const Program&) const = default;
  uint32_t processes() const { return process.empty() ? 0 : process.back() + 1; }
  // The ranks that live in a process.
  std::vector<uint32_t> ranks_of(uint32_t p) const;
};

const char* kind_name(Kind kind);

// One line for each event. from_text(to_text(p)) == p.
std::string to_text(const Event& event);
std::string to_text(const Program& program);
// Throws std::runtime_error that names the line and what was expected there.
Program from_text(const std::string& text);

// ---- What follows from a program -------------------------------------------------------------------------------

// The fault that ends a rank or a communicator; at most one in a program.
struct Fault {
  const Event* event = nullptr;
  // kill and quit: this rank is dead afterwards. abort and revoke: the rank ended the communicator and continues.
  uint32_t rank() const { return event->rank; }
  bool kills() const { return event->kind == Kind::kill || event->kind == Kind::quit; }
};
// event is nullptr where there is none.
Fault fault_of(const Program& program);

// The members of a communicator that is made by `make` or by `shrink`; empty: there is no such communicator.
std::vector<uint32_t> members_of(const Program& program, uint32_t comm);
// The rank that a member has in its communicator.
uint32_t index_of(const std::vector<uint32_t>& members, uint32_t rank);
// Does the fault reach this communicator, so that its calls may fail?
bool may_break(const Program& program, uint32_t comm);
// Does the rank carry out this event?
bool takes_part(const Program& program, const Event& event, uint32_t rank);
// The longest that ranks can wait for each other because some sleep or are stopped.
uint64_t sleeping_ms(const Program& program);

}  // namespace tutti::conformance::fuzz
