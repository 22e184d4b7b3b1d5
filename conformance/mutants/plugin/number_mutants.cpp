// SPDX-License-Identifier: Apache-2.0
//
// Mutants that are right in small and short lives: numbers of too few bits, and the moments around a loss.
#include <sched.h>
#include <sys/uio.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "mutant.hpp"

namespace tutti::mutants {
namespace {

struct LanesOf8Bits : Watching {
  using Watching::Watching;
  bool before(tutti_transfer& t, tutti_status&) override {
    if (t.lane > 255) reached(), t.lane &= 0xff;
    return true;
  }
};
// The bytes of message k + 2^16 are those of message k.
struct MessagesOf16Bits : Watching {
  using Watching::Watching;
  struct Lane {
    uint64_t sent = 0;
    uint64_t first[32] = {};
  };
  std::map<std::pair<Link*, uint32_t>, Lane> lanes;
  bool before(tutti_transfer& t, tutti_status& status) override {
    if (!is_send(t) || t.bytes != 8) return true;
    Lane& lane = lanes[{&link_of(t), t.lane}];
    const uint64_t k = lane.sent & 0xffff;
    tutti_transfer changed = t;
    if (lane.sent > k && k < 32)
      changed.data = &lane.first[k], reached();
    else if (k < 32)
      std::memcpy(&lane.first[k], t.data, 8);
    status = hand_on(changed);
    lane.sent += status == TUTTI_OK;
    return false;
  }
};
// A lane's credit is a number of bytes in 32 bits.
struct BytesOf32Bits : Watching {
  using Watching::Watching;
  std::map<std::pair<Link*, uint32_t>, uint64_t> sent;
  bool before(tutti_transfer& t, tutti_status& status) override {
    if (!is_send(t)) return true;
    uint64_t& bytes = sent[{&link_of(t), t.lane}];
    if (bytes > UINT32_MAX) return status = TUTTI_AGAIN, reached(), false;
    status = hand_on(t);
    if (status == TUTTI_OK) bytes += t.bytes;
    return false;
  }
};
// A retransmission: written by the kernel, which no page protection turns into a signal.
struct LateWriter : Watching {
  using Watching::Watching;
  uint32_t received = 0;
  bool told(tutti_completion& record, const tutti_transfer& t) override {
    if (is_send(t) || record.status != TUTTI_OK || t.bytes < 8 || ++received % 4) return true;
    std::vector<uint8_t> bytes(bytes_of(t), bytes_of(t) + std::min<uint64_t>(t.bytes, 64));
    std::thread([bytes = std::move(bytes), to = t.data] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const iovec from{const_cast<uint8_t*>(bytes.data()), bytes.size()}, into{to, bytes.size()};
      if (process_vm_writev(getpid(), &from, 1, &into, 1, 0) > 0) reached();
    }).detach();
    return true;
  }
};
// Sends on other lanes than 0 wait until lane 0 has had nothing to do for some calls of progress.
struct BusyLaneFirst : Watching {
  using Watching::Watching;
  std::deque<tutti_transfer> waiting;
  uint32_t idle = 0;
  bool before(tutti_transfer& t, tutti_status&) override {
    if (!is_send(t) || is_inline(t) || t.lane == 0 || (idle > 4 && waiting.empty())) return true;
    waiting.push_back(t);
    return false;
  }
  bool told(tutti_completion&, const tutti_transfer& t) override {
    if (t.lane == 0) idle = 0;
    return true;
  }
  tutti_status progress(tutti_completion* records, uint32_t capacity, uint32_t* n) override {
    if (++idle <= 4 && !waiting.empty()) reached();
    while (idle > 4 && !waiting.empty() && hand_on(waiting.front()) == TUTTI_OK) waiting.pop_front();
    return Watching::progress(records, capacity, n);
  }
};
struct SharedScratch : Endpoint {
  using Endpoint::Endpoint;
  tutti_status progress(tutti_completion* records, uint32_t capacity, uint32_t* n) override {
    static tutti_completion scratch[64];
    const tutti_status status = Endpoint::progress(scratch, std::min(capacity, 64u), n);
    if (*n > 0) reached(), sched_yield();
    std::copy(scratch, scratch + *n, records);
    return status;
  }
};
void latency_of_1_ns(tutti_transport_caps& caps) { caps.latency_ns = 1; }
struct RanksOf8Bits : Endpoint {
  using Endpoint::Endpoint;
  tutti_status progress(tutti_completion* records, uint32_t capacity, uint32_t* n) override {
    const tutti_status status = Endpoint::progress(records, capacity, n);
    for (uint32_t i = 0; i < *n; ++i)
      if (records[i].kind == TUTTI_COMPLETION_CONTROL && records[i].peer > 255) reached(), records[i].peer &= 0xff;
    return status;
  }
};
struct ReservedIsUsed : Endpoint {
  using Endpoint::Endpoint;
  tutti_status progress(tutti_completion* records, uint32_t capacity, uint32_t* n) override {
    const tutti_status status = Endpoint::progress(records, capacity, n);
    for (uint32_t i = 0; i < *n; ++i)
      if (records[i].kind == TUTTI_COMPLETION_PEER_FAILED) reached(), records[i].mark = 1;
    return status;
  }
};
// A loss is noticed by progress and told by the next but three; until then post refuses.
struct LossIsAnError : Watching {
  using Watching::Watching;
  std::deque<std::pair<tutti_completion, std::string>> held;
  uint32_t calls = 0;
  tutti_status progress(tutti_completion* records, uint32_t capacity, uint32_t* n) override {
    if (!held.empty() && ++calls > 3 && capacity > 0) {
      static thread_local std::string text;
      text = held.front().second;
      records[0] = held.front().first;
      records[0].data = text.c_str();
      held.pop_front();
      *n = 1;
      return TUTTI_OK;
    }
    const tutti_status status = Watching::progress(records, capacity, n);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *n; ++i)
      if (records[i].kind == TUTTI_COMPLETION_PEER_FAILED)
        held.emplace_back(records[i], static_cast<const char*>(records[i].data)), calls = 0;
      else
        records[kept++] = records[i];
    *n = kept;
    return status;
  }
  tutti_status arm() override { return held.empty() ? Watching::arm() : TUTTI_AGAIN; }
  bool before(tutti_transfer& t, tutti_status&) override {
    for (const auto& [record, text] : held)
      if (record.peer == link_of(t).peer) {
        reached();
        throw sdk::Error(TUTTI_PEER_FAILED, text);
      }
    return true;
  }
};

constexpr Maker makers[] = {
    {"lanes-of-8-bits", make<With<LanesOf8Bits>>},
    {"messages-of-16-bits", make<With<MessagesOf16Bits>>},
    {"bytes-of-32-bits", make<With<BytesOf32Bits>>},
    {"late-writer", make<With<LateWriter>>},
    {"busy-lane-first", make<With<BusyLaneFirst>>},
    {"shared-scratch", make<With<SharedScratch>>},
    {"latency-of-1-ns", make<Caps<latency_of_1_ns>>},
    {"ranks-of-8-bits", make<With<RanksOf8Bits>>},
    {"reserved-is-used", make<With<ReservedIsUsed>>},
    {"loss-is-an-error", make<With<LossIsAnError>>},
};

}  // namespace

std::unique_ptr<sdk::Interposer> make_number_mutant(std::string_view name) {
  for (const Maker& maker : makers)
    if (maker.name == name) return maker.make();
  return nullptr;
}

}  // namespace tutti::mutants
