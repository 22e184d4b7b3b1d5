// SPDX-License-Identifier: Apache-2.0
#include "fuzz/generator.hpp"

#include <fmt/format.h>
#include <tutti/schedule.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <functional>
#include <map>
#include <stdexcept>

#include "filters.hpp"
#include "fuzz/legality.hpp"
#include "fuzz/lot.hpp"
#include "fuzz/settings.hpp"
#include "fuzz/themes.hpp"
#include "matrix/cell.hpp"
#include "oracle/reference.hpp"

namespace tutti::conformance::fuzz {
namespace {

constexpr const char* types[] = {"int8",   "int16",  "int32",   "int64",    "uint8",   "uint16",
                                 "uint32", "uint64", "float16", "bfloat16", "float32", "float64"};

uint64_t draw_count(Lot& lot) {
  if (lot.chance(2)) return lot.pick({20'011, 20'011, 70'000, 200'000});
  if (lot.chance(15)) return lot.pick({500, 1000, 1023, 4097});
  return lot.pick({0, 1, 1, 2, 3, 5, 7, 8, 20, 29, 64, 100});
}

// A communicator as the generator knows it.
struct Group {
  uint32_t id, strand;
  std::vector<uint32_t> members;
  bool callback = false, gone = false;
};

// A request that a rank has been given.
struct Pending {
  uint32_t event, comm, rank, strand;
};

class Generator {
 public:
  Generator(uint64_t seed, const Choice& choice) : lot_(seed), choice_(choice), theme_(draw_theme()) {
    program_.seed = seed;
    program_.theme = theme_.name;
    program_.overlap = theme_.overlap;
  }

  Program run() {
    draw_ranks();
    program_.settings = draw_settings(lot_, program_, mix_.find("chaos") != std::string::npos);
    for (const char* setting : theme_.settings) set(program_.settings, setting);
    sleep_left_ = sleep_limit_ =
        std::min<uint64_t>(most_sleep_ms - 1000, static_cast<uint64_t>(choice_.longest_sleep * 1000));
    for (uint32_t s = 0; s < program_.strands; ++s) begin_strand(s);
    const uint32_t steps = lot_.in(theme_.steps);
    const uint32_t last = theme_.ending == Ending::none ? steps : lot_.in({steps / 3, steps});
    for (uint32_t i = 0; i < last; ++i) step();
    if (theme_.ending != Ending::none) end_something();
    for (uint32_t i = last; i < steps; ++i) step();
    while (!open_.empty()) close_half();
    tidy(program_);
    if (const std::string why = illegal(program_); !why.empty())
      throw std::logic_error(fmt::format("the generator broke a rule with seed {}: {}", program_.seed, why));
    return std::move(program_);
  }

 private:
  const Theme& draw_theme() {
    std::vector<const Theme*> all;
    for (const Theme& theme : themes()) {
      const bool chosen = wants(choice_.themes, std::string(theme.name));
      const bool short_enough = theme.sleep_ms.most <= choice_.longest_sleep * 1000;
      if (chosen && short_enough)
        all.insert(all.end(), choice_.themes.empty() ? theme.weight : std::max(theme.weight, 1u), &theme);
    }
    if (all.empty()) throw std::invalid_argument("no theme is left to draw programs from");
    return *all[lot_.below(all.size())];
  }

  void draw_ranks() {
    const Range of_theme = theme_.ranks;
    program_.ranks = choice_.ranks.empty() ? lot_.in(of_theme) : lot_.pick(choice_.ranks);
    program_.strands = lot_.in(theme_.strands);
    mix_ = draw_mix();
    const bool several_hosts = mix_.find('+') != std::string::npos;
    // Ranks share a process now and then, but not where one of them dies.
    const bool share = theme_.ending != Ending::death && lot_.chance(15);
    for (uint32_t r = 0; r < program_.ranks; ++r) {
      const bool same = r && share && lot_.chance(50);
      program_.process.push_back(r ? program_.process[r - 1] + !same : 0);
      program_.host.push_back(same ? program_.host[r - 1] : several_hosts && lot_.chance(50));
    }
  }

