// SPDX-License-Identifier: Apache-2.0
#include "link.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::cuda_ipc {
namespace {

const Device& device_for(const tutti_mapped_device& given) {
  const Device* device = device_of_kind(given.kind);
  if (!device) throw sdk::error(TUTTI_NOT_SUPPORTED, "cuda-ipc: no device of kind {} exports memory here", given.kind);
  if (given.device >= device->caps.devices)
    throw sdk::error(TUTTI_INVALID_ARGUMENT, "cuda-ipc: device {} {} of {}", device->name(), given.device,
                     device->caps.devices);
  return *device;
}

uint64_t whole_pages(uint64_t bytes) { return (bytes + sdk::local::kPage - 1) / sdk::local::kPage * sdk::local::kPage; }

}  // namespace

void Mapping::unmap() {
  pages.reset();
  if (base && offer.process != this_process() && device->memory->close_import(device->memory->self, base) < 0)
    sdk::log(TUTTI_LOG_WARN, fmt::format("device {}: memory of a peer cannot be unmapped", device->name()));
  base = nullptr;
  mapped = false;
}

// ---- shares: offers of this rank

Share* Link::share(const tutti_share_config& config, tutti_mapped_place& place) {
  if (state() != kOpen)
    throw sdk::error(TUTTI_PEER_FAILED, "cuda-ipc: the link to rank {} has ended: {}", peer(), why());
  if (!config.device || config.bytes == 0)
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, "cuda-ipc: sharing nothing, or for no device");
  for (const auto& other : shares_)
    if (other->exported->offer.tag == config.tag && !other->withdrawn)
      throw sdk::error(TUTTI_INVALID_ARGUMENT, "cuda-ipc: tag {} is shared already", config.tag);
  const tutti_mapped_device whose = sdk::accepted(config.device);
  const Device& device = device_for(whose);
  auto made = std::make_unique<Share>();
  made->link = this;
  if (config.address) {
    made->exported = export_device_memory(device, config.address, config.bytes);
    place.device = config.address;
  } else {
    made->exported = std::make_shared<Exported>();
    made->exported->offer.bytes = config.bytes;
    make_host_share(*made, device);
    place.device = made->pages->seen();
    place.host = made->pages->host();
  }
  place.bytes = config.bytes;
  made->exported->offer.tag = config.tag;
  tell(made->exported->offer, made->exported);
  if (const auto at = std::ranges::find(declined_, config.tag, &Declined::tag); at != declined_.end()) {
    made->refuse(at->status, text_of(at->why));
    declined_.erase(at);
  }
  return shares_.emplace_back(std::move(made)).get();
}

void Link::make_host_share(Share& share, const Device& device) {
  Offer& offer = share.exported->offer;
  share.exported->file = sdk::local::make_memory_file("tutti-cuda-ipc-share", whole_pages(offer.bytes));
  share.pages = std::make_unique<VisiblePages>(device, share.exported->file, whole_pages(offer.bytes));
  offer.use = Offer::kHostMemory;
  put_text(offer.device, device.name());
  offer.id = next_id();
  offer.process = this_process();
  offer.address = reinterpret_cast<uint64_t>(share.pages->host());
  offer.seen = reinterpret_cast<uint64_t>(share.pages->seen());
}

tutti_status Link::share_state(Share& share) {
  if (share.state == Share::kMapped && !peer_has_let_go()) return TUTTI_OK;
  if (share.state == Share::kRefused)
    throw sdk::error(share.refusal, "cuda-ipc: rank {} cannot map this rank's memory: {}", peer(), share.why);
  if (state() == kOpen) return look_again();
  throw sdk::error(TUTTI_PEER_FAILED, "cuda-ipc: rank {}: {}", peer(), why());
}

tutti_status Link::withdraw(Share& share) {
  if (!share.withdrawn) tell(Gone{.id = share.exported->offer.id});
  share.withdrawn = true;
  // kOffered: the peer may be about to map it, so its answer to Gone is waited for.
  const bool let_go = peer_has_let_go() || share.state == Share::kUnmapped || share.state == Share::kRefused;
  if (!let_go && (state() == kOpen || end_status() == TUTTI_ABORTED)) return look_again();
  if (!let_go) (void)share.pages.release();
  std::erase_if(shares_, [&](const auto& one) { return one.get() == &share; });
  if (let_go) return TUTTI_OK;
  throw sdk::error(TUTTI_PEER_FAILED, "cuda-ipc: rank {} may still address shared memory: {}", peer(), why());
}

// ---- mappings: offers of the peer

