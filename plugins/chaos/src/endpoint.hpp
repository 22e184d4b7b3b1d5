// SPDX-License-Identifier: Apache-2.0
//
// One endpoint and its links, with faults. Outgoing messages may be refused, lost, doubled or changed. Incoming ones
// may be held back: completions in a queue that keeps the order of each (peer, lane, kind), viewed messages in place.
#pragma once

#include <tutti/plugin/transport.h>

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tutti/sdk/interposer.hpp>
#include <unordered_map>
#include <vector>

#include "faults.hpp"

namespace tutti::chaos {

using sdk::Interposer;
using Clock = std::chrono::steady_clock;

class Link;

class Endpoint final : public Interposer::Endpoint {
 public:
  Endpoint(Interposer::Domain& domain, const tutti_endpoint_config& config, tutti_endpoint* inner, Faults faults);
  ~Endpoint() override;

  tutti_status receive_pair(uint32_t peer, const void* data, uint64_t bytes) override;
  tutti_status post(const tutti_transfer& transfer) override;
  tutti_status progress(tutti_completion* completions, uint32_t capacity, uint32_t* n) override;
  tutti_status fail_peer(uint32_t peer) override;
  tutti_status abort() override;
  tutti_status arm() override;

 private:
  friend class Link;
  // A transfer that the wrapped transport has: its own cookie stands for this.
  struct Record {
    uint64_t cookie = 0;
    uint32_t peer = 0, lane = 0;
    uint16_t kind = 0;
    bool silent = false;       // a duplicate: nobody waits for it
    std::vector<char> buffer;  // what is sent instead of the caller's bytes
  };
  struct Held {
    tutti_completion completion{};
    std::string text;
    uint64_t lane = 0;  // completions of equal numbers keep their order
    Clock::time_point due;
    uint64_t due_poll = 0;
  };
  struct LateMessage {
    uint32_t peer;
    std::string bytes;
    Clock::time_point due;
  };
  tutti_status hand_over_late();
  tutti_status send(Link& link, const tutti_transfer& transfer);
  tutti_status forward(const tutti_transfer& transfer, std::vector<char> buffer, bool silent);
  void pull();
  void keep(const tutti_completion& completion);
  void hold_back(Held& held, const Occasion& occasion);
  void release_all(std::optional<uint32_t> peer);
  void disconnect(uint32_t peer);
  // Says that a fault struck that the contract forbids.
  void tell(Kind kind, const Occasion& occasion) const;

  Faults faults_;
  std::unordered_map<uint64_t, Record> records_;
  uint64_t next_record_ = 1;
  std::deque<Held> held_;         // in order of arrival
  std::deque<Held> shown_;        // what the last progress wrote: texts live until the next
  std::deque<LateMessage> late_;  // pair messages, in order of arrival
  std::set<uint32_t> breaking_;   // disconnected, and the record was not shown yet: nothing is taken, without an error
  uint64_t polls_ = 0;
  uint64_t in_a_row_ = 0;  // progress calls that handed over nothing by the fault short
  bool stopped_ = false;
  bool restless_ = false;  // something was refused or withheld: asking again would help, so do not sleep
};

class Link final : public Interposer::Link {
 public:
  Link(Interposer::Endpoint& at, uint32_t to, tutti_link* inner);

  tutti_status send_control(const void* data, uint64_t bytes) override;
  const void* try_receive(uint32_t lane, uint64_t* bytes) noexcept override;
  void release(uint32_t lane) noexcept override;
  void* try_reserve(uint32_t lane, uint64_t bytes) noexcept override;
  void commit(uint32_t lane, uint64_t bytes) noexcept override;
  tutti_status send_region(uint32_t lane, tutti_region* region, uint64_t offset, uint64_t bytes,
                           uint64_t* ticket) noexcept override;
  void set_mark(uint32_t lane, uint32_t mark) noexcept override;

 private:
  friend class Endpoint;
  // The faults of one outgoing message. Decided once, however often it is refused.
  struct Verdict {
    uint64_t refusals = 0;
    bool lose = false, duplicate = false, corrupt = false;
  };
  struct Extra {
    std::vector<char> bytes;
    uint32_t mark;
  };
  struct Lane {
    std::optional<Verdict> verdict;  // of the next message
    std::deque<Extra> extras;        // duplicates that found no room yet
    std::vector<char> lost;          // where a message is written that nobody will get
    uint32_t mark = 0;               // of what the caller sends by view
    bool judged = false;             // the arriving message has its due time
    Clock::time_point due;
    uint64_t polls_left = 0;
  };
  Endpoint& chaos() const;
  // May this message leave now? Strikes stop and disconnect.
  bool may_leave(uint32_t lane, uint64_t bytes, bool shown);
  // Sends waiting duplicates; false: some still wait.
  bool flush(uint32_t lane);
  void flip(char* data, uint64_t bytes) const;

  std::vector<Lane> lanes_;
};

}  // namespace tutti::chaos
