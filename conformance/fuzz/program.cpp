// SPDX-License-Identifier: Apache-2.0
#include "fuzz/program.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <sstream>
#include <stdexcept>

namespace tutti::conformance::fuzz {
namespace {

constexpr const char* kinds[] = {"make",     "destroy", "collective", "message", "send",  "receive",
                                 "exchange", "wait",    "test",       "sleep",   "stop",  "fork",
                                 "kill",     "quit",    "abort",      "revoke",  "shrink"};

// The fields of an event by name. A field that has its default is not printed.
template <typename T>
struct Field {
  const char* name;
  T Event::*member;
};
constexpr Field<uint32_t> numbers[] = {
    {"strand", &Event::strand}, {"comm", &Event::comm},       {"made", &Event::made},
    {"rank", &Event::rank},     {"peer", &Event::peer},       {"link", &Event::link},
    {"tag", &Event::tag},       {"root", &Event::root},       {"op", &Event::op},
    {"place", &Event::place},   {"memory", &Event::memory},   {"alignment", &Event::alignment},
    {"ms", &Event::ms},         {"windows", &Event::windows}, {"lanes", &Event::lanes},
    {"flags", &Event::flags},   {"times", &Event::times},
};
constexpr Field<uint64_t> long_numbers[] = {{"count", &Event::count}, {"asynchronous", &Event::asynchronous}};
constexpr Field<std::string> words[] = {
    {"type", &Event::type}, {"transports", &Event::transports}, {"text", &Event::text}};
constexpr Field<std::vector<uint32_t>> lists[] = {{"members", &Event::members}, {"list", &Event::list}};

template <typename T>
T number(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty())
    throw std::runtime_error(fmt::format("\"{}\" is not a number", text));
  return value;
}

std::vector<uint32_t> number_list(const std::string& text) {
  std::vector<uint32_t> all;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) all.push_back(number<uint32_t>(part));
  return all;
}

Kind kind_of(const std::string& word) {
  const auto* found = std::find(std::begin(kinds), std::end(kinds), word);
  if (found == std::end(kinds)) throw std::runtime_error(fmt::format("there is no kind of event \"{}\"", word));
  return static_cast<Kind>(found - kinds);
}

uint32_t collective_of(const std::string& name) {
  const uint32_t number = collective_from_name(name);
  if (!number) throw std::runtime_error(fmt::format("there is no collective \"{}\"", name));
  return number;
}

// "NAME=VALUE" at the first '='.
std::pair<std::string, std::string> pair_of(const std::string& word) {
  const size_t at = word.find('=');
  if (at == std::string::npos) throw std::runtime_error(fmt::format("expected NAME=VALUE, got \"{}\"", word));
  return {word.substr(0, at), word.substr(at + 1)};
}

template <typename T, size_t n, typename Read>
bool assign(const Field<T> (&fields)[n], Event& event, const std::string& name, const std::string& value, Read read) {
  for (const Field<T>& field : fields)
    if (name == field.name) return event.*(field.member) = read(value), true;
  return false;
}

Event event_from(uint32_t id, std::istringstream& rest) {
  Event event;
  event.id = id;
  std::string word;
  rest >> word;
  event.kind = kind_of(word);
  while (rest >> word) {
    const auto [name, value] = pair_of(word);
    if (name == "collective")
      event.collective = collective_of(value);
    else if (!assign(numbers, event, name, value, number<uint32_t>) &&
             !assign(long_numbers, event, name, value, number<uint64_t>) &&
             !assign(words, event, name, value, [](const std::string& text) { return text; }) &&
             !assign(lists, event, name, value, number_list))
      throw std::runtime_error(fmt::format("an event has no field \"{}\"", name));
  }
  return event;
}

void read_head(Program& program, std::istringstream& rest) {
  for (std::string word; rest >> word;) {
    const auto [name, value] = pair_of(word);
    if (name == "seed")
      program.seed = number<uint64_t>(value);
    else if (name == "theme")
      program.theme = value;
    else if (name == "ranks")
      program.ranks = number<uint32_t>(value);
    else if (name == "strands")
      program.strands = number<uint32_t>(value);
    else if (name == "overlap")
      program.overlap = number<uint32_t>(value) != 0;
    else if (name == "process")
      program.process = number_list(value);
    else if (name == "host")
      program.host = number_list(value);
    else
      throw std::runtime_error(fmt::format("a program has no field \"{}\"", name));
  }
}

}  // namespace

const char* kind_name(Kind kind) { return kinds[static_cast<size_t>(kind)]; }

