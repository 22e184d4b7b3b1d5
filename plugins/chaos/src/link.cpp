// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "endpoint.hpp"

namespace tutti::chaos {
namespace {

constexpr uint64_t alignment = 64;

}  // namespace

Link::Link(Interposer::Endpoint& at, uint32_t to, tutti_link* inner)
    : Interposer::Link(at, to, inner), lanes_(at.lanes) {}

Endpoint& Link::chaos() const { return static_cast<Endpoint&>(endpoint); }

void Link::flip(char* data, uint64_t bytes) const {
  const uint64_t bit = chaos().faults_.dice().below(bytes * 8);
  data[bit / 8] = static_cast<char>(data[bit / 8] ^ (1 << bit % 8));
}

bool Link::may_leave(uint32_t number, uint64_t bytes, bool shown) {
  Endpoint& at = chaos();
  Lane& lane = lanes_[number];
  const Occasion occasion{peer, number, bytes, false};
  if (!lane.verdict) {
    Verdict& verdict = lane.verdict.emplace();
    if (const Fault* partial = at.faults_.strike(Kind::partial, occasion))
      verdict.refusals = 1 + at.faults_.dice().below(partial->times ? partial->times : 1);
    if (shown) {
      verdict.lose = at.faults_.strike(Kind::lose, occasion);
      verdict.corrupt = bytes && at.faults_.strike(Kind::corrupt, occasion);
      verdict.duplicate = at.faults_.strike(Kind::duplicate, occasion);
    }
    for (const auto& [struck, kind] :
         {std::pair{verdict.lose, Kind::lose}, {verdict.corrupt, Kind::corrupt}, {verdict.duplicate, Kind::duplicate}})
      if (struck) at.tell(kind, occasion);
    if (at.faults_.strike(Kind::disconnect, occasion)) {
      at.tell(Kind::disconnect, occasion);
      at.disconnect(peer);
    }
    if (at.faults_.strike(Kind::stop, occasion)) {
      at.tell(Kind::stop, occasion);
      at.stopped_ = true;
    }
  }
  if (at.stopped_ || at.breaking_.contains(peer)) return false;
  if (lane.verdict->refusals == 0) return true;
  --lane.verdict->refusals;
  at.restless_ = true;
  return false;
}

bool Link::flush(uint32_t number) {
  Lane& lane = lanes_[number];
  while (!lane.extras.empty()) {
    const auto& [bytes, mark] = lane.extras.front();
    bool taken = false;
    if (endpoint.wrapped().view) {
      void* room = Interposer::Link::try_reserve(number, bytes.size());
      if (room) {
        std::memcpy(room, bytes.data(), bytes.size());
        if (endpoint.wrapped().by_mark) Interposer::Link::set_mark(number, mark);
        Interposer::Link::commit(number, bytes.size());
        if (endpoint.wrapped().by_mark) Interposer::Link::set_mark(number, lane.mark);
        taken = true;
      }
    } else {
      tutti_transfer transfer{};
      transfer.link = sdk::to_handle<tutti_link>(static_cast<Interposer::Link*>(this));
      transfer.lane = number;
      transfer.kind = TUTTI_TRANSFER_SEND;
      transfer.bytes = bytes.size();
      transfer.mark = mark;
      const tutti_status status = chaos().forward(transfer, bytes, true);
      taken = status == TUTTI_OK;
      if (status < 0) lane.extras.clear();
    }
    if (!taken) {
      chaos().restless_ = true;
      return lane.extras.empty();
    }
    lane.extras.pop_front();
  }
  return true;
}

tutti_status Link::send_control(const void* data, uint64_t bytes) {
  Endpoint& at = chaos();
  if (at.stopped_ || at.breaking_.contains(peer)) return TUTTI_AGAIN;
  const Occasion occasion{.peer = peer, .lane = endpoint.lanes, .bytes = bytes, .control = true};
  if (at.faults_.strike(Kind::lose, occasion)) {
    at.tell(Kind::lose, occasion);
    return TUTTI_OK;
  }
  std::string copy(static_cast<const char*>(data), bytes);
  if (bytes && at.faults_.strike(Kind::corrupt, occasion)) {
    at.tell(Kind::corrupt, occasion);
    flip(copy.data(), copy.size());
  }
  const tutti_status status = Interposer::Link::send_control(copy.data(), bytes);
  if (status == TUTTI_OK && at.faults_.strike(Kind::duplicate, occasion)) {
    at.tell(Kind::duplicate, occasion);
    Interposer::Link::send_control(copy.data(), bytes);
  }
  return status;
}

const void* Link::try_receive(uint32_t number, uint64_t* bytes) noexcept {
  Endpoint& at = chaos();
  if (at.stopped_) return nullptr;
  const void* message = Interposer::Link::try_receive(number, bytes);
  if (!message) return nullptr;
  Lane& lane = lanes_[number];
  if (!lane.judged) {
    const Occasion occasion{peer, number, *bytes, false};
    lane.judged = true;
    lane.due = {};
    if (const Fault* delay = at.faults_.strike(Kind::delay, occasion))
      lane.due = Clock::now() + std::chrono::microseconds(at.faults_.dice().below(delay->us + 1));
    lane.polls_left = 0;
    if (const Fault* reorder = at.faults_.strike(Kind::reorder, occasion))
      lane.polls_left = at.faults_.dice().below(reorder->polls + 1);
    if (const Fault* hides = at.faults_.strike(Kind::short_progress, {}))
      lane.polls_left += at.faults_.dice().below(hides->times + 1);
  }
  const bool waits = lane.polls_left != 0 || (lane.due != Clock::time_point() && Clock::now() < lane.due);
  if (lane.polls_left) --lane.polls_left;
  if (!waits) return message;
  at.restless_ = true;
  return nullptr;
}

void Link::release(uint32_t number) noexcept {
  lanes_[number].judged = false;
  Interposer::Link::release(number);
}

void* Link::try_reserve(uint32_t number, uint64_t bytes) noexcept {
  Lane& lane = lanes_[number];
  if (!flush(number) || !may_leave(number, bytes, true)) return nullptr;
  if (!lane.verdict->lose) return Interposer::Link::try_reserve(number, bytes);
  lane.lost.resize(bytes + alignment);
  void* room = lane.lost.data();
  size_t space = lane.lost.size();
  return std::align(alignment, bytes, room, space);
}

void Link::commit(uint32_t number, uint64_t bytes) noexcept {
  Lane& lane = lanes_[number];
  const Verdict verdict = lane.verdict.value_or(Verdict{});
  lane.verdict.reset();
  if (verdict.lose) return;
  // Asked again before commit a transport shows the same room.
  if (verdict.corrupt || verdict.duplicate) {
    auto* room = static_cast<char*>(Interposer::Link::try_reserve(number, bytes));
    if (verdict.duplicate) lane.extras.push_back({{room, room + bytes}, lane.mark});
    if (verdict.corrupt) flip(room, bytes);
  }
  Interposer::Link::commit(number, bytes);
  if (verdict.duplicate) flush(number);
}

tutti_status Link::send_region(uint32_t number, tutti_region* region, uint64_t offset, uint64_t bytes,
                               uint64_t* ticket) noexcept {
  if (!may_leave(number, bytes, false)) return TUTTI_AGAIN;
  const tutti_status status = Interposer::Link::send_region(number, region, offset, bytes, ticket);
  if (status == TUTTI_OK) lanes_[number].verdict.reset();
  return status;
}

void Link::set_mark(uint32_t number, uint32_t mark) noexcept {
  lanes_[number].mark = mark;
  Interposer::Link::set_mark(number, mark);
}

}  // namespace tutti::chaos