Mapping* Link::open_mapping(uint64_t tag, const tutti_mapped_device& whose, tutti_mapped_place& place) {
  Mapping* found = nullptr;
  for (const auto& mapping : mappings_)
    if (mapping->offer.tag == tag && !mapping->mapped) found = mapping.get();
  if (!found) {
    device_for(whose);
    if (const auto at = std::ranges::find(declined_, tag, &Declined::tag); at != declined_.end()) {
      const Declined declined = *at;
      declined_.erase(at);
      throw sdk::error(declined.status, "cuda-ipc: rank {} declined: {}", peer(), text_of(declined.why));
    }
    if (state() == kOpen) return look_again(), nullptr;
    throw sdk::error(TUTTI_PEER_FAILED, "cuda-ipc: rank {} shares nothing as tag {}: {}", peer(), tag, why());
  }
  const Offer& offer = found->offer;
  try {
    found->device = &device_for(whose);
    if (offer.use == Offer::kHostMemory) {
      map_host_share(*found, *found->device);
      place.host = found->pages ? found->pages->host() : reinterpret_cast<uint8_t*>(offer.address);
      place.device = found->pages ? found->pages->seen() : reinterpret_cast<uint8_t*>(offer.seen);
    } else {
      found->base = map_offer(offer, found->file.get(), *found->device, whose.device);
      place.device = static_cast<uint8_t*>(found->base) + offer.record.offset;
    }
  } catch (const sdk::Error& e) {
    answer(offer.id, e.status(), e.what());
    const sdk::Error told =
        sdk::error(e.status(), "memory of rank {} cannot be mapped: cuda-ipc: {}", peer(), e.what());
    std::erase_if(mappings_, [&](const auto& one) { return one.get() == found; });
    throw told;
  }
  place.bytes = offer.bytes;
  found->file.reset();
  found->mapped = true;
  answer(offer.id, TUTTI_OK, "");
  return found;
}

void Link::map_host_share(Mapping& mapping, const Device& device) {
  const Offer& offer = mapping.offer;
  require_device(offer, device);
  if (offer.process == this_process()) return;
  mapping.pages = std::make_unique<VisiblePages>(device, mapping.file, whole_pages(offer.bytes));
}

void Link::close_mapping(Mapping& mapping) {
  mapping.unmap();
  answer(mapping.offer.id, Answer::kUnmapped, "");
  std::erase_if(mappings_, [&](const auto& one) { return one.get() == &mapping; });
}

void Link::decline(uint64_t tag, tutti_status status, const char* why) {
  if (state() != kOpen)
    throw sdk::error(TUTTI_PEER_FAILED, "cuda-ipc: the link to rank {} has ended: {}", peer(), this->why());
  if (status >= 0)
    throw sdk::error(TUTTI_INVALID_ARGUMENT, "cuda-ipc: decline with status {}, expected an error", status);
  std::erase_if(mappings_, [&](const auto& one) { return one->offer.tag == tag && !one->mapped; });
  Declined declined{.status = status, .tag = tag};
  put_text(declined.why, why ? why : "");
  tell(declined);
}

// ---- the line

Link::~Link() {
  for (auto& mapping : mappings_) mapping->unmap();
  flush();
}

template <typename T>
void Link::tell(const T& packet, std::shared_ptr<Exported> with) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof packet <= sdk::Packet::kMaxPayload);
  packets_.push_back({std::string(reinterpret_cast<const char*>(&packet), sizeof packet), std::move(with)});
  flush();
}

void Link::answer(uint64_t id, int32_t status, const char* why) {
  Answer answer;
  answer.id = id;
  answer.status = status;
  put_text(answer.why, why);
  tell(answer);
}

void Link::flush() noexcept {
  if (!line()) packets_.clear();
  for (; !packets_.empty(); packets_.pop_front()) {
    const auto& [bytes, with] = packets_.front();
    const int fd = with ? with->file.get() : -1;
    if (line().send_bytes(bytes, std::span(&fd, fd < 0 ? 0 : 1)) == sdk::Socket::kFull) return;
    if (with) with->file.reset();  // the peer has its own
  }
}

bool Link::handle(sdk::Packet& packet) {
  if (const auto offer = packet.as<Offer>(packet.descriptor_count))
    handle_offer(*offer, packet);
  else if (const auto gone = packet.as<Gone>())
    handle_gone(*gone);
  else if (const auto answer = packet.as<Answer>())
    handle_answer(*answer);
  else if (const auto declined = packet.as<Declined>())
    handle_declined(*declined);
  else
    return false;
  return true;
}

// A peer's offer is kept until open_mapping asks for its tag.
void Link::handle_offer(const Offer& offer, sdk::Packet& packet) {
  check_offer(offer);
  sdk::FileDescriptor file = packet.descriptor_count > 0 ? std::move(packet.descriptors[0]) : sdk::FileDescriptor();
  auto mapping = std::make_unique<Mapping>();
  mapping->link = this;
  mapping->offer = offer;
  mapping->file = std::move(file);
  mappings_.push_back(std::move(mapping));
}

// A share that is mapped is answered when the caller closes the mapping.
void Link::handle_gone(const Gone& gone) {
  if (std::erase_if(mappings_, [&](const auto& m) { return m->offer.id == gone.id && !m->mapped; }) > 0)
    answer(gone.id, Answer::kUnmapped, "");
}

void Link::handle_answer(const Answer& answer) {
  if (answer.status > Answer::kUnmapped) throw sdk::error(TUTTI_MISMATCH, "its answer has status {}", answer.status);
  for (const auto& share : shares_) {
    if (share->exported->offer.id != answer.id) continue;
    share->state = answer.status == 0                   ? Share::kMapped
                   : answer.status == Answer::kUnmapped ? Share::kUnmapped
                                                        : Share::kRefused;
    share->refusal = answer.status;
    share->why = text_of(answer.why);
  }
}

void Link::handle_declined(const Declined& declined) {
  if (declined.status >= 0) throw sdk::error(TUTTI_MISMATCH, "it declined with status {}", declined.status);
  for (const auto& share : shares_)
    if (share->exported->offer.tag == declined.tag && !share->withdrawn &&
        (share->state == Share::kOffered || share->state == Share::kUnmapped))
      return share->refuse(declined.status, text_of(declined.why));
  declined_.push_back(declined);
}

}  // namespace tutti::cuda_ipc
