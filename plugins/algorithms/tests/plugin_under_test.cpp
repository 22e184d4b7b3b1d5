// SPDX-License-Identifier: Apache-2.0
#include "plugin_under_test.hpp"

#include <tutti/plugin/entry.h>

#include <array>
#include <stdexcept>

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_algorithms;

namespace tutti::test {
namespace {
std::string error_text;

const tutti_host test_host = [] {
  tutti_host host{};
  host.struct_size = sizeof host;
  host.abi_major = TUTTI_ABI_MAJOR;
  host.set_error = [](void*, tutti_status, const char* text) { error_text = text; };
  return host;
}();
}  // namespace

const std::vector<const tutti_algorithm*>& algorithms() {
  static const std::vector<const tutti_algorithm*> all = [] {
    std::vector<const tutti_algorithm*> list;
    const tutti_plugin_entry_table& entry = tutti_plugin_entry_algorithms;
    if (entry.init(&test_host) != TUTTI_OK) throw std::runtime_error("the plugin refused to start: " + error_text);
    for (uint32_t i = 0; const void* table = entry.get_interface(TUTTI_ALGORITHM_ID, i); ++i)
      list.push_back(static_cast<const tutti_algorithm*>(table));
    return list;
  }();
  return all;
}

const tutti_algorithm* find_algorithm(const std::string& name) {
  for (const tutti_algorithm* algorithm : algorithms())
    if (name == algorithm->name) return algorithm;
  return nullptr;
}

const std::string& last_error() { return error_text; }

std::vector<Offer> offers() {
  std::vector<Offer> list;
  for (const tutti_algorithm* algorithm : algorithms())
    for (uint32_t collective = TUTTI_BROADCAST; collective <= TUTTI_EXCLUSIVE_SCAN; ++collective)
      if (algorithm->collectives >> collective & 1) list.push_back({algorithm, collective});
  return list;
}

std::string offer_name(const Offer& offer) {
  constexpr std::array names{"",           "broadcast",     "reduce",         "all_reduce",       "gather",
                             "all_gather", "scatter",       "reduce_scatter", "all_to_all",       "barrier",
                             "gather_v",   "all_gather_v",  "scatter_v",      "reduce_scatter_v", "all_to_all_v",
                             "scan",       "exclusive_scan"};
  return std::string(offer.algorithm->name) + "_" + names[offer.collective];
}

std::string text_of(const std::vector<uint32_t>& hosts) {
  std::string text;
  for (const uint32_t host : hosts) text += " " + std::to_string(host);
  return text;
}

}  // namespace tutti::test
