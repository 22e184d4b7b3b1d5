// SPDX-License-Identifier: Apache-2.0
//
// A random walk over the whole transport interface, as plain data. Ranks of several communicators post, progress,
// sleep, send control messages, register memory, read and write views, give peers up, abort, close and die. A walk
// stays legal whichever of its steps are left out, so that a failing one can be made smaller.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "contract/stage.hpp"

namespace tutti::conformance::contract {

enum class Act : uint8_t {
  send,          // posts SENDs one by one, until one is refused
  receive,       // likewise RECVs
  post_mixed,    // posts transfers of all peers, lanes and kinds one after another
  view_send,     // try_reserve, and commit at once or at a later step
  view_receive,  // try_receive, and release at once or at a later step
  send_region,
  control,
  progress,
  sleep,      // arms the descriptor: no progress until it is readable
  full_mail,  // the next pair messages find no room
  give_up,    // fail_peer
  abort,
  close,
  die  // the process is killed
};

struct Step {
  Act act = Act::progress;
  uint8_t rank = 0, communicator = 0, peer = 0, lane = 0, amount = 1;
  uint32_t dice = 0;  // whatever else is drawn
};

struct Walk {
  enum class Way : uint8_t { one_thread, threads, processes };  // how the ranks run
  Way way = Way::one_thread;
  uint64_t seed = 0;
  uint32_t ranks = 2, lanes = 2, communicators = 1;
  enum class Domains : uint8_t { of_endpoints, of_ranks, of_processes };
  Domains domains = Domains::of_endpoints;  // what has a domain of its own
  uint64_t settings = 0;                    // the seed of the plugin's test settings; 0: none are set
  bool sleeps = false;      // ranks without news sleep
  std::vector<Step> steps;

  // Does a step end something in this communicator?
  bool has_end(uint32_t communicator) const;
};

// `settings`: with some of the settings that the plugin declares.
Walk draw_walk(uint64_t seed, Walk::Way way, uint32_t steps, bool settings = false);
std::string text(const Step& step);
std::string text(const Walk& walk);

// What a message is: a function of the walk's seed and the message's place alone, so that both ends know it.
struct Planned {
  uint64_t bytes;     // of the SEND
  uint64_t expected;  // of the RECV; seldom another number
};
Planned planned(const Walk& walk, const tutti_transport_caps& caps, uint32_t communicator, const Label& label);
std::string planned_control(const Walk& walk, const tutti_transport_caps& caps, uint32_t communicator,
                            const Label& label);
// The seed for fill() of a communicator's messages.
uint64_t fill_seed(const Walk& walk, uint32_t communicator);

}  // namespace tutti::conformance::contract
