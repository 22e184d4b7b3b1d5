// SPDX-License-Identifier: Apache-2.0
#include "fuzz/legality.hpp"

#include <fmt/format.h>
#include <tutti/plugin/types.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <stdexcept>
#include <tuple>

#include "oracle/element.hpp"

namespace tutti::conformance::fuzz {
namespace {

bool holds(const std::vector<uint32_t>& list, uint32_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

bool known(const std::string& word, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* one) { return word == one; });
}

struct Broken : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void require(bool holds, const char* rule) {
  if (!holds) throw Broken(rule);
}

class Checker {
 public:
  explicit Checker(const Program& program) : program_(program), fault_(fault_of(program)) {}

  void check() {
    check_head();
    for (const Event& e : program_.events) {
      try {
        require(ids_.insert(e.id).second, "an event's id is unique");
        require(e.strand < program_.strands, "an event's strand is one of the program's");
        require(e.times == 1 || (e.kind == Kind::collective && e.times >= 1 && e.times <= most_times),
                "a collective is called 1 to 1000 times, all else once");
        check_event(e);
      } catch (const Broken& broken) {
        throw Broken(fmt::format("event \"{}\" breaks the rule: {}", to_text(e), broken.what()));
      }
      passed_fault_ |= &e == fault_.event;
    }
    require(open_.empty(), "every send has its receive");
  }

 private:
  struct Group {
    std::vector<uint32_t> members;
    uint32_t strand = 0;
    bool gone = false, met = false, callback = false;
  };
  // A message of which one half has been posted.
  struct Half {
    Event event;
    bool sent = false;
  };

  void check_head() const {
    const Program& p = program_;
    require(p.ranks >= 1 && p.ranks <= most_ranks, "a program has 1 to 16 ranks");
    require(p.strands >= 1 && p.strands <= most_strands, "a program has 1 to 16 strands");
    require(p.process.size() == p.ranks && p.host.size() == p.ranks, "each rank has a process and a host");
    for (uint32_t r = 0; r < p.ranks; ++r) {
      const uint32_t before = r ? p.process[r - 1] : 0;
      require(r ? p.process[r] == before || p.process[r] == before + 1 : p.process[0] == 0,
              "processes are numbered from 0 in the order of their ranks");
      require(r == 0 || p.process[r] != before || p.host[r] == p.host[r - 1], "ranks of one process are on one host");
    }
    require(sleeping_ms(p) <= most_sleep_ms, "all sleeps together end before the connect timeout");
    size_t faults = 0;
    for (const Event& e : p.events)
      faults += e.kind == Kind::kill || e.kind == Kind::quit || e.kind == Kind::abort || e.kind == Kind::revoke;
    require(faults <= 1, "a program has one fault at most");
    require(faults == 0 || p.strands == 1, "a program with a fault has one strand");
  }

  Group& group(const Event& e) {
    const auto found = groups_.find(e.comm);
    require(found != groups_.end(), "a communicator is made before it is used");
    require(!found->second.gone, "a communicator is not used after its end");
    require(found->second.strand == e.strand, "a communicator is used in its own strand");
    return found->second;
  }

