// SPDX-License-Identifier: Apache-2.0
#include "fuzz/shrinker.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "fuzz/legality.hpp"

namespace tutti::conformance::fuzz {
namespace {

// So many candidates are handed over at once.
constexpr size_t at_once = 4;

// The program without one rank: nullopt when it cannot do without.
std::optional<Program> without_rank(Program program, uint32_t rank) {
  if (program.ranks == 1) return std::nullopt;
  const auto moved = [&](uint32_t r) { return r > rank ? r - 1 : r; };
  const auto mask = [&](uint64_t all) {
    const uint64_t below = (uint64_t{1} << rank) - 1;
    return (all & below) | (all >> 1 & ~below);
  };
  std::vector<Event> kept;
  for (Event e : program.events) {
    const auto at = std::find(e.members.begin(), e.members.end(), rank);
    if (at != e.members.end()) e.members.erase(at);
    for (uint32_t& m : e.members) m = moved(m);
    if (e.kind == Kind::make && e.members.empty()) continue;
    const bool in_group = e.kind == Kind::make || e.kind == Kind::destroy || e.kind == Kind::collective ||
                          e.kind == Kind::exchange || e.kind == Kind::shrink;
    const bool has_peer = e.kind == Kind::message || e.kind == Kind::send || e.kind == Kind::receive;
    if (!in_group && (e.rank == rank || (has_peer && e.peer == rank))) continue;
    e.rank = moved(e.rank);
    e.peer = moved(e.peer);
    e.asynchronous = mask(e.asynchronous);
    kept.push_back(std::move(e));
  }
  program.events = std::move(kept);
  program.process.erase(program.process.begin() + rank);
  program.host.erase(program.host.begin() + rank);
  --program.ranks;
  std::vector<uint32_t> old = program.process;
  for (uint32_t r = 0, p = 0; r < program.ranks; ++r) program.process[r] = r && old[r] != old[r - 1] ? ++p : p;
  // Roots and shifts that the smaller groups do not have.
  for (Event& e : program.events) {
    const size_t n = e.comm ? members_of(program, e.comm).size() : 0;
    if (!n) continue;
    e.root %= n;
    for (uint32_t& shift : e.list)
      if (e.kind == Kind::exchange) shift %= n;
  }
  return program;
}

// Hands the lone actions of a rank to another rank.
Program handed_over(Program program, uint32_t rank, uint32_t heir) {
  for (Event& e : program.events)
    if ((e.kind == Kind::sleep || e.kind == Kind::stop || e.kind == Kind::fork) && e.rank == rank) e.rank = heir;
  return program;
}

Program without_events(Program program, size_t begin, size_t n) {
  const auto from = program.events.begin() + static_cast<ptrdiff_t>(begin);
  program.events.erase(from, from + static_cast<ptrdiff_t>(n));
  return program;
}

Program without_comm(Program program, uint32_t comm) {
  std::erase_if(program.events, [&](const Event& e) { return e.comm == comm; });
  return program;
}

// Moves the actions on the communicator `made` to the one that it was made from.
Program with_one_comm(Program program, uint32_t made) {
  uint32_t comm = 0;
  for (const Event& e : program.events)
    if (e.kind == Kind::shrink && e.made == made) comm = e.comm;
  std::erase_if(program.events, [&](const Event& e) { return e.kind == Kind::shrink && e.made == made; });
  for (Event& e : program.events)
    if (e.comm == made) e.comm = comm;
  return program;
}

// All strands in one.
Program in_one_strand(Program program) {
  for (Event& e : program.events) e.strand = 0;
  return program;
}

Program without_strand(Program program, uint32_t strand) {
  std::erase_if(program.events, [&](const Event& e) { return e.strand == strand; });
  return program;
}

class Shrinker {
 public:
  Shrinker(Program failing, const Examine& examine, const std::function<bool()>& more)
      : program_(std::move(failing)), examine_(examine), more_(more) {}

  Program run() {
    for (bool smaller = true; smaller && more_();) {
      smaller = false;
      smaller |= drop_strands();
      smaller |= drop_ranks();
      smaller |= drop_comms();
      smaller |= drop_events();
      smaller |= drop_settings();
      smaller |= simplify();
    }
    return program_;
  }

 private:
  // True if one of the candidates that are legal and differ fails as well. It becomes the program.
  bool take(std::vector<Program> candidates) {
    std::vector<Program> legal;
    for (Program& one : candidates) {
      tidy(one);
      if (!(one == program_) && !one.events.empty() && illegal(one).empty()) legal.push_back(std::move(one));
    }
    for (size_t begin = 0; begin < legal.size() && more_(); begin += at_once) {
      const std::vector<Program> some(legal.begin() + static_cast<ptrdiff_t>(begin),
                                      legal.begin() + static_cast<ptrdiff_t>(std::min(begin + at_once, legal.size())));
      const int found = examine_(some);
      if (found < 0) continue;
      program_ = some[static_cast<size_t>(found)];
      return true;
    }
    return false;
  }
  // The same until nothing is found any more.
  template <typename Make>
  bool exhaust(Make make) {
    bool any = false;
    while (more_() && take(make())) any = true;
    return any;
  }