  std::string draw_mix() {
    std::vector<std::string> mixes = choice_.mixes;
    if (theme_.network) std::erase_if(mixes, [](const std::string& mix) { return mix == "shm"; });
    return mixes.empty() ? choice_.mixes.front() : lot_.pick(mixes);
  }

  // ---- Steps ---------------------------------------------------------------------------------------------------

  void begin_strand(uint32_t strand) {
    for (uint32_t i = 0; i < theme_.comms.least; ++i) make(strand);
    if (theme_.weights.pause) pause(strand);
  }

  void step() {
    const Weights& w = theme_.weights;
    const auto strand = static_cast<uint32_t>(lot_.below(program_.strands));
    const std::pair<uint32_t, std::function<void()>> steps[] = {
        {w.make,
         [&] {
           if (alive(strand) < theme_.comms.most) make(strand);
         }},
        {w.destroy, [&] { destroy(strand); }},
        {w.collective,
         [&] { with_group(strand, [&](Group& g) { collective(g, draw_collective(), draw_askers(g)); }); }},
        {w.burst, [&] { with_group(strand, [&](Group& g) { burst(g); }); }},
        {w.message, [&] { with_group(strand, [&](Group& g) { message(g, Kind::message); }); }},
        {w.halves,
         [&] {
           if (open_.size() > 8 || (!open_.empty() && lot_.chance(45)))
             close_half();
           else
             with_group(strand, [&](Group& g) { message(g, lot_.chance(50) ? Kind::send : Kind::receive); });
         }},
        {w.exchange, [&] { with_group(strand, [&](Group& g) { exchange(g); }); }},
        {w.wait, [&] { wait(Kind::wait, draw_rank(), strand); }},
        {w.test, [&] { wait(Kind::test, draw_rank(), strand); }},
        {w.sleep, [&] { disturb(Kind::sleep, draw_rank(), strand, lot_.in(theme_.sleep_ms)); }},
        {w.stop,
         [&] {
           disturb(Kind::stop, draw_rank(), strand, lot_.in({20, 900}));
         }},
        {w.fork, [&] { fork(draw_rank(), strand); }},
        {w.pause, [&] { pause(strand); }},
        {w.shrink, [&] { with_group(strand, [&](Group& g) { shrink(g); }); }},
    };
    uint32_t all = 0;
    for (const auto& [weight, act] : steps) all += weight;
    uint64_t at = lot_.below(all);
    for (const auto& [weight, act] : steps) {
      if (at < weight) return act();
      at -= weight;
    }
  }

  Event& add(Kind kind, uint32_t strand, uint32_t comm = 0) {
    Event& e = program_.events.emplace_back();
    e.kind = kind;
    e.id = ++last_event_;
    e.strand = strand;
    e.comm = comm;
    return e;
  }

  void make(uint32_t strand) {
    std::vector<uint32_t> members;
    const bool all = lot_.chance(70);
    for (uint32_t r = 0; r < program_.ranks; ++r)
      if ((all || lot_.chance(60)) && !is_dead(r)) members.push_back(r);
    if (members.empty()) return;
    Event& e = add(Kind::make, strand, ++last_comm_);
    e.members = members;
    e.text = draw_meeting(e);
    e.transports = draw_transports(members);
    if (lot_.chance(40)) e.windows = lot_.in({1, 8}), e.lanes = lot_.in({1, 8});
    if (lot_.chance(20)) e.flags |= TUTTI_COMM_PROGRESS_THREAD;
    if (lot_.chance(10)) e.flags |= TUTTI_COMM_CHECK_CALLS;
    groups_.push_back({last_comm_, strand, members, e.text == "callback"});
    // Before a rank fails all have met: else somebody might still wait for it in the making.
    if (theme_.ending != Ending::none) meet(groups_.back());
  }

  void meet(const Group& g) {
    Event& e = add(Kind::collective, g.strand, g.id);
    e.collective = TUTTI_BARRIER;
  }