std::string to_text(const Event& event) {
  const Event plain;
  std::string text = fmt::format("{} {}", event.id, kind_name(event.kind));
  if (event.collective) text += fmt::format(" collective={}", collective_name(event.collective));
  const auto print = [&](const auto& fields) {
    for (const auto& field : fields)
      if (event.*(field.member) != plain.*(field.member))
        text += fmt::format(" {}={}", field.name, event.*(field.member));
  };
  print(numbers);
  print(long_numbers);
  print(words);
  for (const auto& field : lists)
    if (!(event.*(field.member)).empty())
      text += fmt::format(" {}={}", field.name, fmt::join(event.*(field.member), ","));
  return text;
}

std::string to_text(const Program& program) {
  std::string text = fmt::format("program seed={} theme={} ranks={} strands={} overlap={} process={} host={}\n",
                                 program.seed, program.theme, program.ranks, program.strands, program.overlap ? 1 : 0,
                                 fmt::join(program.process, ","), fmt::join(program.host, ","));
  for (const std::string& setting : program.settings) text += "set " + setting + "\n";
  for (const Event& event : program.events) text += to_text(event) + "\n";
  return text;
}

Program from_text(const std::string& text) {
  Program program;
  std::istringstream lines(text);
  size_t at = 0;
  for (std::string line; std::getline(lines, line);) try {
      ++at;
      std::istringstream rest(line);
      std::string word;
      if (!(rest >> word) || word[0] == '#') continue;
      if (word == "program") {
        read_head(program, rest);
      } else if (word == "set") {
        rest >> word;
        pair_of(word);
        program.settings.push_back(word);
      } else {
        program.events.push_back(event_from(number<uint32_t>(word), rest));
      }
    } catch (const std::runtime_error& e) {
      throw std::runtime_error(fmt::format("line {}: {}", at, e.what()));
    }
  return program;
}

std::vector<uint32_t> Program::ranks_of(uint32_t p) const {
  std::vector<uint32_t> all;
  for (uint32_t r = 0; r < ranks; ++r)
    if (process[r] == p) all.push_back(r);
  return all;
}

Fault fault_of(const Program& program) {
  for (const Event& e : program.events)
    if (e.kind == Kind::kill || e.kind == Kind::quit || e.kind == Kind::abort || e.kind == Kind::revoke) return {&e};
  return {};
}

std::vector<uint32_t> members_of(const Program& program, uint32_t comm) {
  const Fault fault = fault_of(program);
  for (const Event& e : program.events) {
    if (e.kind == Kind::make && e.comm == comm) return e.members;
    if (e.kind != Kind::shrink || e.made != comm) continue;
    std::vector<uint32_t> members = members_of(program, e.comm);
    if (fault.event && fault.kills() && fault.event < &e) std::erase(members, fault.rank());
    return members;
  }
  return {};
}

uint32_t index_of(const std::vector<uint32_t>& members, uint32_t rank) {
  return static_cast<uint32_t>(std::find(members.begin(), members.end(), rank) - members.begin());
}

bool may_break(const Program& program, uint32_t comm) {
  const Fault fault = fault_of(program);
  if (!fault.event) return false;
  if (!fault.kills()) return fault.event->comm == comm;
  const std::vector<uint32_t> members = members_of(program, comm);
  return std::find(members.begin(), members.end(), fault.rank()) != members.end();
}

bool takes_part(const Program& program, const Event& event, uint32_t rank) {
  const auto is_member = [&](uint32_t comm) {
    const std::vector<uint32_t> members = members_of(program, comm);
    return std::find(members.begin(), members.end(), rank) != members.end();
  };
  switch (event.kind) {
    case Kind::make:
    case Kind::destroy:
    case Kind::collective:
    case Kind::exchange:
      return is_member(event.comm);
    case Kind::shrink:
      return is_member(event.made);
    case Kind::message:
      return rank == event.rank || rank == event.peer;
    case Kind::receive:
      return rank == event.peer;
    default:
      return rank == event.rank;
  }
}

uint64_t sleeping_ms(const Program& program) {
  // Strands sleep side by side; a process that is stopped holds up all of them.
  uint64_t stopped = 0;
  std::vector<uint64_t> asleep(program.strands);
  for (const Event& e : program.events) {
    if (e.kind == Kind::stop) stopped += e.ms;
    if ((e.kind == Kind::sleep || e.kind == Kind::fork) && e.strand < program.strands) asleep[e.strand] += e.ms;
  }
  return stopped + (asleep.empty() ? 0 : *std::max_element(asleep.begin(), asleep.end()));
}

}  // namespace tutti::conformance::fuzz
