// SPDX-License-Identifier: Apache-2.0
#include "stream/windows.hpp"

#include <fmt/format.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <utility>

#include "base/failure.hpp"

namespace tutti::core {
namespace {

constexpr uint32_t bit(uint32_t buffer) { return 1u << buffer; }
constexpr uint32_t in_bit = bit(TUTTI_BUFFER_IN), out_bit = bit(TUTTI_BUFFER_OUT);

// Flags of the ways between two ranks.
uint64_t flags_bytes(uint64_t lanes) { return StreamChannel::flags_bytes(2 * lanes * Windows::most_messages); }

// In place the buffers of a rank are one. Names the one that decides whether the call uses windows.
WindowMessage canonical(const Plan& plan, uint32_t rank, WindowMessage message) {
  const Shape& shape = plan.shape;
  const uint32_t deciding = deciding_buffers(shape);
  const bool decides = deciding >> message.buffer & 1;
  // A gather's IN decides, and is only a block of what its root has.
  if (!shape.in_place || message.buffer == TUTTI_BUFFER_SCRATCH || !deciding || decides ||
      shape.collective == TUTTI_GATHER)
    return message;
  message.offset += block_in_place(shape.collective, rank, message.buffer) * shape.count * plan.element_bytes;
  message.buffer = deciding == in_bit ? TUTTI_BUFFER_IN : TUTTI_BUFFER_OUT;
  return message;
}

}  // namespace

uint64_t WindowPlaces::hash() const {
  uint64_t hash = 0;
  for (const WindowOffset& place : {in, out})
    for (const uint64_t part : {place.window ? place.window->id : 0, place.offset})
      hash = (hash ^ part) * 0x9e3779b97f4a7c15u + (hash >> 29);
  return hash;
}

uint32_t deciding_buffers(const Shape& shape) {
  switch (shape.collective) {
    case TUTTI_ALL_REDUCE:
    case TUTTI_ALL_TO_ALL:
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_ALL_GATHER:
      if (!shape.in_place) return in_bit | out_bit;
      return in_place_form(shape.collective) == InPlaceForm::in_is_block ? out_bit : in_bit;
    case TUTTI_BROADCAST:
      return out_bit;
    case TUTTI_REDUCE:
    case TUTTI_GATHER:
      return in_bit;
    default:  // scatter: the others read what only its root has
      return 0;
  }
}

std::vector<WindowMessage> window_messages(const StreamPlan& plan, const Topology& topology, uint32_t rank) {
  const uint32_t allowed = deciding_buffers(plan.plan.shape) | bit(TUTTI_BUFFER_SCRATCH);
  std::vector<WindowMessage> sent;
  for (const StreamStep& step : plan.steps) {
    const BoundStep& bound = plan.plan.lanes[step.lane][step.step];
    const Link* link = bound.out ? bound.out : bound.in;
    if (!link || topology.same_process(rank, link->peer)) continue;
    if (step.number >= Windows::most_messages)
      throw Failure(TUTTI_NOT_SUPPORTED,
                    fmt::format("the schedule has more than {} messages between ranks {} and {}, which is the most",
                                Windows::most_messages, rank, link->peer));
    if (!bound.out) continue;
    WindowMessage message{link->peer, step.lane, static_cast<uint32_t>(step.number), bound.src.buffer, 0, step.bytes};
    if (step.bytes)
      message.offset = piece_of(plan.plan, part_of(plan.plan, bound.src, step.part), step.slice).offset + step.offset;
    message = canonical(plan.plan, rank, message);
    if (step.bytes && !(allowed >> message.buffer & 1))
      throw Failure(TUTTI_NOT_SUPPORTED, "the schedule sends from a buffer that not every rank of the call has");
    sent.push_back(message);
  }
  return sent;
}

// ---- Exports and imports ----

Windows::Windows(const StreamSetup& setup, PeerMemory& memory, DeviceGate::User& gate)
    : setup_(setup), memory_(memory), gate_(gate), flags_(setup.topology->nranks()) {
  for (uint32_t r = 0; r < setup_.topology->nranks(); ++r)
    if (!setup_.is_local(r)) remote_.push_back(r);
  scratch_.of = next_.of = flags_;
}

std::string Windows::share(tutti_window& window, const Until& until) {
  const std::vector<uint64_t> bytes(setup_.topology->nranks(), window.bytes);
  Shared& made = windows_[window.id];
  const std::string why = exchange(window.address, bytes, "", until, &made);
  window.bases.assign(bytes.size(), nullptr);
  for (const uint32_t peer : remote_) window.bases[peer] = made.of[peer].device;
  return why;
}

void Windows::drop(tutti_window& window, const Until& until) {
  window.bases.clear();
  const auto found = windows_.find(window.id);
  if (found == windows_.end()) return;
  synchronise(until, [&] { close(found->second.of); });
  take_back(found->second);
  windows_.erase(found);
}

void Windows::synchronise(const Until& until, const std::function<void()>& body) {
  until([&] { return gate_.try_run(body); });
}

// Is the peer's link connected, or has it been refused? Both ends come to the same.
bool Windows::is_decided(uint32_t peer) {
  try {
    return !memory_.reaches(peer) || memory_.connect(peer);
  } catch (const Failure&) {
    if (memory_.reaches(peer)) throw;
    return true;
  }
}

// Every rank that has something to share shares it with every rank of another process, or declines: no rank waits for
// memory that does not come. `bytes`: by rank, what each shares, 0: nothing. `refusal`: why this rank has nothing to
// share.
std::string Windows::exchange(std::byte* address, const std::vector<uint64_t>& bytes, const std::string& refusal,
                              const Until& until, Shared* made) {
  const uint32_t number = ++exchanges_;
  std::string why = refusal;
  const auto attempt = [&why](const auto& body) {
    try {
      return body();
    } catch (const Failure& failure) {
      // A peer that declines says so itself.
      if (why.empty() && failure.status != PeerMemory::declined_status) why = failure.text;
      return true;
    }
  };
  made->of.assign(bytes.size(), {});
  until([this] { return std::ranges::all_of(remote_, [this](uint32_t peer) { return is_decided(peer); }); });
  std::vector<uint32_t> peers;
  for (const uint32_t peer : remote_)
    if (memory_.reaches(peer))
      peers.push_back(peer);
    else if (why.empty())
      why = fmt::format("the transport that maps memory of rank {} has been refused", peer);
  const uint64_t own = PeerMemory::tag(PeerMemory::window, setup_.rank, number);
  synchronise(until, [&] {
    for (const uint32_t peer : bytes[setup_.rank] ? peers : std::vector<uint32_t>())
      attempt([&] {
        if (refusal.empty())
          made->shares.push_back(memory_.share(peer, own, address, bytes[setup_.rank]));
        else
          memory_.decline(peer, own, refusal);
        return true;
      });
  });
  std::vector<uint32_t> unopened, without_flags;
  for (const uint32_t peer : peers) {
    if (bytes[peer]) unopened.push_back(peer);
    if (!flags_[peer]) without_flags.push_back(peer);
  }
  const auto open = [&](uint32_t peer) {
    const uint64_t tag = PeerMemory::tag(PeerMemory::window, peer, number);
    if (auto region = memory_.open(peer, tag, bytes[peer])) made->of[peer] = *region;
    return static_cast<bool>(made->of[peer]);
  };
  std::map<uint32_t, PeerRegion> coming;
  const auto advance = [&] {
    std::erase_if(unopened, [&](uint32_t peer) { return attempt([&] { return open(peer); }); });
    std::erase_if(without_flags,
                  [&](uint32_t peer) { return attempt([&] { return open_flags(peer, number, coming[peer]); }); });
  };
  try {
    until([&] { return gate_.try_run(advance) && unopened.empty() && without_flags.empty(); });
  } catch (...) {
    for (const auto& [peer, flags] : coming) memory_.take_back({flags}, nullptr);
    throw;
  }
  return why;
}

// The lower rank of two makes their flags. It has them once the other one has mapped them.
bool Windows::open_flags(uint32_t peer, uint32_t number, PeerRegion& coming) {
  const uint64_t tag = PeerMemory::tag(PeerMemory::window_flags, std::min(peer, setup_.rank), number);
  const uint64_t bytes = flags_bytes(setup_.lanes);
  if (peer < setup_.rank) {
    if (const auto opened = memory_.open(peer, tag, bytes)) flags_[peer] = *opened;
    return static_cast<bool>(flags_[peer]);
  }
  if (!coming) coming = memory_.share(peer, tag, nullptr, bytes);
  try {
    if (!memory_.has_mapped(coming)) return false;
  } catch (const Failure&) {
    memory_.take_back({std::exchange(coming, {})}, nullptr);
    throw;
  }
  flags_[peer] = std::exchange(coming, {});
  return true;
}

void Windows::close(std::vector<PeerRegion>& mappings) {
  for (PeerRegion& one : mappings) memory_.close(one);
}

void Windows::take_back(Shared& shared) {
  memory_.take_back(std::move(shared.shares), shared.own);
  shared.shares.clear();
  shared.own = nullptr;
}

// ---- Scratch ----

std::string Windows::offer_scratch(const std::vector<uint64_t>& bytes, const Until& until) {
  const tutti_device* memory = setup_.device.tables.memory;
  next_ = {};
  std::string why;
  if (const uint64_t mine = bytes[setup_.rank]) {
    void* made = nullptr;
    synchronise(until, [&] {
      if (memory->allocate(memory->self, setup_.device.device, mine, &made) < 0)
        why = fmt::format("device {}: no scratch of {} bytes: {}", memory->name, mine, take_plugin_error());
    });
    next_.own = static_cast<std::byte*>(made);
    next_.bytes = mine;
  }
  return exchange(next_.own, bytes, why, until, &next_);
}

// The scratch that has grown takes the place of the former.
void Windows::adopt_scratch(bool shared, const Until& until) {
  Shared former;
  former.of.resize(next_.of.size());
  if (shared) {
    if (next_.own) {
      std::swap(former.own, scratch_.own);
      former.shares = std::move(scratch_.shares);
      scratch_.own = next_.own;
      scratch_.bytes = next_.bytes;
      scratch_.shares = std::move(next_.shares);
    }
    for (const uint32_t peer : remote_)
      if (next_.of[peer]) former.of[peer] = std::exchange(scratch_.of[peer], next_.of[peer]);
  } else {
    former = std::move(next_);
  }
  next_ = {};
  next_.of.resize(scratch_.of.size());
  kept_.push_back(std::move(former));  // for close(), where the wait fails
  if (shared && keeps_) return;
  synchronise(until, [this] { close(kept_.back().of); });
  take_back(kept_.back());
  kept_.pop_back();
}

void Windows::close() {
  const auto end = [this](Shared& shared) {
    close(shared.of);
    take_back(shared);
  };
  for (auto& [id, shared] : windows_) end(shared);
  windows_.clear();
  for (Shared& shared : kept_) end(shared);
  kept_.clear();
  end(scratch_);
  end(next_);
  for (PeerRegion& flags : flags_) {
    if (flags.share) memory_.take_back({flags}, nullptr);
    memory_.close(flags);
    flags = {};
  }
}

// ---- Calls ----

StreamChannel& Windows::open(const StreamTraffic& way, std::unique_ptr<StreamChannel>& channel) const {
  const bool rises = way.outgoing == (setup_.rank < way.peer);
  if (!channel)
    channel = std::make_unique<WindowChannel>(flags_[way.peer], way.outgoing, (rises ? 0 : setup_.lanes) + way.lane);
  static_cast<WindowChannel&>(*channel).reserve(way.sizes.size());
  return *channel;
}

void* Windows::data(const StreamPlan& plan, const WindowPlaces& places, uint32_t way, uint64_t number) const {
  const StreamTraffic& traffic = plan.traffic[way];
  if (traffic.outgoing) return nullptr;
  const WindowMessage& message = plan.windows->incoming[way][number];
  if (!message.bytes) return nullptr;
  if (message.buffer == TUTTI_BUFFER_SCRATCH) return scratch_.of[traffic.peer].device + message.offset;
  const WindowPlaces::WindowOffset& place = message.buffer == TUTTI_BUFFER_IN ? places.in : places.out;
  return place.window->bases[traffic.peer] + place.offset + message.offset;
}

}  // namespace tutti::core