  std::string draw_meeting(const Event& e) {
    const auto alone = [&](uint32_t r) { return program_.ranks_of(program_.process[r]).size() == 1; };
    const bool together = program_.process[e.members.front()] == program_.process[e.members.back()];
    const bool everybody = e.members.size() == program_.ranks && program_.processes() == program_.ranks;
    if (together && lot_.chance(50)) return "local";
    if (everybody && !environment_used_ && std::all_of(e.members.begin(), e.members.end(), alone) && lot_.chance(20)) {
      environment_used_ = true;
      return "env";
    }
    const bool idle = std::none_of(program_.events.begin(), program_.events.end(), [&](const Event& other) {
      return other.strand == e.strand && other.kind != Kind::make && other.kind != Kind::sleep;
    });
    if (idle && theme_.ending == Ending::none && lot_.chance(15)) return "callback";
    return lot_.chance(30) ? "id" : "file";
  }

  std::string draw_transports(const std::vector<uint32_t>& members) {
    if (mix_ == "all") return "";
    std::string text = mix_;
    std::replace(text.begin(), text.end(), '+', ',');
    const bool one_host = std::all_of(members.begin(), members.end(),
                                      [&](uint32_t m) { return program_.host[m] == program_.host[members[0]]; });
    const size_t comma = text.find(',');
    if (comma == std::string::npos || lot_.chance(50)) return text;
    return one_host && lot_.chance(50) ? text.substr(0, comma) : text.substr(comma + 1);
  }

  void destroy(uint32_t strand) {
    with_group(strand, [&](Group& g) {
      if (g.callback || has_open_half(g)) return;
      add(Kind::destroy, strand, g.id);
      forget(g);
    });
  }

  void shrink(Group& g) {
    if (g.callback || has_open_half(g)) return;
    Event& e = add(Kind::shrink, g.strand, g.id);
    e.made = ++last_comm_;
    std::erase_if(pending_, [&](const Pending& p) { return p.comm == g.id; });
    const Group made{e.made, g.strand, members_of(program_, e.made)};
    if (made.members.empty()) {
      program_.events.pop_back();
      return;
    }
    groups_.push_back(made);
    if (theme_.ending != Ending::none) meet(made);
  }

  uint32_t draw_collective() { return static_cast<uint32_t>(TUTTI_BROADCAST + lot_.below(last_collective)); }

  // The members that get a request: all, none, or some.
  uint64_t draw_askers(const Group& g) {
    const uint32_t percent = lot_.pick({0, 0, 40, 100});
    uint64_t mask = 0;
    for (const uint32_t m : g.members)
      if (lot_.chance(percent)) mask |= uint64_t{1} << m;
    return mask;
  }

  Event collective(const Group& g, uint32_t which, uint64_t askers) {
    Event& e = add(Kind::collective, g.strand, g.id);
    e.collective = which;
    e.asynchronous = askers;
    if (rooted(which)) e.root = static_cast<uint32_t>(lot_.below(g.members.size()));
    if (which != TUTTI_BARRIER) {
      e.type = lot_.pick(types);
      e.count = draw_count(lot_);
      if (reduces(which)) e.op = lot_.in({TUTTI_SUM, TUTTI_AVG});
      e.place = lot_.in({0, which == TUTTI_ALL_TO_ALL_V ? 0u : 2u});
      if (lot_.chance(25)) e.memory = lot_.in({0, 3});
      e.alignment = lot_.in({0, 2});
    }
    note(e, g.members);
    return e;
  }

  // Many small operations of one shape by a rank that runs ahead of one that comes late; then perhaps a call of another
  // communicator, in which the first waits for the second.
  void burst(const Group& g) {
    const uint32_t ahead = lot_.pick(g.members), late = lot_.pick(g.members);
    if (late != ahead && lot_.chance(60)) disturb(Kind::sleep, late, g.strand, lot_.in(theme_.sleep_ms));
    Event one = collective(g, draw_collective(), lot_.chance(60) ? uint64_t{1} << ahead : draw_askers(g));
    if (lot_.chance(50)) {
      // All that moves goes from the one to the other.
      one.collective = lot_.pick({TUTTI_BROADCAST, TUTTI_SCATTER});
      one.root = index_of(g.members, ahead);
      one.op = 0;
      if (one.type.empty()) one.type = "int8";
    }
    if (one.collective != TUTTI_BARRIER) one.count = lot_.in({0, 16});
    one.times = lot_.in(lot_.chance(50) ? Range{2, 30} : Range{64, 130});
    program_.events.back() = one;
    if (lot_.chance(60))
      for (const Group& other : std::vector<Group>(groups_))
        if (!other.gone && other.strand == g.strand && other.id != g.id)
          return (void)collective(other, lot_.chance(50) ? uint32_t{TUTTI_BARRIER} : draw_collective(), 0);
  }

