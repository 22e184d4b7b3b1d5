// SPDX-License-Identifier: Apache-2.0
#include "matrix/mix.hpp"

#include <tutti/plugin/mapped.h>
#include <tutti/registry.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "filters.hpp"

namespace tutti::conformance {
namespace {

// The most bytes of one hand-over between streams; more is cut.
constexpr uint64_t mapped_slot_bytes = 1 << 20;

struct Facts {
  tutti_transport_caps caps{};
  bool maps = false;
  std::string unusable;
  bool broken = false;
};

// A transport's capabilities. Asked once per process: what it says must not change.
const Facts& facts_of(const std::string& name) {
  static std::map<std::string, Facts> known;
  if (const auto found = known.find(name); found != known.end()) return found->second;
  std::string error;
  const tutti_transport* transport = find_transport(name, &error);
  if (!transport) throw std::invalid_argument(error);
  Facts facts;
  facts.maps = transport->get_interface(transport->self, TUTTI_MAPPED_ID) != nullptr;
  facts.caps.struct_size = sizeof facts.caps;
  take_plugin_error();
  if (const tutti_status status = query_transport(*transport, &facts.caps); status < 0) {
    facts.unusable = take_plugin_error();
    facts.broken = status != TUTTI_NOT_SUPPORTED || facts.unusable.empty();
    if (facts.unusable.empty()) facts.unusable = "it fails to open a domain or to tell of it, and gives no reason";
  }
  return known.emplace(name, facts).first->second;
}

}  // namespace

std::string Mix::setting() const {
  if (mapped) return {};
  std::string text;
  for (const std::string& t : transports) text += (text.empty() ? "" : ",") + t;
  return text;
}

std::vector<uint32_t> Mix::hosts(uint32_t nranks) const {
  std::vector<uint32_t> all(nranks, 0);
  if (transports.size() < 2) return all;
  // Neighbours together or apart: an even number of ranks takes turns, an odd one is cut in two.
  for (uint32_t r = 0; r < nranks; ++r) all[r] = nranks % 2 == 0 && nranks > 2 ? r % 2 : r * 2 / nranks;
  return all;
}

const std::string& Mix::between(uint32_t a, uint32_t b, uint32_t nranks) const {
  if (transports.size() < 2) return transports.front();
  const std::vector<uint32_t> host = hosts(nranks);
  return host[a] == host[b] ? transports.front() : transports.back();
}

Mix make_mix(const std::string& name) {
  Mix mix;
  mix.name = name;
  mix.transports = transports_of(name);
  if (name == mapped_way) {
    mix.mapped = true;
    mix.transports = {name};
    mix.fragment_bytes = mapped_slot_bytes;
    return mix;
  }
  mix.fragment_bytes = mix.inline_bytes = UINT64_MAX;
  for (const std::string& transport : mix.transports) {
    const Facts& facts = facts_of(transport);
    if (!facts.unusable.empty()) {
      mix.unusable = transport + ": " + facts.unusable;
      mix.broken |= facts.broken;
      continue;
    }
    mix.threads |= facts.caps.reach == TUTTI_REACH_PROCESS;
    mix.fragment_bytes = std::min(mix.fragment_bytes, facts.caps.fragment_bytes);
    mix.inline_bytes = std::min(mix.inline_bytes, facts.caps.inline_bytes);
  }
  mix.maps = mix.unusable.empty() && facts_of(mix.transports.front()).maps;
  if (mix.transports.size() == 1 || !mix.unusable.empty()) return mix;
  const auto reach = [](const std::string& t) { return facts_of(t).caps.reach; };
  std::stable_sort(mix.transports.begin(), mix.transports.end(),
                   [&](const std::string& a, const std::string& b) { return reach(a) < reach(b); });
  mix.maps = facts_of(mix.transports.front()).maps;
  if (mix.transports.size() != 2 || reach(mix.transports[0]) != TUTTI_REACH_HOST ||
      reach(mix.transports[1]) != TUTTI_REACH_NETWORK)
    throw std::invalid_argument("the mix " + name +
                                " is not one transport that stays within a host and one that reaches other hosts");
  // Within a host the core takes the one that claims the lower latency.
  const auto latency = [](const std::string& t) { return facts_of(t).caps.latency_ns; };
  if (latency(mix.transports[1]) < latency(mix.transports[0]))
    mix.unusable =
        mix.transports[1] + " claims a lower latency than " + mix.transports[0] + ", so the latter would carry nothing";
  return mix;
}

std::vector<Mix> select_mixes(const std::vector<std::string>& names) {
  std::vector<Mix> mixes;
  for (const std::string& name : names) mixes.push_back(make_mix(name));
  if (!names.empty()) return mixes;
  std::vector<std::string> within, between;
  for (const tutti_transport* t : list_transports()) {
    mixes.push_back(make_mix(t->name));
    if (!mixes.back().unusable.empty()) continue;
    const uint32_t reach = facts_of(t->name).caps.reach;
    if (reach == TUTTI_REACH_HOST) within.emplace_back(t->name);
    if (reach == TUTTI_REACH_NETWORK) between.emplace_back(t->name);
  }
  for (const std::string& a : within)
    for (const std::string& b : between)
      if (Mix mix = make_mix(a + "+" + b); mix.unusable.empty()) mixes.push_back(std::move(mix));
  mixes.push_back(make_mix(mapped_way));
  return mixes;
}

}  // namespace tutti::conformance
