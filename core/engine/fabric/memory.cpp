// SPDX-License-Identifier: Apache-2.0
#include "engine/fabric/memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <tutti/registry.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>
#include <tuple>
#include <tutti/base/file_descriptor.hpp>
#include <tutti/base/system_text.hpp>
#include <tutti/base/text.hpp>
#include <tutti/base/unnamed_file.hpp>
#include <utility>
#include <vector>

#include "base/failure.hpp"
#include "registry/host.hpp"

namespace tutti::core {
namespace {

constexpr uint64_t page = 4096;

std::string errno_text() { return system_text(errno); }

// A transport's domain of a device. Its mutex is held while it is opened, which may take long.
struct DomainSlot {
  std::mutex mutex;
  std::weak_ptr<Domain> domain;
};

DomainSlot& domain_slot(const tutti_transport* api, const DeviceMemory& device) {
  static std::mutex mutex;
  static auto* slots = new std::map<std::tuple<const tutti_transport*, const tutti_device*, uint32_t>, DomainSlot>();
  const std::lock_guard lock(mutex);
  return (*slots)[{api, device.tables.memory, device.device}];
}

}  // namespace

std::shared_ptr<Domain> Domain::of(const tutti_transport* api, const DeviceMemory& device) {
  DomainSlot& slot = domain_slot(api, device);
  const std::lock_guard lock(slot.mutex);
  if (auto domain = slot.domain.lock()) return domain;
  auto domain = std::make_shared<Domain>(api, device);
  slot.domain = domain;
  return domain;
}

Domain::Domain(const tutti_transport* api, const DeviceMemory& device) : api_(api) {
  tutti_domain_config config{};
  config.struct_size = sizeof config;
  config.device_kind = TUTTI_MEMORY_HOST;
  const std::string pci = facts_of(device).pci;
  if (device) {
    config.device_kind = caps_of(device.tables).memory_kind;
    config.device = device.device;
    config.device_pci = pci.empty() ? nullptr : pci.c_str();
  }
  const tutti_status status = api->open_domain(api->self, &config, &handle_);
  if (status < 0) throw Failure(status, take_plugin_error());
}

tutti_region* Domain::all_memory() {
  std::call_once(asked_for_all_, [this] {
    const tutti_memory all{sizeof all, TUTTI_MEMORY_HOST, nullptr, UINT64_MAX, -1, 0, 0};
    if (!TUTTI_HAS(tutti_transport, api_, register_memory) || api_->register_memory(handle_, &all, &all_) >= 0) return;
    take_plugin_error();
    all_ = nullptr;
  });
  return all_;
}

Domain::~Domain() {
  Memory::process().forget(*this);
  if (all_) api_->deregister_memory(handle_, all_);
  api_->close_domain(handle_);
}

namespace {

// A file of zeroes of which other processes of the host can map parts; empty: the system refuses it, and `why` has its
// words.
FileDescriptor make_memory_file(uint64_t bytes, std::string& why) {
  rlimit largest{};  // making a file larger than this would end the process by SIGXFSZ
  if (getrlimit(RLIMIT_FSIZE, &largest) == 0 && bytes > largest.rlim_cur) {
    why = fmt::format("the largest file that this process may make has {} bytes (ulimit -f)", largest.rlim_cur);
    return {};
  }
  FileDescriptor file(make_unnamed_file("tutti"));
  if (file && fchmod(file.get(), S_IRUSR | S_IWUSR) == 0 && ftruncate(file.get(), static_cast<off_t>(bytes)) == 0 &&
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
    return file;
  why = "memfd_create: " + errno_text();
  return {};
}

}  // namespace

Memory& Memory::process() {
  static auto* memory = new Memory();  // never destroyed: plugins may ask for it until the very end
  return *memory;
}

void* Memory::allocate(uint64_t bytes) {
  if (bytes > (uint64_t{1} << 46))
    throw Failure(TUTTI_INVALID_ARGUMENT, fmt::format("tutti_mem_alloc: {} bytes is more than any machine has", bytes));
  const uint64_t rounded = bytes == 0 ? page : (bytes + page - 1) / page * page;
  std::string why;
  FileDescriptor file = make_memory_file(rounded, why);
  if (!file)
    log(TUTTI_LOG_INFO, "memory",
        fmt::format("{} bytes are not in a memory file ({}): other processes cannot map them, and messages are copied",
                    rounded, why));
  void* address =
      mmap(nullptr, rounded, PROT_READ | PROT_WRITE, file ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS, file.get(), 0);
  if (address == MAP_FAILED)
    throw Failure(TUTTI_NO_RESOURCES, fmt::format("tutti_mem_alloc: cannot map {} bytes: {}", rounded, errno_text()));
  const std::lock_guard lock(mutex_);
  Range& range = ranges_[static_cast<std::byte*>(address)];
  range.bytes = rounded;
  range.fd = file.release();
  range.ours = true;
  changed();
  return address;
}

namespace {

// "" when [address, address + bytes) is a shared mapping of fd at fd_offset; else what it is. Other ranks map the
// descriptor: were it not the same memory, they would read something else.
std::string mapping_differs(const std::byte* address, uint64_t bytes, int fd, uint64_t fd_offset) {
  struct stat file {};
  if (fstat(fd, &file) != 0) return "the descriptor cannot be examined: " + errno_text();
  if (fd_offset > static_cast<uint64_t>(file.st_size) || bytes > static_cast<uint64_t>(file.st_size) - fd_offset)
    return fmt::format("the descriptor has {} bytes, too few for {} at offset {}", file.st_size, bytes, fd_offset);
  const auto first = reinterpret_cast<uint64_t>(address);
  uint64_t covered = first;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; covered < first + bytes && std::getline(maps, line);) {
    // "7f2a40000000-7f2a40001000 rw-s 00000000 00:01 4711     /memfd:scratch (deleted)"
    uint64_t begin = 0, end = 0, offset = 0, inode = 0;
    unsigned major_number = 0, minor_number = 0;
    std::string_view rest = line;
    if (!take_number(rest, begin, 16) || !take_word(rest, "-") || !take_number(rest, end, 16) || rest.size() < 6) continue;
    const bool shared = rest[4] == 's';
    rest.remove_prefix(6);
    if (!take_number(rest, offset, 16) || !take_word(rest, " ") || !take_number(rest, major_number, 16) ||
        !take_word(rest, ":") || !take_number(rest, minor_number, 16) || !take_word(rest, " ") ||
        !take_number(rest, inode))
      continue;
    if (end <= covered || begin > covered) continue;
    if (!shared) return "it is not a shared mapping (MAP_SHARED)";
    if (inode != file.st_ino || offset + (covered - begin) != fd_offset + (covered - first))
      return fmt::format("it is a mapping of another file or of another offset than {}", fd_offset);
    covered = end;
  }
  return covered >= first + bytes ? std::string() : "it is not mapped to its end";
}

}  // namespace

void Memory::add(void* address, uint64_t bytes, int fd, uint64_t fd_offset) {
  if (!address || bytes == 0 || fd < 0)
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  fmt::format("tutti_mem_register: expected memory and its descriptor, got address {}, {} bytes, fd {}",
                              address, bytes, fd));
  if (const std::string why = mapping_differs(static_cast<std::byte*>(address), bytes, fd, fd_offset); !why.empty())
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  fmt::format("tutti_mem_register: {} ({} bytes) is not the memory of descriptor {}: {}", address,
                              bytes, fd, why));
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (own < 0)
    throw Failure(TUTTI_SYSTEM, fmt::format("tutti_mem_register: cannot duplicate fd {}: {}", fd, errno_text()));
  auto* first = static_cast<std::byte*>(address);
  const std::lock_guard lock(mutex_);
  const auto next = ranges_.upper_bound(first);
  const bool after = next != ranges_.end() && next->first < first + bytes;
  const bool before = next != ranges_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > first;
  if (after || before) {
    close(own);
    throw Failure(
        TUTTI_INVALID_ARGUMENT,
        fmt::format("tutti_mem_register: [{}, +{}) overlaps memory that is registered already", address, bytes));
  }
  Range& range = ranges_[first];
  range.bytes = bytes;
  range.fd = own;
  range.fd_offset = fd_offset;
  changed();
}