  void note(const Event& e, const std::vector<uint32_t>& ranks) {
    for (const uint32_t r : ranks)
      if (e.is_asynchronous(r)) pending_.push_back({e.id, e.comm, r, e.strand});
  }

  void message(const Group& g, Kind kind) {
    if (g.members.size() < 2) return;
    const uint32_t from = lot_.pick(g.members);
    uint32_t to = from;
    while (to == from) to = lot_.pick(g.members);
    uint32_t tag = 0;
    const auto taken = [&] {
      return std::any_of(open_.begin(), open_.end(), [&](const Event& e) {
        return e.comm == g.id && e.rank == from && e.peer == to && e.tag == tag;
      });
    };
    for (tag = lot_.in({0, 5}); taken(); ++tag) {
    }
    Event& e = add(kind, g.strand, g.id);
    e.rank = from, e.peer = to, e.tag = tag;
    e.type = lot_.pick(types);
    e.count = draw_count(lot_);
    const uint64_t send = uint64_t{1} << from, receive = uint64_t{1} << to;
    if (kind == Kind::message) {
      e.asynchronous = (lot_.chance(50) ? send : 0) | (lot_.chance(50) ? receive : 0);
      return note(e, {from, to});
    }
    e.asynchronous = kind == Kind::send ? send : receive;
    e.link = ++last_event_;  // its other half, which comes later
    open_.push_back(e);
  }

  void close_half() {
    const size_t at = lot_.below(open_.size());
    const Event first = open_[at];
    open_.erase(open_.begin() + static_cast<ptrdiff_t>(at));
    const bool first_sends = first.kind == Kind::send;
    const uint32_t ender = first_sends ? first.peer : first.rank;
    Event second = first;
    second.kind = first_sends ? Kind::receive : Kind::send;
    second.id = first.link;
    second.link = first.id;
    second.asynchronous = lot_.chance(50) ? uint64_t{1} << ender : 0;
    program_.events.push_back(second);
    note(first, {first.rank, first.peer});
    note(second, {ender});
  }

  void exchange(const Group& g) {
    Event& e = add(Kind::exchange, g.strand, g.id);
    const uint32_t n = lot_.in({1, 4});
    for (uint32_t i = 0; i < n; ++i) e.list.push_back(static_cast<uint32_t>(lot_.below(g.members.size())));
    e.type = lot_.pick(types);
    e.count = draw_count(lot_) % 5000;
    e.asynchronous = draw_askers(g);
    note(e, g.members);
  }

  // Some of the rank's requests, in any order.
  void wait(Kind kind, uint32_t rank, uint32_t strand) {
    std::vector<uint32_t> own;
    for (const Pending& p : pending_)
      if (p.rank == rank && p.strand == strand) own.push_back(p.event);
    if (own.empty()) return;
    lot_.shuffle(own);
    own.resize(1 + lot_.below(own.size()));
    Event& e = add(kind, strand);
    e.rank = rank;
    e.list = own;
    if (kind == Kind::test) return;
    e.text = lot_.pick({"wait", "wait", "wait_for", "test", "free"});
    std::erase_if(pending_, [&](const Pending& p) {
      return p.rank == rank && std::find(own.begin(), own.end(), p.event) != own.end();
    });
  }

  void disturb(Kind kind, uint32_t rank, uint32_t strand, uint32_t ms) {
    if (ms > sleep_left_) return;
    // Strands sleep side by side: what one sleeps, another may sleep as well.
    if (kind == Kind::stop || strand == 0) sleep_left_ -= ms;
    Event& e = add(kind, strand);
    e.rank = rank;
    e.ms = ms;
    if (sleeping_ms(program_) > sleep_limit_) program_.events.pop_back();
  }

  void fork(uint32_t rank, uint32_t strand) {
    Event& e = add(Kind::fork, strand);
    e.rank = rank;
    e.text = lot_.pick({"exit", "exit", "quick", "calls", "hold", "exec"});
    if (e.text == "hold") e.ms = lot_.in({1, 200});
    if (sleeping_ms(program_) > sleep_limit_) program_.events.pop_back();
  }