  void check_event(const Event& e) {
    switch (e.kind) {
      case Kind::make:
        return check_make(e);
      case Kind::destroy:
        require(!group(e).callback, "a communicator made by a callback is destroyed last");
        require_no_open_half(e.comm);
        group(e).gone = true;
        return;
      case Kind::shrink:
        require_no_open_half(e.comm);
        require(!groups_.count(e.made), "a communicator is made once");
        require(!group(e).callback, "a communicator made by a callback is not shrunk");
        require(!fault_.event || !passed_fault_ || group(e).met,
                "all have met on a communicator before it loses a rank");
        groups_[e.made] = {members_of(program_, e.made), e.strand};
        require(!groups_[e.made].members.empty(), "somebody is left");
        return;
      case Kind::collective:
        busy_.insert(e.strand);
        require(e.collective >= TUTTI_BROADCAST && e.collective <= last_collective,
                "a collective is one that there is");
        require(e.root < group(e).members.size(), "a root is a rank of the communicator");
        require(e.collective == TUTTI_BARRIER || element_type(e.type), "a type is one that there is");
        require(e.collective != TUTTI_ALL_TO_ALL_V || e.place == 0, "all_to_all_v has no form in place");
        if (e.collective == TUTTI_BARRIER && !e.asynchronous) group(e).met = true;
        return;
      case Kind::exchange:
        busy_.insert(e.strand);
        require(element_type(e.type), "a type is one that there is");
        for (const uint32_t shift : e.list) require(shift < group(e).members.size(), "a shift is within the group");
        return;
      case Kind::message:
      case Kind::send:
      case Kind::receive:
        return check_message(e);
      case Kind::wait:
      case Kind::test:
        require(e.rank < program_.ranks, "a rank is one of the program's");
        require(e.kind == Kind::test || known(e.text, {"wait", "wait_for", "test", "free"}),
                "a wait is of a known way");
        for (const uint32_t id : e.list)
          require(ids_.count(id) && !open_.count(id), "both halves of a message stand before the wait for it");
        return;
      default:
        return check_disturbance(e);
    }
  }

  void check_make(const Event& e) {
    require(!groups_.count(e.comm), "a communicator is made once");
    require(!e.members.empty() && std::is_sorted(e.members.begin(), e.members.end()), "members ascend");
    require(
        std::adjacent_find(e.members.begin(), e.members.end()) == e.members.end() && e.members.back() < program_.ranks,
        "members are ranks of the program, each once");
    require(known(e.text, {"file", "id", "local", "env", "callback"}), "ranks meet in a known way");
    const auto alone = [&](uint32_t r) { return program_.ranks_of(program_.process[r]).size() == 1; };
    if (e.text == "local")
      for (const uint32_t m : e.members)
        require(program_.process[m] == program_.process[e.members[0]], "ranks that meet locally share a process");
    if (e.text == "env") {
      require(e.members.size() == program_.ranks, "all ranks meet by the environment");
      require(std::all_of(e.members.begin(), e.members.end(), alone), "each has a process of its own there");
      require(!met_by_environment_, "one communicator is made from the environment");
      met_by_environment_ = true;
    }
    // The function waits outside Tutti, where nothing of other communicators goes on.
    if (e.text == "callback") {
      require(!fault_.event, "no rank fails that others wait for in a callback");
      require(!busy_.count(e.strand), "a callback comes before anything that may be under way");
    }
    if (passed_fault_ && fault_.kills()) require(!holds(e.members, fault_.rank()), "a dead rank meets nobody");
    groups_[e.comm] = {e.members, e.strand, false, false, e.text == "callback"};
  }

  void check_message(const Event& e) {
    const Group& all = group(e);
    busy_.insert(e.strand);
    require(holds(all.members, e.rank) && holds(all.members, e.peer), "both ends are members");
    require(e.rank != e.peer, "nobody sends to itself but in a group");
    require(element_type(e.type), "a type is one that there is");
    if (const auto half = open_.find(e.link); e.kind != Kind::message && half != open_.end()) {
      const Event& first = half->second.event;
      require(half->second.sent == (e.kind == Kind::receive), "a send's other half is a receive");
      require(std::tie(first.strand, first.comm, first.rank, first.peer, first.tag, first.count, first.type) ==
                  std::tie(e.strand, e.comm, e.rank, e.peer, e.tag, e.count, e.type),
              "both halves are of one message");
      open_.erase(half);
      return;
    }
    uint32_t ahead = 0;
    for (const auto& [id, other] : open_) {
      const bool same =
          std::tie(other.event.comm, other.event.rank, other.event.peer) == std::tie(e.comm, e.rank, e.peer);
      require(!same || other.event.tag != e.tag, "messages under way between two ranks have different tags");
      ahead += same && other.sent;
    }
    require(ahead < most_sends_ahead, "a receiver keeps so many sends");
    if (e.kind == Kind::message) return;
    require(e.is_asynchronous(e.kind == Kind::send ? e.rank : e.peer), "the first half of a message is asynchronous");
    open_[e.id] = {e, e.kind == Kind::send};
  }

