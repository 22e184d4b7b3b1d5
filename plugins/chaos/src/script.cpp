// SPDX-License-Identifier: Apache-2.0
#include "script.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <tutti/sdk/plugin.hpp>

#include "dice.hpp"

namespace tutti::chaos {
namespace {

constexpr std::array<const char*, kinds> names{"delay", "reorder",   "partial", "short", "slow",
                                               "lose",  "duplicate", "corrupt", "stop",  "disconnect"};
constexpr uint64_t longest_us = 10'000'000, most = 1'000'000'000;

// A key with a whole number: which faults take it, and where it goes.
struct Key {
  const char* name;
  uint32_t faults;  // mask of 1 << Kind
  uint64_t high;
  void (*set)(Fault&, uint64_t);
};
constexpr uint32_t of(Kind kind) { return 1u << static_cast<uint32_t>(kind); }
constexpr uint32_t all = (1u << kinds) - 1;
constexpr uint32_t of_messages = of(Kind::delay) | of(Kind::reorder) | of(Kind::partial) | of(Kind::lose) |
                                 of(Kind::duplicate) | of(Kind::corrupt) | of(Kind::stop) | of(Kind::disconnect);
constexpr uint32_t of_contents = of(Kind::lose) | of(Kind::duplicate) | of(Kind::corrupt);
constexpr Key keys[] = {
    {"after", all, most, [](Fault& f, uint64_t v) { f.after = v; }},
    {"count", all, most, [](Fault& f, uint64_t v) { f.count = v; }},
    {"rank", all, UINT32_MAX, [](Fault& f, uint64_t v) { f.rank = static_cast<uint32_t>(v); }},
    {"peer", of_messages, UINT32_MAX, [](Fault& f, uint64_t v) { f.peer = static_cast<uint32_t>(v); }},
    {"lane", of_messages, UINT32_MAX, [](Fault& f, uint64_t v) { f.lane = static_cast<uint32_t>(v); }},
    {"min", of_messages, UINT64_MAX, [](Fault& f, uint64_t v) { f.min = v; }},
    {"us", of(Kind::delay) | of(Kind::slow), longest_us, [](Fault& f, uint64_t v) { f.us = v; }},
    {"polls", of(Kind::reorder), 1'000'000, [](Fault& f, uint64_t v) { f.polls = v; }},
    {"times", of(Kind::partial) | of(Kind::short_progress), 1000, [](Fault& f, uint64_t v) { f.times = v; }},
    {"control", of_contents, 1, [](Fault& f, uint64_t v) { f.control = v != 0; }},
    {"pair", of(Kind::delay) | of(Kind::lose), 1, [](Fault& f, uint64_t v) { f.pair = v != 0; }},
};

Fault fresh(Kind kind) {
  Fault fault;
  fault.kind = kind;
  fault.us = kind == Kind::delay ? 100 : kind == Kind::slow ? 20 : 0;
  fault.polls = kind == Kind::reorder ? 16 : 0;
  fault.times = kind == Kind::partial || kind == Kind::short_progress ? 3 : 0;
  fault.count = allowed(kind) ? 0 : 1;
  return fault;
}

std::string known_keys(Kind kind) {
  std::string list = "p";
  for (const Key& key : keys)
    if (key.faults & of(kind)) list += std::string(", ") + key.name;
  return list;
}

class Parser {
 public:
  Parser(const std::string& text, const std::string& where) : text_(text), where_(where) {}

  Script script() {
    Script script;
    for (;;) {
      skip_blank();
      while (take(';') || take('\n')) skip_blank();
      if (at_ == text_.size()) return script;
      script.push_back(fault());
      skip_blank();
      if (at_ < text_.size() && peek() != ';' && peek() != '\n') fail(at_, "expected \";\" before the next fault");
    }
  }

 private:
  Fault fault() {
    const size_t begin = at_;
    const std::string name = word();
    for (size_t k = 0; k < kinds; ++k)
      if (name == names[k]) {
        Fault made = fresh(static_cast<Kind>(k));
        if (!take(':')) return made;
        setting(made);
        while (take(',')) setting(made);
        return made;
      }
    std::string known;
    for (const char* each : names) known += (known.empty() ? "" : ", ") + std::string(each);
    fail(begin, "\"" + name + "\" is no fault; there are: " + known);
  }

