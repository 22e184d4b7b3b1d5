// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <unistd.h>

#include <atomic>
#include <mutex>

namespace tutti::cuda_ipc {

const sdk::Token& this_process() {
  static std::mutex mutex;
  static pid_t drawn_by = 0;
  static sdk::Token token;
  const std::lock_guard lock(mutex);
  if (drawn_by != getpid()) token = sdk::random_token();
  drawn_by = getpid();
  return token;
}

uint64_t next_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

std::shared_ptr<Exported> export_device_memory(const Device& device, void* address, uint64_t bytes) {
  const tutti_device* memory = device.memory;
  tutti_pointer pointer{};
  pointer.struct_size = sizeof pointer;
  check(device, "classify", memory->classify(memory->self, address, &pointer));
  const auto begin = reinterpret_cast<uint64_t>(address), base = reinterpret_cast<uint64_t>(pointer.base);
  if (pointer.kind != device.caps.memory_kind || bytes == 0 || begin < base || begin - base > pointer.bytes ||
      bytes > pointer.bytes - (begin - base))
    throw sdk::error(TUTTI_INVALID_ARGUMENT, "cuda-ipc: the {} bytes at {} are not in one allocation of device {}",
                     bytes, begin, device.name());
  auto exported = std::make_shared<Exported>();
  Offer& offer = exported->offer;
  int32_t fd = -1;
  check(device, "export_memory", memory->export_memory(memory->self, address, &offer.record, &fd));
  exported->file = sdk::FileDescriptor(fd);
  offer.use = Offer::kDeviceMemory;
  put_text(offer.device, device.name());
  offer.device_number = pointer.device;
  offer.id = next_id();
  offer.process = this_process();
  offer.address = base;
  offer.bytes = bytes;
  return exported;
}

void check_offer(const Offer& offer) {
  constexpr uint64_t most_shared = uint64_t{1} << 48;  // sizes below cannot overflow
  const tutti_memory_export& record = offer.record;
  const bool on_device = offer.use == Offer::kDeviceMemory;
  if ((!on_device && offer.use != Offer::kHostMemory) || offer.bytes == 0 || offer.bytes > most_shared ||
      (on_device && (record.offset > record.bytes || offer.bytes > record.bytes - record.offset)))
    throw sdk::Error(TUTTI_MISMATCH, "it offered invalid memory");
}

void require_device(const Offer& offer, const Device& device) {
  if (const std::string theirs = text_of(offer.device); theirs != device.name())
    throw sdk::error(TUTTI_MISMATCH, "it is memory for a device {}, not {}", theirs, device.name());
}

void* map_offer(const Offer& offer, int file, const Device& device, uint32_t number) {
  require_device(offer, device);
  if (offer.process == this_process()) {
    if (offer.device_number != number)
      check(device, "enable_peer", device.memory->enable_peer(device.memory->self, number, offer.device_number));
    return reinterpret_cast<void*>(offer.address);
  }
  void* base = nullptr;
  check(device, "import_memory", device.memory->import_memory(device.memory->self, number, &offer.record, file, &base));
  return base;
}

}  // namespace tutti::cuda_ipc
