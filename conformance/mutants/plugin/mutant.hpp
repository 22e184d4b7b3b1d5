// SPDX-License-Identifier: Apache-2.0
//
// The common part of all mutants: the active fault, the report that it struck, and a transport over another one whose
// transfers are observed.
#pragma once

#include <tutti/plugin/algorithm.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tutti/sdk/interposer.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti::mutants {

// The fault that TUTTI_MUTANT names; "" when it is not set.
std::string_view fault();
// Called where the fault strikes: leaves a mark in the file TUTTI_MUTANT_REACHED.
void reached();

// Makes the mutant of a transport fault; nullptr: not one of this file's.
std::unique_ptr<sdk::Interposer> make_transfer_mutant(std::string_view name);
std::unique_ptr<sdk::Interposer> make_endpoint_mutant(std::string_view name);
std::unique_ptr<sdk::Interposer> make_view_mutant(std::string_view name);
std::unique_ptr<sdk::Interposer> make_number_mutant(std::string_view name);
// nullptr: no fault of rails/1, nor the whole transport that has it.
const tutti_transport* railed_transport();
// nullptr: no fault of device memory, nor the whole transport that accepts it.
const tutti_transport* device_memory_transport();
// nullptr: no fault of mapped/1.
const tutti_transport* mapped_transport();
// Looks up the toy that the mutants are `over`. In init: get_interface only shows the tables.
tutti_status init_draft_mutants(const std::string& over);
// The broken table of meeting/1 or rma/1; nullptr: `id` is of neither, or the mutants are over another toy.
const void* draft_mutant(const char* id);
const tutti_algorithm* algorithm_mutant();
// The tables of a device's fault, over the plugin "simulated"; nullptr: `id` is of neither of them.
const void* device_mutant(const char* id);

using Endpoint = sdk::Interposer::Endpoint;
using Link = sdk::Interposer::Link;
using Domain = sdk::Interposer::Domain;

// A mutant's name and summary, over the plugin that TUTTI_MUTANT_OVER names.
struct Mutant : sdk::Interposer {
  Mutant() : Interposer("mutant", "a deliberately broken transport, for the suite's own test") {}
  std::string wrapped() override { return sdk::config("TUTTI_MUTANT_OVER").value_or("shm"); }
};

// A mutant of which the endpoint (and the link) is of class E (and L).
template <typename E, typename L = Link>
struct With : Mutant {
  std::unique_ptr<Endpoint> make_endpoint(Domain& domain, const tutti_endpoint_config& config,
                                          tutti_endpoint* inner) override {
    return std::make_unique<E>(domain, config, inner);
  }
  std::unique_ptr<Link> make_link(Endpoint& at, uint32_t peer, tutti_link* inner) override {
    return std::make_unique<L>(at, peer, inner);
  }
};

// A mutant whose query is changed by `change`.
template <void (*change)(tutti_transport_caps&)>
struct Caps : Mutant {
  tutti_status query(Domain& domain, tutti_transport_caps* caps) override {
    sdk::accepted_offer(caps);
    tutti_transport_caps whole{};
    whole.struct_size = sizeof whole;
    const tutti_status status = Mutant::query(domain, &whole);
    if (status != TUTTI_OK) return status;
    change(whole), reached();
    fill_room(caps, whole);
    return status;
  }
};

// An endpoint that knows the transfers that are pending.
struct Watching : Endpoint {
  using Endpoint::Endpoint;
  // Before a transfer is handed on, which it may change. False: it is not handed on; the caller gets `status`, TUTTI_OK
  // at first.
  virtual bool before(tutti_transfer&, tutti_status& /*status*/) { return true; }
  // A completion of a transfer, before it is told, which it may change. False: it is not told.
  virtual bool told(tutti_completion&, const tutti_transfer&) { return true; }

  tutti_status post(const tutti_transfer& transfer) override {
    tutti_transfer t = transfer;
    tutti_status status = TUTTI_OK;
    return before(t, status) ? hand_on(t) : status;
  }
  tutti_status progress(tutti_completion* completions, uint32_t capacity, uint32_t* n) override {
    for (; *n < capacity && !more.empty(); more.pop_front()) completions[(*n)++] = more.front();
    if (*n == capacity) return TUTTI_OK;
    uint32_t got = 0;
    const tutti_status status = Endpoint::progress(completions + *n, capacity - *n, &got);
    for (uint32_t i = 0, first = *n; i < got; ++i) {
      tutti_completion record = completions[first + i];
      bool tell = true;
      if (record.kind == TUTTI_COMPLETION_TRANSFER) {
        const auto found = pending.find(record.cookie);
        if (found != pending.end()) {
          const tutti_transfer t = found->second;
          pending.erase(found);
          tell = told(record, t);
        }
      }
      if (tell) completions[(*n)++] = record;
    }
    return status;
  }
  tutti_status hand_on(const tutti_transfer& t) {
    const tutti_status status = Endpoint::post(t);
    if (status == TUTTI_OK && !(t.flags & TUTTI_TRANSFER_INLINE)) pending[t.cookie] = t;
    return status;
  }
  // A record of the mutant's own.
  void tell(const tutti_transfer& t, tutti_status status = TUTTI_OK) {
    more.push_back({TUTTI_COMPLETION_TRANSFER, status, link_of(t).peer, 0, t.cookie, t.bytes, nullptr, 0});
  }
  // Writes where nothing may be written any more.
  static void touch(uint8_t* byte) {
    reached();
    *static_cast<volatile uint8_t*>(byte) = 1;
  }
  static bool is_send(const tutti_transfer& t) { return t.kind == TUTTI_TRANSFER_SEND; }
  static bool is_inline(const tutti_transfer& t) { return (t.flags & TUTTI_TRANSFER_INLINE) != 0; }
  static uint8_t* bytes_of(const tutti_transfer& t) { return static_cast<uint8_t*>(t.data); }

  std::unordered_map<uint64_t, tutti_transfer> pending;  // by cookie
  std::deque<tutti_completion> more;                     // told before what the wrapped endpoint tells
};

template <typename M>
std::unique_ptr<sdk::Interposer> make() {
  return std::make_unique<M>();
}
// A row of the tables from names to mutants.
struct Maker {
  std::string_view name;
  std::unique_ptr<sdk::Interposer> (*make)();
};

}  // namespace tutti::mutants