void Memory::erase(void* address, bool ours, const char* what) {
  std::unique_lock lock(mutex_);
  const auto found = ranges_.find(static_cast<std::byte*>(address));
  if (found == ranges_.end() || found->second.ours != ours || found->second.leaves)
    throw Failure(TUTTI_INVALID_ARGUMENT, fmt::format("{}: {} is not the start of such memory", what, address));
  Range& range = found->second;
  range.leaves = true;
  changed();
  settled_.wait(lock, [&] { return std::ranges::none_of(range.regions, [](const auto& r) { return r.second.busy; }); });
  for (auto& [domain, region] : range.regions) region.busy = true;  // a domain that closes waits for them
  lock.unlock();
  for (const auto& [domain, region] : range.regions)
    if (region.region) domain->api()->deregister_memory(domain->handle(), region.region);
  if (range.fd >= 0) close(range.fd);
  const uint64_t bytes = range.bytes;
  lock.lock();
  ranges_.erase(found);  // before the address can be mapped again
  settled_.notify_all();
  lock.unlock();
  if (ours) munmap(address, bytes);
}

void Memory::release(void* address) { erase(address, true, "tutti_mem_free"); }
void Memory::remove(void* address) { erase(address, false, "tutti_mem_deregister"); }

namespace {

// nullptr: the transport does not take it, and stages it.
tutti_region* register_with(const Domain& domain, const tutti_memory& memory) {
  tutti_region* region = nullptr;
  const tutti_transport* api = domain.api();
  if (!TUTTI_HAS(tutti_transport, api, register_memory)) return nullptr;
  if (api->register_memory(domain.handle(), &memory, &region) >= 0) return region;
  take_plugin_error();
  return nullptr;
}

}  // namespace

