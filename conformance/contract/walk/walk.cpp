// SPDX-License-Identifier: Apache-2.0
#include "walk.hpp"

#include <algorithm>
#include <random>

namespace tutti::conformance::contract {
namespace {

uint64_t mixed(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

uint64_t hash(const Walk& walk, uint32_t communicator, const Label& label, uint32_t what) {
  uint64_t h = walk.seed;
  for (const uint32_t part : {communicator, label.from, label.to, label.lane, label.k, what})
    h = mixed(h + 0x9e3779b97f4a7c15 * (part + 1));
  return h;
}

// How often each act is drawn, of 100.
constexpr struct {
  Act act;
  uint32_t weight;
} weights[] = {{Act::send, 22},        {Act::receive, 22},    {Act::post_mixed, 9}, {Act::view_send, 8},
               {Act::view_receive, 8}, {Act::send_region, 5}, {Act::control, 8},    {Act::progress, 12},
               {Act::sleep, 4},        {Act::full_mail, 2}};

Act draw_act(std::mt19937_64& random) {
  uint32_t at = static_cast<uint32_t>(random() % 100);
  for (const auto& [act, weight] : weights) {
    if (at < weight) return act;
    at -= weight;
  }
  return Act::progress;
}

Step draw_step(std::mt19937_64& random, const Walk& walk) {
  Step step;
  step.act = draw_act(random);
  step.rank = static_cast<uint8_t>(random() % walk.ranks);
  step.communicator = static_cast<uint8_t>(random() % walk.communicators);
  step.peer = static_cast<uint8_t>((step.rank + 1 + random() % (walk.ranks - 1)) % walk.ranks);
  step.lane = static_cast<uint8_t>(random() % walk.lanes);
  // Most are few; some fill every queue.
  step.amount = static_cast<uint8_t>(random() % 16 == 0 ? 20 + random() % 60 : 1 + random() % 6);
  step.dice = static_cast<uint32_t>(random());
  return step;
}

}  // namespace

bool Walk::has_end(uint32_t communicator) const {
  return std::any_of(steps.begin(), steps.end(), [&](const Step& s) {
    return s.act == Act::die || (s.act >= Act::give_up && s.communicator == communicator);
  });
}

Walk draw_walk(uint64_t seed, Walk::Way way, uint32_t steps, bool settings) {
  std::mt19937_64 random(seed);
  Walk walk;
  walk.way = way;
  walk.seed = seed;
  walk.ranks = 2 + static_cast<uint32_t>(random() % 3);
  walk.lanes = 1 + static_cast<uint32_t>(random() % 5);
  walk.communicators = 1 + static_cast<uint32_t>(random() % 3);
  walk.domains = static_cast<Walk::Domains>(random() % 3);
  walk.sleeps = random() % 2;
  if (settings) walk.settings = random() | 1;
  for (uint32_t i = 0; i < steps; ++i) walk.steps.push_back(draw_step(random, walk));
  // Half of the walks have ends; a process that dies leaves at least two.
  const auto replace = [&](Act act, uint8_t rank) {
    Step& step = walk.steps[steps / 4 + random() % (3 * steps / 4)];
    step.act = act;
    step.rank = rank;
    step.peer = static_cast<uint8_t>((rank + 1 + random() % (walk.ranks - 1)) % walk.ranks);
  };
  if (random() % 2)
    for (uint64_t ends = 1 + random() % 2; ends > 0; --ends)
      replace(static_cast<Act>(static_cast<uint64_t>(Act::give_up) + random() % 3),
              static_cast<uint8_t>(random() % walk.ranks));
  if (way == Walk::Way::processes && random() % 2) replace(Act::die, static_cast<uint8_t>(walk.ranks - 1));
  return walk;
}

std::string text(const Step& s) {
  const auto on = [&](const char* what) {
    return fmt::format("rank {} {} rank {}, lane {}, communicator {}", s.rank, what, s.peer, s.lane, s.communicator);
  };
  switch (s.act) {
    case Act::send:
      return on(fmt::format("posts {} SENDs to", s.amount).c_str());
    case Act::receive:
      return on(fmt::format("posts {} RECVs from", s.amount).c_str());
    case Act::post_mixed:
      return fmt::format("rank {} posts {} mixed transfers in communicator {}", s.rank, s.amount, s.communicator);
    case Act::view_send:
      return on("reserves and commits to");
    case Act::view_receive:
      return on("calls try_receive from");
    case Act::send_region:
      return on("sends a registered region to");
    case Act::control:
      return fmt::format("rank {} sends {} control messages to rank {}, communicator {}", s.rank, s.amount, s.peer,
                         s.communicator);
    case Act::progress:
      return fmt::format("rank {} progresses {} times", s.rank, s.amount);
    case Act::sleep:
      return fmt::format("rank {} arms its descriptors", s.rank);
    case Act::full_mail:
      return fmt::format("the next {} pair messages of communicator {} find no room", s.amount, s.communicator);
    case Act::give_up:
      return fmt::format("rank {} calls fail_peer({}) in communicator {}", s.rank, s.peer, s.communicator);
    case Act::abort:
      return fmt::format("rank {} aborts communicator {}", s.rank, s.communicator);
    case Act::close:
      return fmt::format("rank {} closes its endpoint of communicator {}", s.rank, s.communicator);
    case Act::die:
      return fmt::format("the process of rank {} is killed", s.rank);
  }
  return "?";
}

std::string text(const Walk& walk) {
  constexpr const char* ways[] = {"driven by one thread", "each a thread", "each a process"};
  constexpr const char* domains[] = {"", ", one domain for each rank", ", one domain for each process"};
  std::string all =
      fmt::format("{} ranks, {}; {} lanes, {} communicators{}{}:", walk.ranks, ways[static_cast<size_t>(walk.way)],
                  walk.lanes, walk.communicators, domains[static_cast<size_t>(walk.domains)],
                  walk.sleeps ? "; ranks without news sleep" : "");
  for (size_t i = 0; i < walk.steps.size(); ++i) {
    if (walk.steps.size() > 30 && i == 20) {
      all += fmt::format("\n      ... {} more steps", walk.steps.size() - i);
      break;
    }
    all += fmt::format("\n  {:3} {}", i + 1, text(walk.steps[i]));
  }
  return all + "\n      then all ranks connect, post what is missing, and wait for everything that must complete";
}

Planned planned(const Walk& walk, const tutti_transport_caps& caps, uint32_t communicator, const Label& label) {
  const uint64_t h = hash(walk, communicator, label, 0), dice = h >> 32;
  const uint64_t most = std::min<uint64_t>(caps.fragment_bytes, uint64_t{1} << 20);
  uint64_t bytes = 8 + dice % 120;
  switch (h % 16) {
    case 0:
    case 1:
      bytes = dice % 4;
      break;
    case 2:
      bytes = caps.inline_bytes + dice % 3 - (caps.inline_bytes > 0);
      break;
    case 3: {
      constexpr uint64_t edges[] = {64, 256, 4096, 8192, 16384, 65536};
      bytes = edges[dice % std::size(edges)] + dice / 7 % 3 - 1;
      break;
    }
    case 4:
      bytes = dice % 3 == 0 ? caps.fragment_bytes - dice / 3 % 2 : 1000;
      break;
    case 5:
      bytes = dice % std::min<uint64_t>(most, 40'000);
      break;
    default:
      break;
  }
  bytes = std::min(bytes, most);
  const uint64_t other = hash(walk, communicator, label, 1);
  if (other % 48 != 0) return {bytes, bytes};
  return {bytes, other / 48 % 2 || bytes == 0 ? std::min(bytes + 1 + other / 96 % 50, most) : bytes / 2};
}

std::string planned_control(const Walk& walk, const tutti_transport_caps& caps, uint32_t communicator,
                            const Label& label) {
  const uint64_t h = hash(walk, communicator, label, 2);
  std::string bytes(h % 8 == 0 ? caps.control_bytes : h % 8 == 1 ? 0 : h / 8 % (TUTTI_CONTROL_BYTES + 1), '\0');
  fill(reinterpret_cast<uint8_t*>(bytes.data()), bytes.size(), fill_seed(walk, communicator) + 1, label);
  return bytes;
}

uint64_t fill_seed(const Walk& walk, uint32_t communicator) { return walk.seed * 31 + communicator * 1000003; }

}  // namespace tutti::conformance::contract
