// SPDX-License-Identifier: Apache-2.0
//
// Ranks of a transport under test, driven by one thread: since no function blocks, every interleaving of their calls
// can be made on purpose. A rank keeps a ledger of its transfers, which holds T-11, T-12 and T-14 in every case.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "guarded_memory.hpp"
#include "mail.hpp"
#include "transport_api.hpp"

namespace tutti::conformance::contract {

// Records of progress other than the completions of transfers.
struct Event {
  uint32_t kind;
  tutti_status status;
  uint32_t peer;
  std::string data;
};

// A transfer that was accepted.
struct Posted {
  tutti_transfer transfer{};
  uint32_t peer = 0;
  bool done = false;
  tutti_status status = TUTTI_OK;
  uint64_t reported = 0;                 // bytes, by its record
  uint32_t reported_mark = 0;            // likewise
  std::function<void(Posted&)> on_done;  // called as soon as its record was read
};

struct RankOptions {
  uint32_t rank = 0;
  uint32_t nranks = 2;
  uint32_t lanes = 3;
  uint64_t communicator = 0;
  tutti_domain* domain = nullptr;  // nullptr: one of its own
  Mail* mail = nullptr;            // by which pair messages go; outlives the rank
  std::string address;             // of tutti_endpoint_config; "": NULL
  uint64_t family = 0;             // likewise
};

class Rank {
 public:
  Rank(Bench& bench, const RankOptions& options);
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  void close();
  void close_endpoint();  // the domain stays open

  tutti_status connect(uint32_t peer);  // TUTTI_OK sets links[peer]
  // Gives the endpoint a pair message. Only where has_pairs().
  tutti_status receive_pair(uint32_t from, std::string_view bytes);
  bool has_pairs() const;
  // nullptr: refused for want of room. An error is T-9, unless `answer` is given, which then gets the status.
  Posted* post(const tutti_transfer& transfer, tutti_status* answer = nullptr);
  tutti_transfer send(uint32_t peer, uint32_t lane, const void* data, uint64_t bytes, uint16_t flags = 0);
  tutti_transfer receive(uint32_t peer, uint32_t lane, void* data, uint64_t bytes);
  tutti_status send_control(uint32_t peer, std::string_view message);
  // Hands over the pair messages that have come, then progresses. Returns how many records came.
  uint32_t progress(uint32_t capacity = 64);
  tutti_status fail_peer(uint32_t peer);
  tutti_status abort();

  std::deque<Event> events;
  std::vector<tutti_link*> links;  // by peer
  tutti_endpoint* endpoint = nullptr;
  tutti_domain* domain = nullptr;
  const RankOptions options;
  Bench& bench;
  size_t pending() const { return pending_; }
  uint64_t records() const { return records_; }  // that progress has written so far
  // A transfer that has not completed though a later one of its lane has: says which, or "". An order fault (T-14) if it
  // still completes, else a missing completion.
  std::string overtaken() const;
  // Drops what the ledger has of completed transfers, for cases that count bytes. A second record of one of them is then
  // one with an unknown cookie.
  void forget_completed() {
    std::erase_if(ledger_, [](const auto& entry) { return entry.second->done; });
  }
  // A case that asks for failures is not ended by them; otherwise a PEER_FAILED record breaks T-32.
  bool failures_expected = false;
  // Not 0: this process's soft limit of open files in connect and progress of this rank.
  uint64_t descriptor_limit = 0;

 private:
  uint64_t new_cookie();
  Posted* enter(const tutti_transfer& transfer);
  void settle(const tutti_completion& record);
  void judge_mark(const Posted& posted);
  static tutti_status send_pair(void* self, uint32_t peer, const void* data, uint64_t bytes);
  void judge_pair_messages();
  bool owns_domain_ = false;
  tutti_pair_messages pair_{};
  bool may_send_pairs_ = false;
  std::string wrong_pair_;  // what is wrong with a pair message that was sent
  uint64_t serial_ = 0;
  size_t pending_ = 0;
  uint64_t records_ = 0;
  std::unordered_map<uint64_t, std::unique_ptr<Posted>> ledger_;                      // by cookie
  std::map<std::tuple<uint32_t, uint32_t, uint16_t>, std::deque<Posted*>> in_order_;  // by peer, lane, kind
  const Posted *overtaken_ = nullptr, *overtaking_ = nullptr;                         // the first such pair
};

struct StageOptions {
  uint32_t nranks = 2;
  uint32_t lanes = 3;
  uint64_t communicator = 0;  // 0: a new one
  bool connect = true;
};

class Stage {
 public:
  Stage(Bench& bench, const StageOptions& options = {});
  Rank& operator[](uint32_t rank) { return *ranks[rank]; }
  void connect_all();
  // One step of it. Returns a link that is missing still; "": none is.
  std::string connect();
  // Progress of every rank, once.
  void progress(uint32_t capacity = 64);
  // Progress until `holds`; Broken(clause, text) when nothing has come for the bench's patience.
  void until(const std::function<bool()>& holds, const char* clause, const std::function<std::string()>& text);
  void until(const std::function<bool()>& holds, const char* clause, const std::string& text) {
    until(holds, clause, [&] { return text; });
  }
  // Progress until every transfer of every rank has completed.
  void drain(const char* clause = "T-11");
  // Some hundred progress calls of all: whatever is under way arrives.
  void settle();
  uint64_t records() const;

  // The domain of this process's ranks, unless they have another.
  LocalMail mail;
  std::vector<std::unique_ptr<Rank>> ranks;
  Bench& bench;
};

// The bytes of message k from one rank to another on a lane: no two messages of at least 8 bytes are alike.
struct Label {
  uint32_t from, to, lane, k;
};
void fill(uint8_t* data, uint64_t bytes, uint64_t seed, const Label& label);
// Throws Broken(T-13, T-15, T-17 or T-22) when `got` is not what fill() makes. `lanes`: those among which a mistaken
// message is looked for.
void judge_message(uint64_t seed, const Label& label, uint32_t lanes, const uint8_t* got, uint64_t bytes,
                   bool was_inline = false);

// A message on its way: guarded memory at both ends. At the SEND's completion its memory is overwritten, at the RECV's
// the bytes are judged (T-13, T-15, T-17) and both memories are forbidden (T-18).
class Message {
 public:
  Message(Stage& stage, const Label& label, uint64_t bytes, uint16_t send_flags = 0, size_t slack = 0);
  bool post_send();  // false: refused
  bool post_receive();
  bool sent() const { return sent_; }  // its SEND's memory is free
  bool received() const { return received_; }
  bool send_posted() const { return send_posted_; }
  bool receive_posted() const { return receive_posted_; }
  const Label label;
  const uint64_t bytes;

 private:
  void on_sent();
  void on_received(const Posted& posted);
  void judge_bytes();
  Stage& stage_;
  const uint16_t flags_;
  GuardedMemory source_, target_;
  bool send_posted_ = false, receive_posted_ = false, sent_ = false, received_ = false;
};

}  // namespace tutti::conformance::contract