  void check_disturbance(const Event& e) {
    require(e.rank < program_.ranks, "a rank is one of the program's");
    if (e.kind == Kind::sleep || e.kind == Kind::stop) return;
    if (e.kind == Kind::fork)
      return require(known(e.text, {"exit", "quick", "calls", "hold", "exec"}), "a child does something known");
    if (e.kind == Kind::abort || e.kind == Kind::revoke) {
      require(holds(group(e).members, e.rank), "a member ends the communicator");
      require(group(e).met, "all have met before");
      return;
    }
    require(program_.ranks_of(program_.process[e.rank]).size() == 1, "a rank dies alone");
    for (const auto& [id, one] : groups_)
      require(one.gone || one.met || !holds(one.members, e.rank), "all have met on a communicator before a rank dies");
  }

  void require_no_open_half(uint32_t comm) const {
    for (const auto& [id, half] : open_)
      require(half.event.comm != comm, "both halves of a message stand before its communicator's end");
  }

  const Program& program_;
  const Fault fault_;
  bool passed_fault_ = false, met_by_environment_ = false;
  std::set<uint32_t> ids_;
  std::set<uint32_t> busy_;  // strands in which something may be under way
  std::map<uint32_t, Group> groups_;
  std::map<uint32_t, Half> open_;  // by the first half's id
};

// Each strand's and process's new number: without those that are not used.
template <typename Used>
std::vector<uint32_t> renumbered(uint32_t n, const Used& used) {
  std::vector<uint32_t> to(n);
  for (uint32_t i = 0, next = 0; i < n; ++i) to[i] = used(i) ? next++ : 0;
  return to;
}

// True if the event is still legal. `seen` are the events so far, `halves` those of which the program has both.
bool has_effect(const Program& program, Event& e, const std::map<uint32_t, Event>& seen) {
  const auto partner = [&](const Event& half) {
    return std::any_of(program.events.begin(), program.events.end(), [&](const Event& other) {
      return other.id != half.id && (other.link == half.id || half.link == other.id) &&
             (other.kind == Kind::send || other.kind == Kind::receive);
    });
  };
  if ((e.kind == Kind::send || e.kind == Kind::receive) && !partner(e)) return false;
  const bool uses = e.comm && e.kind != Kind::make;
  if (uses && members_of(program, e.comm).empty()) return false;
  if (e.kind != Kind::wait && e.kind != Kind::test) return true;
  std::erase_if(e.list, [&](uint32_t id) {
    const auto found = seen.find(id);
    return found == seen.end() || !found->second.is_asynchronous(e.rank);
  });
  return !e.list.empty();
}

}  // namespace

std::string illegal(const Program& program) {
  try {
    Checker(program).check();
    return {};
  } catch (const Broken& broken) {
    return broken.what();
  }
}

void tidy(Program& program) {
  for (bool changed = true; changed;) {
    std::map<uint32_t, Event> seen;
    std::vector<Event> kept;
    for (Event e : program.events) {
      if (!has_effect(program, e, seen)) continue;
      seen[e.id] = e;
      kept.push_back(std::move(e));
    }
    changed = kept.size() != program.events.size();
    program.events = std::move(kept);
  }
  const auto used = [&](uint32_t strand) {
    return std::any_of(program.events.begin(), program.events.end(),
                       [&](const Event& e) { return e.strand == strand; });
  };
  const std::vector<uint32_t> to = renumbered(program.strands, used);
  uint32_t strands = 0;
  for (Event& e : program.events) strands = std::max(strands, (e.strand = to[e.strand]) + 1);
  program.strands = std::max(1u, strands);
}

}  // namespace tutti::conformance::fuzz
