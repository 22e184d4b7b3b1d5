// SPDX-License-Identifier: Apache-2.0
#include "devices.hpp"

#include <algorithm>
#include <deque>
#include <mutex>
#include <tutti/sdk/words.hpp>

namespace tutti::cuda_ipc {
namespace {

std::mutex mutex;
std::deque<Device>& found() {  // only grows, so that what was given out stays
  static auto* all = new std::deque<Device>();
  return *all;
}

// The device, if it can serve here and export memory.
void take(const tutti_device* memory) {
  if (memory->stamp != TUTTI_DEVICE_STAMP) {
    sdk::log(TUTTI_LOG_WARN, "a device plugin that was compiled with other headers is not used");
    return;
  }
  tutti_device_caps caps{};
  caps.struct_size = sizeof caps;
  if (!TUTTI_HAS(tutti_device, memory, export_memory) || memory->query(memory->self, &caps) < 0) return;
  if (!(caps.flags & TUTTI_DEVICE_EXPORTS) || caps.devices == 0) return;
  const std::lock_guard lock(mutex);
  for (const Device& known : found())
    if (known.memory == memory) return;
  found().push_back({memory, caps});
}

}  // namespace

void find_devices() {
  const tutti_host* host = sdk::host;
  if (!TUTTI_HAS(tutti_host, host, list_interface)) return;
  for (uint32_t index = 0;; ++index) {
    const void* table = host->list_interface(host->self, TUTTI_DEVICE_ID, index);
    if (!table) return;
    take(static_cast<const tutti_device*>(table));
  }
}

bool has_devices() {
  const std::lock_guard lock(mutex);
  return !found().empty();
}

const Device* device_of_kind(uint32_t kind) {
  const std::lock_guard lock(mutex);
  for (const Device& device : found())
    if (device.caps.memory_kind == kind) return &device;
  return nullptr;
}

void check(const Device& device, const char* what, tutti_status status) {
  if (status >= 0) return;
  const std::string why = sdk::reported();
  throw sdk::error(status, "device {}: {}: {}", device.name(), what,
                   why.empty() ? fmt::format("status {}", status) : why);
}

sdk::local::Settings read_settings() {
  constexpr const char* slot_bytes = "TUTTI_CUDA_IPC_SLOT_BYTES";
  const sdk::local::Settings settings{
      .slot_bytes = sdk::config_number(slot_bytes, 256 << 10, 4096, 16 << 20), .slots = 4, .stream_bytes = UINT64_MAX};
  if (settings.slot_bytes % sdk::local::kPage != 0)
    throw sdk::error(TUTTI_INVALID_ARGUMENT, "{}={} is not a multiple of {}", slot_bytes, settings.slot_bytes,
                     sdk::local::kPage);
  return settings;
}

std::vector<sdk::local::EqualValue> Domain::equal_values() const {
  return {{"TUTTI_CUDA_IPC_SLOT_BYTES", settings_.slot_bytes}};
}

namespace {
const sdk::FileDescriptor& checked(const sdk::FileDescriptor& file, uint64_t bytes) {
  sdk::local::check_memory_file(file.get(), bytes, "the file of shared host memory");
  return file;
}
}  // namespace

VisiblePages::VisiblePages(const Device& device, const sdk::FileDescriptor& file, uint64_t bytes)
    : device_(device), pages_(checked(file, bytes).get(), 0, bytes, true) {
  check(device, "map_host", device.memory->map_host(device.memory->self, pages_.data(), pages_.bytes(), &seen_));
}
VisiblePages::~VisiblePages() { device_.memory->unmap_host(device_.memory->self, pages_.data()); }

}  // namespace tutti::cuda_ipc
