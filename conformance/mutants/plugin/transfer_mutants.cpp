// SPDX-License-Identifier: Apache-2.0
//
// Mutants that move messages wrongly. Each is as small as the fault: what it does is said in faults.cpp.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "mutant.hpp"

namespace tutti::mutants {
namespace {

struct RefusalIsError : Watching {
  using Watching::Watching;
  bool before(tutti_transfer& t, tutti_status& status) override {
    status = hand_on(t);
    if (status == TUTTI_AGAIN) reached(), status = sdk::report(TUTTI_NO_RESOURCES, "mutant: the queue is full");
    return false;
  }
};
struct IgnoresFlags : Watching {
  using Watching::Watching;
  bool before(tutti_transfer& t, tutti_status&) override {
    if (t.flags & ~TUTTI_TRANSFER_INLINE) t.flags &= TUTTI_TRANSFER_INLINE, reached();
    return true;
  }
};
struct CompletionLost : Watching {
  using Watching::Watching;
  int sends = 0;
  bool told(tutti_completion&, const tutti_transfer& t) override {
    if (!is_send(t) || ++sends < 2) return true;
    return reached(), false;
  }
};
struct CompletionTwice : Watching {
  using Watching::Watching;
  int count = 0;
  bool told(tutti_completion& record, const tutti_transfer&) override {
    if (++count % 3 == 0) more.push_back(record), reached();
    return true;
  }
};
struct CookieOf32Bits : Watching {
  using Watching::Watching;
  bool told(tutti_completion& record, const tutti_transfer&) override {
    return record.cookie &= UINT32_MAX, reached(), true;
  }
};
struct BytesUnreported : Watching {
  using Watching::Watching;
  bool told(tutti_completion& record, const tutti_transfer& t) override {
    if (!is_send(t)) record.bytes = 0, reached();
    return true;
  }
};
// Holds every third SEND of a lane back until the next one, or for some calls of progress.
struct SwapsMessages : Watching {
  using Watching::Watching;
  std::map<std::pair<Link*, uint32_t>, tutti_transfer> held;
  int sends = 0, calls = 0;
  bool before(tutti_transfer& t, tutti_status& status) override {
    if (!is_send(t)) return true;
    const auto found = held.find({&link_of(t), t.lane});
    if (found == held.end()) {
      if (is_inline(t) || ++sends % 3) return true;
      held[{&link_of(t), t.lane}] = t;
      calls = 0;
      return false;
    }
    tutti_transfer first = found->second;
    if (first.bytes == t.bytes && t.bytes >= 8 && !is_inline(t)) std::swap(first.data, t.data), reached();
    status = hand_on(first);
    if (status == TUTTI_OK) held.erase(found), status = hand_on(t);
    return false;
  }
  tutti_status progress(tutti_completion* records, uint32_t capacity, uint32_t* n) override {
    for (auto entry = held.begin(); entry != held.end() && ++calls > 400;)
      entry = hand_on(entry->second) == TUTTI_OK ? held.erase(entry) : std::next(entry);
    return Watching::progress(records, capacity, n);
  }
};
struct CompletionsReversed : Watching {
  using Watching::Watching;
  tutti_status progress(tutti_completion* records, uint32_t capacity, uint32_t* n) override {
    const tutti_status status = Watching::progress(records, capacity, n);
    const bool transfers =
        std::all_of(records, records + *n, [](const auto& r) { return r.kind == TUTTI_COMPLETION_TRANSFER; });
    if (*n > 1 && transfers) std::reverse(records, records + *n), reached();
    return status;
  }
};
struct DropsLastByte : Watching {
  using Watching::Watching;
  std::map<uint64_t, uint8_t> before_it;
  bool before(tutti_transfer& t, tutti_status&) override {
    if (!is_send(t) && t.bytes > 0) before_it[t.cookie] = bytes_of(t)[t.bytes - 1];
    return true;
  }
  bool told(tutti_completion& record, const tutti_transfer& t) override {
    if (!is_send(t) && t.bytes > 0 && record.status == TUTTI_OK)
      bytes_of(t)[t.bytes - 1] = before_it[t.cookie], reached();
    return true;
  }
};
struct CorruptsOddAddresses : Watching {
  using Watching::Watching;
  bool told(tutti_completion& record, const tutti_transfer& t) override {
    if (!is_send(t) && !t.region && t.bytes > 4096 && (reinterpret_cast<uintptr_t>(t.data) & 1) &&
        record.status == TUTTI_OK)
      bytes_of(t)[4096] ^= 4, reached();
    return true;
  }
};
struct WritesBehind : Watching {
  using Watching::Watching;
  bool told(tutti_completion&, const tutti_transfer& t) override {
    if (!is_send(t) && t.bytes > 0) reached(), bytes_of(t)[t.bytes] = 0;
    return true;
  }
};
struct ScribblesSource : Watching {
  using Watching::Watching;
  bool before(tutti_transfer& t, tutti_status&) override {
    if (is_send(t) && t.bytes > 0) reached(), bytes_of(t)[0] ^= 1, bytes_of(t)[0] ^= 1;
    return true;
  }
};
// SENDs go into a queue and are handed on a few calls of progress later.
struct Later : Watching {
  using Watching::Watching;
  std::deque<tutti_transfer> queue;
  uint64_t calls = 0, delay = 3;
  virtual bool late(const tutti_transfer& t) = 0;
  bool before(tutti_transfer& t, tutti_status&) override {
    if (!late(t) && queue.empty()) return true;
    if (!is_send(t)) return true;
    queue.push_back(t);
    if (!is_inline(t)) tell(t), early[t.cookie] = true;
    return reached(), false;
  }
  std::map<uint64_t, bool> early;  // told already
  tutti_status progress(tutti_completion* records, uint32_t capacity, uint32_t* n) override {
    while (++calls % delay == 0 && !queue.empty() && hand_on(queue.front()) != TUTTI_AGAIN) queue.pop_front(), --calls;
    return Watching::progress(records, capacity, n);
  }
  bool told(tutti_completion&, const tutti_transfer& t) override { return !early.contains(t.cookie); }
};
struct SendCompletesEarly : Later {
  using Later::Later;
  bool late(const tutti_transfer& t) override { return is_send(t) && !is_inline(t) && t.bytes > 0; }
};
struct InlineKeepsPointer : Later {
  using Later::Later;
  bool late(const tutti_transfer& t) override { return is_inline(t); }
  bool before(tutti_transfer& t, tutti_status& status) override {
    if (!is_inline(t) && queue.empty()) return true;
    if (is_inline(t) && (!is_send(t) || t.bytes > 48)) return true;
    return Later::before(t, status);
  }
};
struct ReceiveCompletesEarly : Watching {
  using Watching::Watching;
  bool before(tutti_transfer& t, tutti_status& status) override {
    if (is_send(t) || t.bytes == 0) return true;
    status = hand_on(t);
    if (status == TUTTI_OK) tell(t), reached();
    return false;
  }
  bool told(tutti_completion&, const tutti_transfer& t) override { return is_send(t) || t.bytes == 0; }
};
struct TouchesAfterCompletion : Watching {
  using Watching::Watching;
  uint8_t* last = nullptr;
  tutti_status progress(tutti_completion* records, uint32_t capacity, uint32_t* n) override {
    if (uint8_t* touched = std::exchange(last, nullptr)) touch(touched);
    return Watching::progress(records, capacity, n);
  }
  bool told(tutti_completion& record, const tutti_transfer& t) override {
    if (!is_send(t) && t.bytes > 0 && record.status == TUTTI_OK) last = bytes_of(t);
    return true;
  }
};
struct LaneBlocksLane : Watching {
  using Watching::Watching;
  bool before(tutti_transfer& t, tutti_status& status) override {
    if (!is_send(t)) return true;
    size_t waiting = 0;
    for (const auto& [cookie, other] : pending)
      waiting += is_send(other) && other.link == t.link && other.lane != t.lane;
    if (waiting < 8) return true;
    return status = TUTTI_AGAIN, reached(), false;
  }
};
struct RefusesForEver : Watching {
  using Watching::Watching;
  std::map<std::pair<Link*, uint32_t>, bool> full;
  bool before(tutti_transfer& t, tutti_status& status) override {
    if (!is_send(t)) return true;
    bool& is_full = full[{&link_of(t), t.lane}];
    if (is_full) return status = TUTTI_AGAIN, reached(), false;
    status = hand_on(t);
    is_full = status == TUTTI_AGAIN;
    return false;
  }
};
struct DropsWhenFull : Watching {
  using Watching::Watching;
  bool before(tutti_transfer& t, tutti_status& status) override {
    status = hand_on(t);
    if (status == TUTTI_AGAIN && is_inline(t)) reached(), status = TUTTI_OK;
    return false;
  }
};
struct InlineIsTold : Watching {
  using Watching::Watching;
  bool before(tutti_transfer& t, tutti_status& status) override {
    status = hand_on(t);
    if (status == TUTTI_OK && is_inline(t)) tell(t), reached();
    return false;
  }
};
struct MismatchIsOk : Watching {
  using Watching::Watching;
  bool told(tutti_completion& record, const tutti_transfer&) override {
    if (record.status == TUTTI_MISMATCH) record.status = TUTTI_OK, reached();
    return true;
  }
};
struct MismatchTellsItsOwnSize : Watching {
  using Watching::Watching;
  bool told(tutti_completion& record, const tutti_transfer& t) override {
    if (record.status == TUTTI_MISMATCH) record.bytes = t.bytes, reached();
    return true;
  }
};
struct MarksAreEqual : Watching {
  using Watching::Watching;
  std::map<uint64_t, uint32_t> marks;  // of RECVs
  bool before(tutti_transfer& t, tutti_status&) override {
    if (!is_send(t)) marks[t.cookie] = t.mark;
    t.mark = 0, reached();
    return true;
  }
  bool told(tutti_completion& record, const tutti_transfer& t) override {
    if (!is_send(t)) record.mark = marks[t.cookie];
    return true;
  }
};
struct MarksOf16Bits : Watching {
  using Watching::Watching;
  std::map<uint64_t, uint32_t> marks;  // of RECVs
  bool before(tutti_transfer& t, tutti_status&) override {
    if (!is_send(t)) marks[t.cookie] = t.mark;
    if (t.mark > UINT16_MAX) reached();
    t.mark &= UINT16_MAX;
    return true;
  }
  bool told(tutti_completion& record, const tutti_transfer& t) override {
    if (!is_send(t) && record.status == TUTTI_OK) record.mark = marks[t.cookie];
    return true;
  }
};
struct MismatchTellsItsOwnMark : Watching {
  using Watching::Watching;
  bool told(tutti_completion& record, const tutti_transfer& t) override {
    if (record.status == TUTTI_MISMATCH) record.mark = t.mark, reached();
    return true;
  }
};
struct DropsEmptyMessages : Watching {
  using Watching::Watching;
  bool before(tutti_transfer& t, tutti_status&) override {
    if (!is_send(t) || t.bytes > 0 || (t.flags & ~TUTTI_TRANSFER_INLINE)) return true;
    if (!is_inline(t)) tell(t);
    return reached(), false;
  }
};
struct PostWaits : Watching {
  using Watching::Watching;
  bool before(tutti_transfer& t, tutti_status& status) override {
    while ((status = hand_on(t)) == TUTTI_AGAIN) {
      reached();
      tutti_completion record;
      uint32_t n = 0;
      Endpoint::progress(&record, 1, &n);
      if (n) pending.erase(record.cookie), more.push_back(record);
    }
    return false;
  }
};
struct OverrunsCapacity : Watching {
  using Watching::Watching;
  tutti_status progress(tutti_completion* records, uint32_t capacity, uint32_t* n) override {
    const tutti_status status = Watching::progress(records, capacity, n);
    if (*n == capacity) reached(), records[capacity] = records[0];
    return status;
  }
};
struct ForgetsBeyondCapacity : Watching {
  using Watching::Watching;
  tutti_status progress(tutti_completion* records, uint32_t capacity, uint32_t* n) override {
    tutti_completion all[64];
    uint32_t got = 0;
    const tutti_status status = Watching::progress(all, 64, &got);
    *n = std::min(got, capacity);
    if (got > capacity) reached();
    std::copy_n(all, *n, records);
    return status;
  }
};
struct StaleBeyond2Gib : Watching {
  using Watching::Watching;
  std::map<std::pair<Link*, uint32_t>, std::pair<uint64_t, void*>> lanes;
  bool before(tutti_transfer& t, tutti_status& status) override {
    if (!is_send(t)) return true;
    auto& [bytes, first] = lanes[{&link_of(t), t.lane}];
    if (!first) first = t.data;
    tutti_transfer changed = t;
    if (bytes + t.bytes > uint64_t{1} << 31) changed.data = first, reached();
    status = hand_on(changed);
    if (status == TUTTI_OK) bytes += t.bytes;
    return false;
  }
};

void inline_more(tutti_transport_caps& caps) { caps.inline_bytes *= 2; }
void inline_less(tutti_transport_caps& caps) { caps.inline_bytes = 8; }
void fragment_more(tutti_transport_caps& caps) { caps.fragment_bytes *= 2; }
void fragment_less(tutti_transport_caps& caps) { caps.fragment_bytes = 4096; }
void depth_more(tutti_transport_caps& caps) { caps.receive_depth *= 2; }
void depth_one(tutti_transport_caps& caps) { caps.receive_depth = 1; }
void reach_more(tutti_transport_caps& caps) { caps.reach = TUTTI_REACH_HOST; }
void reach_less(tutti_transport_caps& caps) { caps.reach = TUTTI_REACH_PROCESS; }
void wants_flush(tutti_transport_caps& caps) {
  if (TUTTI_HAS_FIELD(tutti_transport_caps, &caps, flags)) caps.flags |= TUTTI_TRANSPORT_NEEDS_FLUSH;
}

constexpr Maker makers[] = {
    {"refusal-is-error", make<With<RefusalIsError>>},
    {"ignores-flags", make<With<IgnoresFlags>>},
    {"completion-lost", make<With<CompletionLost>>},
    {"completion-twice", make<With<CompletionTwice>>},
    {"cookie-of-32-bits", make<With<CookieOf32Bits>>},
    {"bytes-unreported", make<With<BytesUnreported>>},
    {"marks-are-equal", make<With<MarksAreEqual>>},
    {"marks-of-16-bits", make<With<MarksOf16Bits>>},
    {"mismatch-tells-its-own-mark", make<With<MismatchTellsItsOwnMark>>},
    {"swaps-messages", make<With<SwapsMessages>>},
    {"completions-reversed", make<With<CompletionsReversed>>},
    {"drops-last-byte", make<With<DropsLastByte>>},
    {"corrupts-odd-addresses", make<With<CorruptsOddAddresses>>},
    {"writes-behind", make<With<WritesBehind>>},
    {"scribbles-source", make<With<ScribblesSource>>},
    {"send-completes-early", make<With<SendCompletesEarly>>},
    {"inline-keeps-pointer", make<With<InlineKeepsPointer>>},
    {"receive-completes-early", make<With<ReceiveCompletesEarly>>},
    {"touches-after-completion", make<With<TouchesAfterCompletion>>},
    {"lane-blocks-lane", make<With<LaneBlocksLane>>},
    {"refuses-for-ever", make<With<RefusesForEver>>},
    {"drops-when-full", make<With<DropsWhenFull>>},
    {"inline-is-told", make<With<InlineIsTold>>},
    {"mismatch-is-ok", make<With<MismatchIsOk>>},
    {"mismatch-tells-its-own-size", make<With<MismatchTellsItsOwnSize>>},
    {"drops-empty-messages", make<With<DropsEmptyMessages>>},
    {"post-waits", make<With<PostWaits>>},
    {"overruns-capacity", make<With<OverrunsCapacity>>},
    {"forgets-beyond-capacity", make<With<ForgetsBeyondCapacity>>},
    {"stale-beyond-2-gib", make<With<StaleBeyond2Gib>>},
    {"inline-overstated", make<Caps<inline_more>>},
    {"inline-understated", make<Caps<inline_less>>},
    {"fragment-overstated", make<Caps<fragment_more>>},
    {"fragment-understated", make<Caps<fragment_less>>},
    {"depth-overstated", make<Caps<depth_more>>},
    {"caps-depth-1", make<Caps<depth_one>>},
    {"flush-without-function", make<Caps<wants_flush>>},
    {"reach-overstated", make<Caps<reach_more>>},
    {"reach-understated", make<Caps<reach_less>>},
};

}  // namespace

std::unique_ptr<sdk::Interposer> make_transfer_mutant(std::string_view name) {
  for (const Maker& maker : makers)
    if (maker.name == name) return maker.make();
  return nullptr;
}

}  // namespace tutti::mutants
