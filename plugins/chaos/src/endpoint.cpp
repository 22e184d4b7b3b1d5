// SPDX-License-Identifier: Apache-2.0
#include "endpoint.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace tutti::chaos {
namespace {

constexpr size_t most_held = 256;  // then nothing more is taken from the wrapped transport

uint64_t number_of(uint32_t peer, uint32_t lane, uint32_t kind) {
  return (uint64_t{peer} << 32) ^ (uint64_t{lane} << 2) ^ kind;
}

}  // namespace

Endpoint::Endpoint(Interposer::Domain& domain, const tutti_endpoint_config& config, tutti_endpoint* inner,
                   Faults faults)
    : Interposer::Endpoint(domain, config, inner), faults_(std::move(faults)) {}

Endpoint::~Endpoint() {
  try {
    const std::string summary = faults_.summary();
    if (!summary.empty()) sdk::log(TUTTI_LOG_INFO, "rank " + std::to_string(rank) + ": faults that struck: " + summary);
  } catch (const std::bad_alloc&) {
  }
}

void Endpoint::tell(Kind kind, const Occasion& occasion) const {
  std::string text = "rank " + std::to_string(rank) + ": fault " + name_of(kind) + " strikes at ";
  text += occasion.pair ? "a pair message" : occasion.control ? "a control message" : "a message";
  text += " of " + std::to_string(occasion.bytes) + " bytes " + (occasion.pair ? "from" : "to") + " rank " +
          std::to_string(occasion.peer);
  if (!occasion.control && !occasion.pair) text += " on lane " + std::to_string(occasion.lane);
  sdk::log(TUTTI_LOG_WARN, text);
}

tutti_status Endpoint::receive_pair(uint32_t peer, const void* data, uint64_t bytes) {
  const Occasion occasion{.peer = peer, .lane = lanes, .bytes = bytes, .pair = true};
  if (faults_.strike(Kind::lose, occasion)) {
    tell(Kind::lose, occasion);
    return TUTTI_OK;
  }
  late_.push_back({peer, std::string(static_cast<const char*>(data), bytes), {}});
  if (const Fault* delay = faults_.strike(Kind::delay, occasion))
    late_.back().due = Clock::now() + std::chrono::microseconds(faults_.dice().below(delay->us + 1));
  return hand_over_late();
}

tutti_status Endpoint::hand_over_late() {
  std::set<uint32_t> waiting;  // senders of which an earlier message is still held back
  for (auto late = late_.begin(); late != late_.end();) {
    if (stopped_ || waiting.contains(late->peer) || (late->due != Clock::time_point() && late->due > Clock::now())) {
      waiting.insert(late->peer);
      ++late;
      continue;
    }
    const LateMessage message = std::move(*late);
    late = late_.erase(late);
    const tutti_status status =
        Interposer::Endpoint::receive_pair(message.peer, message.bytes.data(), message.bytes.size());
    if (status < 0) return status;
  }
  return TUTTI_OK;
}

tutti_status Endpoint::post(const tutti_transfer& transfer) {
  auto& link = static_cast<Link&>(link_of(transfer));
  if (stopped_ || breaking_.contains(link.peer)) return TUTTI_AGAIN;
  // The wrapped transport explains what it refuses for good.
  if (transfer.kind == TUTTI_TRANSFER_SEND && transfer.lane < lanes) return send(link, transfer);
  return forward(transfer, {}, false);
}

tutti_status Endpoint::send(Link& link, const tutti_transfer& transfer) {
  Link::Lane& lane = link.lanes_[transfer.lane];
  if (!link.flush(transfer.lane) || !link.may_leave(transfer.lane, transfer.bytes, true)) return TUTTI_AGAIN;
  const Link::Verdict verdict = *lane.verdict;
  const bool quiet = transfer.flags & TUTTI_TRANSFER_INLINE;
  const auto* data = static_cast<const char*>(transfer.data);
  tutti_status status = TUTTI_OK;
  if (verdict.lose) {
    Held made;
    made.completion.kind = TUTTI_COMPLETION_TRANSFER;
    made.completion.peer = link.peer;
    made.completion.cookie = transfer.cookie;
    made.completion.bytes = transfer.bytes;
    made.lane = number_of(link.peer, transfer.lane, TUTTI_TRANSFER_SEND);
    if (!quiet) held_.push_back(std::move(made));
  } else {
    std::vector<char> instead;
    if (verdict.corrupt) {
      instead.assign(data, data + transfer.bytes);
      link.flip(instead.data(), instead.size());
    }
    status = forward(transfer, std::move(instead), false);
  }
  if (status != TUTTI_OK) return status;
  lane.verdict.reset();
  if (verdict.duplicate) {
    lane.extras.push_back({{data, data + transfer.bytes}, transfer.mark});
    link.flush(transfer.lane);
  }
  return TUTTI_OK;
}

// Posts to the wrapped transport under a cookie of our own. Without a buffer the caller's bytes are sent.
tutti_status Endpoint::forward(const tutti_transfer& transfer, std::vector<char> buffer, bool silent) {
  tutti_transfer inner = transfer;
  const uint64_t id = next_record_++;
  Record& record = records_[id];
  record = {transfer.cookie, link_of(transfer).peer, transfer.lane, transfer.kind, silent, std::move(buffer)};
  if (!record.buffer.empty()) {
    inner.data = record.buffer.data();
    inner.region = nullptr;
  }
  inner.cookie = id;
  const tutti_status status = Interposer::Endpoint::post(inner);
  if (status != TUTTI_OK || (transfer.flags & TUTTI_TRANSFER_INLINE)) records_.erase(id);
  return status;
}

