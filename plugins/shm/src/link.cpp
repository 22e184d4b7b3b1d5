// SPDX-License-Identifier: Apache-2.0
#include "link.hpp"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <system_error>
#include <tutti/sdk/system_text.hpp>
#include <tutti/sdk/token.hpp>

namespace tutti::shm {

using sdk::Packet;
using sdk::Socket;
using sdk::local::Descriptor;
using sdk::local::Reference;

namespace {

uint64_t random_word() {
  std::array<uint8_t, sizeof(uint64_t)> bytes;
  sdk::fill_random(bytes);
  return std::bit_cast<uint64_t>(bytes);
}

// Says once in a process why messages of ordinary memory are copied twice.
void tell_detour(const std::string& why) {
  static std::atomic<bool> told{false};
  if (!told.exchange(true))
    sdk::log(TUTTI_LOG_INFO, "messages are copied through shared memory instead of out of the other process "
                             "(process_vm_readv): " + why);
}

}  // namespace

Link::Link(Parts parts, Domain& domain)
    : LinkBase(std::move(parts)),
      domain_(domain),
      removals_seen_(domain.removals()),
      peer_memory_(line().process(), lanes(), slot_bytes()),
      probed_word_(random_word()),
      probe_waits_(domain.copies_directly()) {
  if (!domain.copies_directly()) tell_detour("TUTTI_SHM_DIRECT_COPY=0");
}

tutti_status Link::send_region(uint32_t lane_number, tutti_region* handle, uint64_t offset, uint64_t bytes,
                               uint64_t& ticket) noexcept {
  Lane* lane = lane_of(lane_number);
  if (!lane || !handle) return TUTTI_INVALID_ARGUMENT;
  const Region& region = *reinterpret_cast<const Region*>(handle);
  if (!region.file && !(region.all && peer_reads_)) return TUTTI_NOT_SUPPORTED;
  if (bytes > slot_bytes() || bytes > region.bytes || offset > region.bytes - bytes || lane->reservation)
    return TUTTI_INVALID_ARGUMENT;
  if (!has_room(*lane, false)) return told() ? end_status() : TUTTI_AGAIN;
  RegionReference reference{region.id, region.generation, offset};
  if (const tutti_status status = refer(region, offset, bytes, reference); status != TUTTI_OK) return status;
  Descriptor& d = lane->out->descriptors[lane->sent % sdk::local::kDepth];
  std::memcpy(d.payload, &reference, sizeof reference);
  d.bytes.store(static_cast<uint32_t>(bytes), std::memory_order_relaxed);
  d.mark.store(lane->mark, std::memory_order_relaxed);
  d.kind.store(sdk::local::kReference, std::memory_order_relaxed);
  sdk::local::order_stores();
  ticket = lane->sent;
  wait_for_credit(*lane);
  publish(*lane, d);
  return TUTTI_OK;
}

tutti_status Link::refer(const Region& region, uint64_t offset, uint64_t bytes, RegionReference& reference) noexcept {
  if (region.all) {
    reference = {RegionReference::in_process, 0, offset};
    return bytes == 0 || peer_memory_.is_own() || can_be_fetched(offset, bytes) ? TUTTI_OK : TUTTI_NOT_SUPPORTED;
  }
  const bool known = region.id < offered_.size() && offered_[region.id] == region.generation;
  return known || offer_region(region) ? TUTTI_OK : told() ? end_status() : TUTTI_AGAIN;
}

Reference Link::find(const uint8_t* payload, uint64_t bytes, uint32_t lane, void* room) noexcept {
  RegionReference reference;
  std::memcpy(&reference, payload, sizeof reference);
  if (reference.id == RegionReference::in_process && domain_.copies_directly()) {
    if (const void* data = bytes ? peer_memory_.fetch(lane, reference.offset, bytes, room) : payload) return {data};
    if (state() == kGone) return corrupt(why());
    const int error = errno;
    try {
      return corrupt(
          fmt::format("{} bytes of its memory at {:#x} cannot be read: {}; set TUTTI_SHM_DIRECT_COPY=0 to copy them "
                      "through shared memory",
                      bytes, reference.offset, std::generic_category().message(error)));
    } catch (const std::exception&) {
      return corrupt("its memory cannot be read");
    }
  }
  ImportedRegions::Import* import = imports_.find(reference.id, reference.generation);
  if (!import) {  // the offer was sent before the message, so it is on the line
    read_line();
    import = imports_.find(reference.id, reference.generation);
  }
  if (!import || bytes > import->mapping->bytes() || reference.offset > import->mapping->bytes() - bytes)
    return corrupt("its ring is corrupt: a message outside of every region that it offered");
  import->views++;
  return {import->mapping->data() + reference.offset, &import->views};
}

bool Link::handle(Packet& packet) {
  if (const auto offer = packet.as<RegionOffer>(1))
    imports_.add(offer->id, offer->generation, packet.descriptors[0], offer->offset, offer->bytes);
  else if (const auto gone = packet.as<RegionGone>())
    imports_.remove(gone->id, gone->generation);
  else if (const auto probe = packet.as<Probe>())
    try_to_read(*probe);
  else if (packet.as<Readable>())
    peer_reads_ = true;
  else
    return false;
  return true;
}

void Link::try_to_read(const Probe& probe) {
  if (!domain_.copies_directly()) return;
  readable_waits_ = peer_memory_.has(probe.address, probe.value);
  if (!readable_waits_)
    tell_detour(fmt::format("rank {}'s memory cannot be read: {} (kernel.yama.ptrace_scope, another user or process "
                            "namespace, or a container may be in the way)",
                            peer(), system_text(errno)));
}

bool Link::offer_region(const Region& region) noexcept {
  try {
    if (region.id >= offered_.size()) offered_.resize(region.id + 1);
  } catch (const std::bad_alloc&) {
    return false;
  }
  RegionOffer offer;
  offer.id = region.id;
  offer.generation = region.generation;
  offer.offset = region.file_offset;
  offer.bytes = region.bytes;
  const Socket::Sent sent = line().send(offer, {region.file.get()});
  line_full_ = sent == Socket::kFull;
  if (sent == Socket::kGone) attention().lines = true;  // its end of file is there to be read
  if (sent == Socket::kSent) offered_[region.id] = region.generation;
  return sent == Socket::kSent;
}

template <typename T>
bool Link::tell(const T& packet) noexcept {
  const Socket::Sent sent = line().send(packet);
  line_full_ = sent == Socket::kFull;
  return !line_full_;
}

void Link::flush() noexcept {
  if (state() != kOpen) return;
  if (probe_waits_) {
    Probe probe;
    probe.address = reinterpret_cast<uint64_t>(&probed_word_);
    probe.value = probed_word_;
    probe_waits_ = !tell(probe);
  }
  if (readable_waits_) readable_waits_ = !tell(Readable());
  const uint64_t removals = domain_.removals();
  if (removals == removals_seen_) return;
  for (uint32_t id = 0; id < offered_.size(); id++) {
    if (offered_[id] == 0 || domain_.generation(id) == offered_[id]) continue;
    RegionGone gone;
    gone.id = id;
    gone.generation = offered_[id];
    if (!tell(gone)) return;  // the rest at the next call
    offered_[id] = 0;
  }
  removals_seen_ = removals;
}

}  // namespace tutti::shm