  // An operation is begun, which makes links; a rank looks at it a few times and then does something else for long.
  void pause(uint32_t strand) {
    with_group(strand, [&](Group& g) {
      const uint32_t rank = lot_.pick(g.members);
      const Event begun = collective(g, TUTTI_ALL_REDUCE, ~uint64_t{0} >> (64 - program_.ranks));
      for (uint32_t i = lot_.in({0, 14}); i-- > 0;) {
        Event& look = add(Kind::test, strand);
        look.rank = rank;
        look.list = {begun.id};
        disturb(Kind::sleep, rank, strand, lot_.in({1, 5}));
      }
      disturb(Kind::sleep, rank, strand, lot_.in(theme_.sleep_ms));
    });
  }

  // ---- Faults --------------------------------------------------------------------------------------------------

  void end_something() {
    if (theme_.ending == Ending::death) {
      // Every communicator has had its barrier; those that do not concern the rank go on.
      Event& e = add(lot_.chance(60) ? Kind::kill : Kind::quit, 0);
      e.rank = draw_rank();
      while (has_open_half_with(e.rank)) close_half_before_last();
      dead_ = program_.events.back().rank;
    } else {
      with_group(0, [&](Group& g) {
        Event& e = add(lot_.chance(50) ? Kind::abort : Kind::revoke, 0, g.id);
        e.rank = lot_.pick(g.members);
      });
    }
    const Fault fault = fault_of(program_);
    if (!fault.event) return;
    if (lot_.chance(70))
      for (size_t i = 0, n = groups_.size(); i < n; ++i)
        if (!groups_[i].gone && may_break(program_, groups_[i].id)) {
          Group broken = groups_[i];
          groups_[i].gone = true;
          while (has_open_half(broken)) close_half();
          shrink(broken);
        }
  }

  bool has_open_half_with(uint32_t rank) const {
    return std::any_of(open_.begin(), open_.end(), [&](const Event& e) { return e.rank == rank || e.peer == rank; });
  }
  // The last event, the rank's death, stays the last.
  void close_half_before_last() {
    const Event last = program_.events.back();
    program_.events.pop_back();
    close_half();
    program_.events.push_back(last);
  }

  // ---- What there is -------------------------------------------------------------------------------------------

  uint32_t draw_rank() {
    for (;;)
      if (const auto r = static_cast<uint32_t>(lot_.below(program_.ranks)); !is_dead(r)) return r;
  }
  bool is_dead(uint32_t rank) const { return dead_ && *dead_ == rank; }
  uint32_t alive(uint32_t strand) const {
    return static_cast<uint32_t>(
        std::count_if(groups_.begin(), groups_.end(), [&](const Group& g) { return g.strand == strand && !g.gone; }));
  }
  bool has_open_half(const Group& g) const {
    return std::any_of(open_.begin(), open_.end(), [&](const Event& e) { return e.comm == g.id; });
  }
  void with_group(uint32_t strand, const std::function<void(Group&)>& act) {
    std::vector<size_t> all;
    for (size_t i = 0; i < groups_.size(); ++i)
      if (groups_[i].strand == strand && !groups_[i].gone) all.push_back(i);
    if (all.empty()) return;
    const size_t at = lot_.pick(all);
    Group g = groups_[at];
    act(g);
    groups_[at].gone = g.gone;
  }
  void forget(Group& g) {
    g.gone = true;
    std::erase_if(pending_, [&](const Pending& p) { return p.comm == g.id; });
  }

  Lot lot_;
  const Choice& choice_;
  const Theme& theme_;
  Program program_;
  std::string mix_;
  std::vector<Group> groups_;
  std::vector<Pending> pending_;
  std::vector<Event> open_;  // first halves
  uint32_t last_event_ = 0, last_comm_ = 0;
  uint64_t sleep_limit_ = 0;  // of a program
  uint64_t sleep_left_ = 0;
  bool environment_used_ = false;
  std::optional<uint32_t> dead_;
};

}  // namespace

Program generate(uint64_t seed, const Choice& choice) { return Generator(seed, choice).run(); }

}  // namespace tutti::conformance::fuzz