  void setting(Fault& fault) {
    skip_blank();
    const size_t begin = at_;
    const std::string name = word();
    const Key* key = nullptr;
    for (const Key& each : keys)
      if (name == each.name && each.faults & of(fault.kind)) key = &each;
    if (!key && name != "p")
      fail(begin, "\"" + name + "\" is no key of " + name_of(fault.kind) + "; it has: " + known_keys(fault.kind));
    if (!take('=')) fail(at_, "expected \"=\" and a value after \"" + name + "\"");
    if (key)
      key->set(fault, number(key->high, name));
    else
      fault.p = probability();
  }

  std::string word() {
    const size_t begin = at_;
    while (at_ < text_.size() && std::string_view(";:,=#\n \t\r").find(text_[at_]) == std::string_view::npos) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  uint64_t number(uint64_t high, const std::string& name) {
    const size_t begin = at_;
    const std::string digits = word();
    uint64_t value = 0;
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || code != std::errc() || end != digits.data() + digits.size() || value > high)
      fail(begin, name + " is \"" + digits + "\", expected a whole number from 0 to " + std::to_string(high));
    return value;
  }
  double probability() {
    const size_t begin = at_;
    const std::string digits = word();
    double value = 0;
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || code != std::errc() || end != digits.data() + digits.size() || !(value >= 0 && value <= 1))
      fail(begin, "p is \"" + digits + "\", expected a number from 0 to 1");
    return value;
  }

  char peek() const { return text_[at_]; }
  bool take(char c) {
    if (at_ == text_.size() || peek() != c) return false;
    ++at_;
    return true;
  }
  void skip_blank() {
    for (; at_ < text_.size(); ++at_) {
      if (peek() == '#')
        while (at_ + 1 < text_.size() && text_[at_ + 1] != '\n') ++at_;
      else if (peek() != ' ' && peek() != '\t' && peek() != '\r')
        return;
    }
  }
  [[noreturn]] void fail(size_t position, const std::string& why) const {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < position; ++i) text_[i] == '\n' ? (++line, column = 1) : ++column;
    throw sdk::Error(TUTTI_INVALID_ARGUMENT,
                     where_ + ", line " + std::to_string(line) + ", character " + std::to_string(column) + ": " + why);
  }

  const std::string& text_;
  const std::string& where_;
  size_t at_ = 0;
};

}  // namespace

const char* name_of(Kind kind) { return names[static_cast<size_t>(kind)]; }

Script parse(const std::string& text, const std::string& where) { return Parser(text, where).script(); }

std::string text_of(const Script& script) {
  std::string text;
  for (const Fault& f : script) {
    char p[32];
    const size_t length = std::to_chars(p, p + sizeof p, f.p).ptr - p;  // the shortest text that is read as this number
    text += (text.empty() ? "" : ";") + std::string(name_of(f.kind)) + ":p=" + std::string(p, length);
    const auto add = [&](const char* key, uint64_t value) {
      text += std::string(",") + key + "=" + std::to_string(value);
    };
    const Fault plain = fresh(f.kind);
    if (f.after) add("after", f.after);
    if (f.count != plain.count) add("count", f.count);
    if (f.rank) add("rank", *f.rank);
    if (f.peer) add("peer", *f.peer);
    if (f.lane) add("lane", *f.lane);
    if (f.min) add("min", f.min);
    if (f.us != plain.us) add("us", f.us);
    if (f.polls != plain.polls) add("polls", f.polls);
    if (f.times != plain.times) add("times", f.times);
    if (f.control) add("control", 1);
    if (f.pair) add("pair", 1);
  }
  return text;
}

Script random_script(uint64_t seed) {
  Dice dice(seed);
  Script script;
  for (const Kind kind : {Kind::delay, Kind::reorder, Kind::partial, Kind::short_progress, Kind::slow}) {
    if (dice.chance(0.4)) continue;
    Fault fault = fresh(kind);
    fault.p = static_cast<double>(1 + dice.below(50)) / 100;
    if (kind == Kind::delay) fault.us = 1 + dice.below(300);
    if (kind == Kind::reorder) fault.polls = 1 + dice.below(64);
    if (kind == Kind::partial) fault.times = 1 + dice.below(8);
    if (kind == Kind::slow) {
      fault.us = 1 + dice.below(100);
      fault.rank = static_cast<uint32_t>(dice.below(4));
    }
    script.push_back(fault);
  }
  if (script.empty()) script.push_back(fresh(Kind::reorder));
  return script;
}

}  // namespace tutti::chaos
