// SPDX-License-Identifier: Apache-2.0
#include "link.hpp"

namespace tutti::shm {

using sdk::Socket;
using sdk::local::Descriptor;
using sdk::local::Reference;

tutti_status Link::send_region(uint32_t lane_number, tutti_region* handle, uint64_t offset, uint64_t bytes,
                               uint64_t& ticket) noexcept {
  Lane* lane = lane_of(lane_number);
  if (!lane || !handle) return TUTTI_INVALID_ARGUMENT;
  const Region& region = *reinterpret_cast<const Region*>(handle);
  if (!region.file) return TUTTI_NOT_SUPPORTED;
  if (bytes > slot_bytes() || bytes > region.bytes || offset > region.bytes - bytes || lane->reservation)
    return TUTTI_INVALID_ARGUMENT;
  if (!has_room(*lane, false)) return told() ? end_status() : TUTTI_AGAIN;
  if ((region.id >= offered_.size() || offered_[region.id] != region.generation) && !offer_region(region))
    return told() ? end_status() : TUTTI_AGAIN;
  Descriptor& d = lane->out->descriptors[lane->sent % sdk::local::kDepth];
  const RegionReference reference{region.id, region.generation, offset};
  std::memcpy(d.payload, &reference, sizeof reference);
  d.bytes.store(bytes, std::memory_order_relaxed);
  d.kind.store(sdk::local::kReference, std::memory_order_relaxed);
  sdk::local::order_stores();
  ticket = lane->sent;
  wait_for_credit(*lane);
  publish(*lane, d);
  return TUTTI_OK;
}

Reference Link::find(const uint8_t* payload, uint64_t bytes) noexcept {
  RegionReference reference;
  std::memcpy(&reference, payload, sizeof reference);
  ImportedRegions::Import* import = imports_.find(reference.id, reference.generation);
  if (!import) {  // the offer was sent before the message, so it is in the socket
    read_socket();
    import = imports_.find(reference.id, reference.generation);
  }
  if (!import || bytes > import->mapping->bytes() || reference.offset > import->mapping->bytes() - bytes)
    return corrupt("its ring is corrupt: a message outside of every region that it offered");
  import->views++;
  return {import->mapping->data() + reference.offset, &import->views};
}

bool Link::handle(sdk::Packet& packet) {
  if (const auto offer = packet.as<RegionOffer>(1))
    imports_.add(offer->id, offer->generation, packet.descriptors[0], offer->offset, offer->bytes);
  else if (const auto gone = packet.as<RegionGone>())
    imports_.remove(gone->id, gone->generation);
  else
    return false;
  return true;
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
  const Socket::Sent sent = socket().send(offer, {region.file.get()});
  socket_full_ = sent == Socket::kFull;
  if (sent == Socket::kGone) attention().sockets = true;  // its end of file is there to be read
  if (sent == Socket::kSent) offered_[region.id] = region.generation;
  return sent == Socket::kSent;
}

void Link::flush() noexcept {
  const uint64_t removals = domain_.removals();
  if (removals == removals_seen_ || state() != kOpen) return;
  for (uint32_t id = 0; id < offered_.size(); id++) {
    if (offered_[id] == 0 || domain_.generation(id) == offered_[id]) continue;
    RegionGone gone;
    gone.id = id;
    gone.generation = offered_[id];
    if (socket().send(gone) == Socket::kFull) return;  // the rest at the next call
    offered_[id] = 0;
  }
  removals_seen_ = removals;
}

}  // namespace tutti::shm