  bool drop_strands() {
    return exhaust([&] {
      std::vector<Program> all;
      for (uint32_t s = 0; s < program_.strands && program_.strands > 1; ++s)
        all.push_back(without_strand(program_, s));
      if (program_.strands > 1) all.push_back(in_one_strand(program_));
      return all;
    });
  }

  bool drop_ranks() {
    return exhaust([&] {
      std::vector<Program> all;
      for (uint32_t r = program_.ranks; r-- > 0;)
        for (const uint32_t heir : {r, (r + 1) % program_.ranks, (r + program_.ranks - 1) % program_.ranks})
          if (auto one = without_rank(handed_over(program_, r, heir), r)) all.push_back(std::move(*one));
      return all;
    });
  }

  bool drop_comms() {
    return exhaust([&] {
      std::set<uint32_t> comms;
      for (const Event& e : program_.events)
        if (e.kind == Kind::make) comms.insert(e.comm);
      std::vector<Program> all;
      for (const uint32_t comm : comms) all.push_back(without_comm(program_, comm));
      for (const Event& e : program_.events)
        if (e.kind == Kind::shrink) all.push_back(with_one_comm(program_, e.made));
      return all;
    });
  }

  // Runs of events, long ones first.
  bool drop_events() {
    bool any = false;
    for (size_t length = std::max<size_t>(program_.events.size() / 2, 1); length > 0; length /= 2)
      any |= exhaust([&] {
        std::vector<Program> all;
        for (size_t begin = 0; begin + length <= program_.events.size(); begin += length)
          all.push_back(without_events(program_, begin, length));
        return all;
      });
    return any;
  }

  bool drop_settings() {
    return exhaust([&] {
      std::vector<Program> all;
      for (size_t i = 0; i < program_.settings.size(); ++i) {
        Program one = program_;
        one.settings.erase(one.settings.begin() + static_cast<ptrdiff_t>(i));
        all.push_back(std::move(one));
      }
      return all;
    });
  }

  // Fields of all events at once, then of single ones: each has a simplest value.
  bool simplify() {
    using Change = void (*)(Event&);
    static constexpr Change changes[] = {
        [](Event& e) { e.count = std::min<uint64_t>(e.count, 1); },
        [](Event& e) { e.count /= 2; },
        [](Event& e) { e.times = (e.times + 1) / 2; },
        [](Event& e) { e.times -= e.times / 4; },
        [](Event& e) { e.times -= e.times / 16; },
        [](Event& e) { e.place = 0, e.memory = 0, e.alignment = 0; },
        [](Event& e) { e.windows = 0, e.lanes = 0; },
        [](Event& e) { e.flags = 0; },
        [](Event& e) { e.asynchronous = 0; },
        [](Event& e) { e.tag = 0; },
        [](Event& e) {
          if (!e.type.empty()) e.type = "int32";
        },
        [](Event& e) {
          if (e.op) e.op = 1;
        },
        [](Event& e) { e.root = 0; },
        [](Event& e) { e.ms /= 2; },
        [](Event& e) {
          if (e.kind == Kind::make) e.text = "file";
        },
        [](Event& e) {
          if (e.kind == Kind::wait) e.text = "wait";
        },
    };
    bool any = false;
    for (const Change change : changes) any |= exhaust([&] { return std::vector{changed_everywhere(change)}; });
    any |= take({on_one_host()});
    constexpr size_t few = 24;
    if (program_.events.size() <= few)
      for (const Change change : changes)
        for (size_t i = 0; i < program_.events.size(); ++i) {
          Program one = program_;
          change(one.events[i]);
          any |= take({std::move(one)});
        }
    return any;
  }

  Program changed_everywhere(void (*change)(Event&)) const {
    Program one = program_;
    for (Event& e : one.events) change(e);
    return one;
  }
  Program on_one_host() const {
    Program one = program_;
    std::fill(one.host.begin(), one.host.end(), 0);
    for (uint32_t r = 0; r < one.ranks; ++r) one.process[r] = r;
    return one;
  }

  Program program_;
  const Examine& examine_;
  const std::function<bool()>& more_;
};

}  // namespace

Program shrink(Program failing, const Examine& examine, const std::function<bool()>& more) {
  return Shrinker(std::move(failing), examine, more).run();
}

}  // namespace tutti::conformance::fuzz
