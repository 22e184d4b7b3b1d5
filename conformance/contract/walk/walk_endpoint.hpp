// SPDX-License-Identifier: Apache-2.0
//
// One rank's endpoint of one communicator in a walk, and the model of what it may do. The model shares nothing with the
// transport: it counts messages per peer and lane, knows from the World who has ended what, and so says of each record
// whether it may come, and at the end which records are missing.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "contract/stage.hpp"
#include "walk.hpp"
#include "world.hpp"

namespace tutti::conformance::contract {

// The pair messages of one communicator.
class WalkMail : public SharedMail {
 public:
  explicit WalkMail(World::Communicator& of) : SharedMail(of.mail), refusals_(of.refusals) {}
  bool put(uint32_t from, uint32_t to, std::string_view bytes) override {
    uint32_t left = refusals_.load();
    while (left > 0)
      if (refusals_.compare_exchange_weak(left, left - 1)) return false;
    return SharedMail::put(from, to, bytes);
  }

 private:
  std::atomic<uint32_t>& refusals_;
};

// Something that must come and does not.
struct Missing {
  const char* clause;
  std::string text;
};

class WalkEndpoint {
 public:
  WalkEndpoint(Bench& bench, const Walk& walk, World& world, uint32_t rank, uint32_t communicator,
               tutti_domain* shared);
  ~WalkEndpoint();

  void play(const Step& step);
  // Progress, unless it sleeps. Returns how many records came.
  uint32_t turn(uint32_t capacity);
  // Arms the descriptor, if there is one.
  void fall_asleep();
  void rouse();

  // After the steps. Each is called again and again until it returns true.
  void let_go_of_views();
  bool level();    // with peers that have ended nothing: connects, posts what is missing, and all has completed
  bool wind_up();  // closes after an end of its own; what was pending with peers that have ended has completed
  void close();    // does nothing when closed
  bool is_closed() const { return !rank_->endpoint; }
  bool has_posted() const { return has_posted_; }  // did the last level() find something to post?
  std::vector<Missing> missing() const;            // what is still awaited

 private:
  struct Flight {  // a transfer
    Label label;
    Planned plan;
    bool sending = false, quiet = false;  // quiet: INLINE
    GuardedMemory memory;
    tutti_region* region = nullptr;
    Flight(const Label& l, Planned p, bool s, size_t bytes, size_t slack)
        : label(l), plan(p), sending(s), memory(bytes, slack) {}
  };
  struct Lent {  // memory that was sent by reference
    uint32_t k = 0;
    uint64_t ticket = 0;
    tutti_region* region = nullptr;
    uint8_t* data = nullptr;
    uint64_t bytes = 0;
    int fd = -1;
    bool of_all = false;  // `region` is all_
  };
  struct Outgoing {
    uint32_t next = 0, pending = 0, complete = 0;  // complete: so many of the first
    std::vector<bool> done;
    uint8_t* reserved = nullptr;
    std::deque<Lent> lent;
    uint64_t released = 0;
  };
  struct Incoming {
    uint32_t next = 0, pending = 0;
    const uint8_t* shown = nullptr;
    uint64_t shown_bytes = 0;
  };
  struct Peer {
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    uint32_t controls = 0;  // received
    bool told = false;
  };

  // Posting.
  bool is_linked(uint32_t peer);
  std::shared_ptr<Flight> prepare(bool sending, uint32_t peer, uint32_t lane, uint32_t k, uint32_t dice);
  bool post_one(bool sending, uint32_t peer, uint32_t lane, uint32_t dice);
  void post_mixed(const Step& step);
  void enter(const std::shared_ptr<Flight>& flight, Posted* posted);
  bool may_post(bool sending, uint32_t peer, uint32_t lane) const;
  void judge_status(tutti_status status, uint32_t peer, const char* function) const;
  void enroll(Flight& flight);
  void discharge(tutti_region*& region);

  // Completions and events.
  void settle(const std::shared_ptr<Flight>& flight, const Posted& posted);
  void settle_receive(Flight& flight, const Posted& posted);
  void settle_lost(const Flight& flight, const Posted& posted) const;
  void complete_send(uint32_t peer, uint32_t lane, uint32_t k);
  void read_events();
  void reclaim();
  void retire(const std::shared_ptr<Flight>& flight);

  // Views.
  void view_send(uint32_t peer, uint32_t lane, uint32_t dice);
  void view_receive(uint32_t peer, uint32_t lane, uint32_t dice);
  void commit(uint32_t peer, uint32_t lane);
  void release(uint32_t peer, uint32_t lane);
  void check_shown(const Label& label, const uint8_t* shown, uint64_t bytes) const;
  void send_region(uint32_t peer, uint32_t lane, uint32_t dice);
  void enroll(Lent& lent, uint64_t file_offset);
  bool enroll_all();
  void give_back(Lent& lent, bool overwrite);

  // Ends.
  void end(uint32_t peer, World::End how);
  uint32_t my_ends(uint32_t peer) const { return shared_.ends[me_][peer]; }
  uint32_t ends_of(uint32_t peer) const { return shared_.ends[peer][me_]; }
  bool is_over(uint32_t peer) const { return my_ends(peer) || ends_of(peer); }
  bool level(uint32_t peer);
  uint32_t pending(uint32_t peer) const;
  template <typename Add>
  void missing_messages(uint32_t peer, const Add& add) const;

  World::Stream& out_stream(uint32_t peer, uint32_t lane) const { return shared_.streams[me_][peer][lane]; }
  World::Stream& in_stream(uint32_t peer, uint32_t lane) const { return shared_.streams[peer][me_][lane]; }
  std::string name(const Flight& flight) const;

  Bench& bench_;
  const Walk& walk_;
  World& world_;
  World::Communicator& shared_;
  const uint32_t me_, communicator_;
  WalkMail mail_;
  std::unique_ptr<Rank> rank_;
  std::vector<Peer> peers_;
  std::set<std::shared_ptr<Flight>> pending_;
  std::deque<std::shared_ptr<Flight>> retired_;  // their memory is forbidden
  bool aborted_ = false, has_posted_ = false;
  const tutti_view* view_ = nullptr;
  bool registers_ = false;
  tutti_region* all_ = nullptr;  // the memory of the whole process
  bool refuses_all_ = false;
  std::vector<Lent> kept_;  // memory that a peer in this process may still read
  const tutti_wait_fd* wait_ = nullptr;
  int32_t fd_ = -1;
  bool asleep_ = false;
  Stillness stillness_;  // since it fell asleep
};

}  // namespace tutti::conformance::contract