tutti_status Endpoint::progress(tutti_completion* completions, uint32_t capacity, uint32_t* n) {
  shown_.clear();
  ++polls_;
  if (stopped_) return TUTTI_OK;
  if (const Fault* slow = faults_.strike(Kind::slow, {}))
    std::this_thread::sleep_for(std::chrono::microseconds(slow->us));
  if (const tutti_status status = hand_over_late(); status < 0) return status;
  if (held_.size() < most_held) {
    tutti_completion batch[32];
    uint32_t found = 0;
    const tutti_status status = Interposer::Endpoint::progress(batch, 32, &found);
    for (uint32_t i = 0; i < found; ++i) keep(batch[i]);
    if (status < 0) return status;
  }
  for (uint32_t peer = 0; peer < nranks; ++peer)
    if (auto* at = static_cast<Link*>(link(peer)))
      for (uint32_t lane = 0; lane < lanes; ++lane) at->flush(lane);
  if (held_.empty()) return TUTTI_OK;
  if (const Fault* few = faults_.strike(Kind::short_progress, {})) {
    const bool none = in_a_row_ < few->times && faults_.dice().below(2) == 0;
    in_a_row_ = none ? in_a_row_ + 1 : 0;
    capacity = std::min(capacity, none ? 0u : 1u);
  }
  const auto now = Clock::now();
  std::set<uint64_t> waiting;  // lanes of which an earlier completion is still held back
  for (auto held = held_.begin(); held != held_.end() && *n < capacity;) {
    if (held->due > now || held->due_poll > polls_ || waiting.contains(held->lane)) {
      waiting.insert(held->lane);
      ++held;
      continue;
    }
    Held& shown = shown_.emplace_back(std::move(*held));
    if (shown.completion.kind == TUTTI_COMPLETION_PEER_FAILED) breaking_.erase(shown.completion.peer);
    if (shown.completion.kind != TUTTI_COMPLETION_TRANSFER) shown.completion.data = shown.text.c_str();
    completions[(*n)++] = shown.completion;
    held = held_.erase(held);
  }
  return TUTTI_OK;
}

// One completion of the wrapped transport, put into the caller's terms.
void Endpoint::keep(const tutti_completion& completion) {
  Held held;
  held.completion = completion;
  if (completion.kind == TUTTI_COMPLETION_TRANSFER) {
    const auto found = records_.find(completion.cookie);
    if (found == records_.end())
      throw sdk::Error(TUTTI_INTERNAL, "the wrapped transport completes a transfer that was never posted");
    const Record record = std::move(found->second);
    records_.erase(found);
    if (record.silent) return;
    held.completion.cookie = record.cookie;
    held.lane = number_of(record.peer, record.lane, record.kind);
    if (completion.status == TUTTI_OK) hold_back(held, {record.peer, record.lane, completion.bytes, false});
  } else if (completion.kind == TUTTI_COMPLETION_CONTROL) {
    held.text.assign(static_cast<const char*>(completion.data), completion.bytes);
    held.lane = number_of(completion.peer, lanes, 0);
    hold_back(held, {completion.peer, lanes, completion.bytes, true});
  } else {
    held.text = completion.data ? static_cast<const char*>(completion.data) : "";
    held.lane = number_of(completion.peer, lanes, 1);
    release_all(completion.peer);
    breaking_.insert(completion.peer);
  }
  held_.push_back(std::move(held));
}

void Endpoint::hold_back(Held& held, const Occasion& occasion) {
  if (const Fault* delay = faults_.strike(Kind::delay, occasion))
    held.due = Clock::now() + std::chrono::microseconds(faults_.dice().below(delay->us + 1));
  if (const Fault* reorder = faults_.strike(Kind::reorder, occasion))
    held.due_poll = polls_ + faults_.dice().below(reorder->polls + 1);
}

void Endpoint::release_all(std::optional<uint32_t> peer) {
  for (Held& held : held_)
    if (!peer || held.lane >> 32 == *peer) held.due = {}, held.due_poll = 0;
}

void Endpoint::disconnect(uint32_t peer) {
  Interposer::Endpoint::fail_peer(peer);
  breaking_.insert(peer);
  release_all(peer);
  Held held;
  held.completion.kind = TUTTI_COMPLETION_PEER_FAILED;
  held.completion.peer = peer;
  held.text = "chaos disconnected rank " + std::to_string(rank) + " from rank " + std::to_string(peer) +
              " on purpose (fault disconnect)";
  held.lane = number_of(peer, lanes, 1);
  held_.push_back(std::move(held));
}

tutti_status Endpoint::fail_peer(uint32_t peer) {
  stopped_ = false;
  breaking_.erase(peer);
  release_all(peer);
  return Interposer::Endpoint::fail_peer(peer);
}

tutti_status Endpoint::abort() {
  stopped_ = false;
  breaking_.clear();
  release_all({});
  return Interposer::Endpoint::abort();
}

tutti_status Endpoint::arm() {
  if (std::exchange(restless_, false) || !held_.empty() || !late_.empty()) return TUTTI_AGAIN;
  return Interposer::Endpoint::arm();
}

}  // namespace tutti::chaos