Registration Memory::find(Domain& domain, const void* address, uint64_t bytes) {
  auto* first = static_cast<std::byte*>(const_cast<void*>(address));
  std::unique_lock lock(mutex_);
  for (;; settled_.wait(lock)) {  // the range may have gone meanwhile
    auto next = ranges_.upper_bound(first);
    if (next == ranges_.begin()) return {};
    auto& [start, range] = *std::prev(next);
    const auto offset = static_cast<uint64_t>(first - start);
    if (offset >= range.bytes || bytes > range.bytes - offset || range.leaves) return {};
    const auto [known, made] = range.regions.try_emplace(&domain);
    Region& region = known->second;
    if (!made && region.busy) continue;
    if (made) {
      const tutti_memory memory{sizeof memory, TUTTI_MEMORY_HOST, start, range.bytes, range.fd, 0, range.fd_offset};
      region.busy = true;  // so the range stays
      lock.unlock();
      tutti_region* const registered = register_with(domain, memory);
      lock.lock();
      region = {registered, false};
      changed();
      settled_.notify_all();
    }
    return {region.region, offset};
  }
}

void Memory::changed() {
  snapshot_.reset();
  generation_.fetch_add(1, std::memory_order_release);
}

const std::shared_ptr<const Memory::Snapshot>& Memory::snapshot() {
  if (snapshot_) return snapshot_;
  auto made = std::make_shared<Snapshot>();
  made->reserve(ranges_.size());
  for (const auto& [first, range] : ranges_) {
    if (range.leaves) continue;
    SnapshotEntry& known = made->emplace_back(first, range.bytes);
    for (const auto& [domain, region] : range.regions)
      if (!region.busy) known.regions.emplace_back(domain, region.region);
  }
  return snapshot_ = std::move(made);
}

const Memory::SnapshotEntry* Memory::Lookup::range_of(const void* address, uint64_t bytes) {
  Memory& memory = process();
  if (generation_ != memory.generation_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(memory.mutex_);
    known_ = memory.snapshot();
    generation_ = memory.generation_.load(std::memory_order_relaxed);
  }
  auto* const first = static_cast<std::byte*>(const_cast<void*>(address));
  const auto next = std::ranges::upper_bound(*known_, first, {}, &SnapshotEntry::first);
  if (next == known_->begin()) return nullptr;
  const SnapshotEntry& range = *std::prev(next);
  const auto offset = static_cast<uint64_t>(first - range.first);
  return offset < range.bytes && bytes <= range.bytes - offset ? &range : nullptr;
}

Registration Memory::Lookup::find(Domain& domain, const void* address, uint64_t bytes) {
  const SnapshotEntry* const range = range_of(address, bytes);
  if (!range) return {};
  for (const auto& [of, region] : range->regions)
    if (of == &domain) return {region, static_cast<uint64_t>(static_cast<const std::byte*>(address) - range->first)};
  return process().find(domain, address, bytes);
}

void Memory::forget(Domain& domain) {
  std::unique_lock lock(mutex_);
  for (auto at = ranges_.begin(); at != ranges_.end();) {
    auto& regions = at->second.regions;
    const auto found = regions.find(&domain);
    if (found == regions.end()) {
      ++at;
    } else if (found->second.busy) {
      settled_.wait(lock);
      at = ranges_.begin();  // that range may have gone
    } else {
      found->second.busy = true;  // so the range stays
      lock.unlock();
      if (found->second.region) domain.api()->deregister_memory(domain.handle(), found->second.region);
      lock.lock();
      regions.erase(found);
      settled_.notify_all();
    }
  }
  changed();
}

}  // namespace tutti::core
