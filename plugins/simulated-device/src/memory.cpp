// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <tutti/sdk/plugin.hpp>
#include <tutti/sdk/unnamed_file.hpp>

#include "hazards.hpp"

namespace tutti::simulated {
namespace {

using sdk::Error;

struct Range {
  uint64_t bytes = 0;
  uint64_t id = 0;
  uint32_t device = 0;
  char* seen = nullptr;  // where streams find it
  enum class State { device, imported, host, released } state = State::device;
  int file = -1;         // of the pages; -1: they are this process's alone
  uint64_t span = 0;     // ranges of one span lie one behind the other, also where streams find them; 0: in none
  bool managed = false;  // processors reach it, too
};

// The contents of a tutti_memory_export: the file, so that another descriptor is not taken for it.
constexpr uint32_t by_descriptor = 1;
struct Exported {
  uint64_t device;
  uint64_t inode;
  bool operator==(const Exported&) const = default;
};
Exported file_of(int file) {
  struct stat state {};
  if (fstat(file, &state) != 0) throw sdk::system_error("simulated device: fstat of a descriptor of memory", errno);
  return {state.st_dev, state.st_ino};
}

std::mutex mutex;
uint64_t last_id = 0;

std::map<uintptr_t, Range>& ranges() {
  static auto* all = new std::map<uintptr_t, Range>();
  return *all;
}

// Released ranges, the oldest first, that are still reserved.
constexpr size_t most_released = 256;
std::deque<uintptr_t>& released() {
  static auto* all = new std::deque<uintptr_t>();
  return *all;
}

// The range that holds an address, or the end.
std::map<uintptr_t, Range>::iterator holding(uintptr_t address) {
  auto after = ranges().upper_bound(address);
  if (after == ranges().begin()) return ranges().end();
  --after;
  return address - after->first < after->second.bytes ? after : ranges().end();
}

// Where the memory ends that a stream finds in one piece from this range on.
uintptr_t end_of(std::map<uintptr_t, Range>::iterator range) {
  for (;;) {
    const uintptr_t end = range->first + range->second.bytes;
    const uint64_t span = range->second.span;
    if (!span || ++range == ranges().end() || range->first != end || range->second.span != span) return end;
  }
}

bool is_private() {
  static const bool is = sdk::config_number("TUTTI_SIMULATED_PRIVATE", 0, 0, 1) == 1;
  return is;
}

uint64_t most_bytes() {
  static const uint64_t most = sdk::config_number("TUTTI_SIMULATED_MEMORY", UINT64_MAX, 1, UINT64_MAX);
  return most;
}

uint64_t allocated(uint32_t device) {
  uint64_t bytes = 0;
  for (const auto& [address, range] : ranges())
    if (range.state == Range::State::device && range.device == device) bytes += range.bytes;
  return bytes;
}

// The pages of a file twice, if they are private: for addresses, and for streams.
struct Pages {
  void* base = MAP_FAILED;
  void* seen = MAP_FAILED;
};
Pages map_pages(int file, uint64_t bytes) {
  Pages pages;
  pages.seen = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (pages.seen == MAP_FAILED) return pages;
  pages.base = is_private() ? mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file, 0) : pages.seen;
  if (pages.base == MAP_FAILED) munmap(pages.seen, bytes);
  return pages;
}

// A file of new pages that can neither shrink nor grow, or -1.
int make_file(uint64_t bytes) {
  const int file = make_unnamed_file("tutti-simulated-device");
  if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0 &&
      fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
    return file;
  const int why = errno;
  if (file >= 0) close(file);
  errno = why;
  return -1;
}

std::string text(const void* address) { return std::to_string(reinterpret_cast<uintptr_t>(address)); }

}  // namespace

uint32_t device_count() {
  static const auto count = static_cast<uint32_t>(sdk::config_number("TUTTI_SIMULATED_DEVICES", 2, 1, 64));
  return count;
}

void check_device(uint32_t device) {
  if (device >= device_count())
    throw Error(TUTTI_INVALID_ARGUMENT, "simulated device " + std::to_string(device) + " does not exist: there are " +
                                            std::to_string(device_count()));
}

void enable_peer(uint32_t device, uint32_t peer) {
  check_device(device);
  check_device(peer);
  if (device != peer && sdk::config_number("TUTTI_SIMULATED_PEERS", 1, 0, 1) == 0)
    throw Error(TUTTI_NOT_SUPPORTED, "simulated device " + std::to_string(device) + " does not read device " +
                                         std::to_string(peer) + " (TUTTI_SIMULATED_PEERS=0)");
}

// The simulated devices of a host are those of all its processes, by their numbers.
void identify(uint32_t device, uint8_t* id) {
  check_device(device);
  if (sdk::config_number("TUTTI_SIMULATED_IDENTITIES", 1, 0, 1) == 0)
    throw Error(TUTTI_NOT_SUPPORTED, "simulated device: devices cannot be told apart (TUTTI_SIMULATED_IDENTITIES=0)");
  std::memcpy(id, "simulated   ", 12);
  std::memcpy(id + 12, &device, sizeof device);
}

// Invented: no PCI domain of this number exists, and the speeds are those of a device of ordinary size.
void describe(uint32_t device, tutti_device_facts& facts) {
  check_device(device);
  facts.numa = 0;
  static auto* addresses = new std::map<uint32_t, std::string>();
  const std::lock_guard lock(mutex);
  std::string& address = (*addresses)[device];
  if (address.empty())
    address = "5157:00:" + std::string{"0123456789abcdef"[device / 16 % 16], "0123456789abcdef"[device % 16]} + ".0";
  facts.pci = address.c_str();
  facts.link_latency_ns = 2000;
  facts.link_bandwidth = 200'000'000'000;
  facts.copy_bandwidth = 25'000'000'000;
}

void* allocate(uint32_t device, uint64_t bytes) {
  check_device(device);
  if (!bytes) bytes = 1;
  const std::lock_guard lock(mutex);
  if (most_bytes() != UINT64_MAX)
    if (const uint64_t used = allocated(device); bytes > most_bytes() - std::min(used, most_bytes()))
      throw Error(TUTTI_NO_RESOURCES, "simulated device: no memory of " + std::to_string(bytes) +
                                          " bytes: " + std::to_string(used) + " of " + std::to_string(most_bytes()) +
                                          " are used (TUTTI_SIMULATED_MEMORY)");
  const int file = make_file(bytes);
  const Pages pages = file < 0 ? Pages{} : map_pages(file, bytes);
  if (pages.base == MAP_FAILED) {
    const int why = errno;
    if (file >= 0) close(file);
    throw sdk::system_error("simulated device: no memory of " + std::to_string(bytes) + " bytes", why);
  }
  ranges()[reinterpret_cast<uintptr_t>(pages.base)] = {
      bytes, ++last_id, device, static_cast<char*>(pages.seen), Range::State::device, file, 0, false};
  return pages.base;
}

// Its pages have no file that another process could map, and processors may touch them.
void* allocate_managed(uint32_t device, uint64_t bytes) {
  require(Hazard::managed, "managed memory");
  check_device(device);
  if (!bytes) bytes = 1;
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED)
    throw sdk::system_error("simulated device: no managed memory of " + std::to_string(bytes) + " bytes", errno);
  const std::lock_guard lock(mutex);
  ranges()[reinterpret_cast<uintptr_t>(pages)] = {
      bytes, ++last_id, device, static_cast<char*>(pages), Range::State::device, -1, 0, true};
  return pages;
}

void* allocate_ranges(uint32_t device, uint64_t n, uint64_t bytes) {
  require(Hazard::ranges, "memory of several mappings in one range of addresses");
  check_device(device);
  if (!n || !bytes || bytes % static_cast<uint64_t>(sysconf(_SC_PAGESIZE)))
    throw Error(TUTTI_INVALID_ARGUMENT, "simulated device: " + std::to_string(n) + " mappings of " +
                                            std::to_string(bytes) + " bytes: expected some, of whole pages");
  const auto reserve = [&] { return mmap(nullptr, n * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); };
  const auto fix = [&](void* span, uint64_t i, int file, int access) {
    char* const at = static_cast<char*>(span) + i * bytes;
    if (mmap(at, bytes, access, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
      throw sdk::system_error("simulated device: a mapping", errno);
    return at;
  };
  void* const seen = reserve();
  void* const base = is_private() ? reserve() : seen;
  if (seen == MAP_FAILED || base == MAP_FAILED) throw sdk::system_error("simulated device: no addresses", errno);
  const std::lock_guard lock(mutex);
  const uint64_t span = ++last_id;
  for (uint64_t i = 0; i < n; ++i) {
    const int file = make_file(bytes);
    if (file < 0) throw sdk::system_error("simulated device: no memory", errno);
    char* const found = fix(seen, i, file, PROT_READ | PROT_WRITE);
    const char* const address = is_private() ? fix(base, i, file, PROT_NONE) : found;
    ranges()[reinterpret_cast<uintptr_t>(address)] = {bytes, ++last_id, device, found, Range::State::device,
                                                      file,  span,      false};
  }
  return base;
}

uint32_t device_of(const void* address) {
  const std::lock_guard lock(mutex);
  const auto found = holding(reinterpret_cast<uintptr_t>(address));
  return found == ranges().end() ? 0 : found->second.device;
}

namespace {

int duplicate(int file) {
  const int own = fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (own < 0) throw sdk::system_error("simulated device: no descriptor for an export", errno);
  return own;
}

// Throws where the setting says that this machine forbids exports.
void require_exports() {
  if (sdk::config_number("TUTTI_SIMULATED_EXPORTS", 1, 0, 1) == 0)
    throw Error(TUTTI_NOT_SUPPORTED,
                "simulated device: processes do not map each other's memory (TUTTI_SIMULATED_EXPORTS=0)");
}

// Ends a range of that state; it stays reserved and unreadable.
void end_range(void* address, Range::State state, const std::string& complaint) {
  const std::lock_guard lock(mutex);
  const auto found = ranges().find(reinterpret_cast<uintptr_t>(address));
  if (found == ranges().end() || found->second.state != state)
    throw Error(TUTTI_INVALID_ARGUMENT, "simulated device: " + text(address) + complaint);
  found->second.state = Range::State::released;
  if (found->second.file >= 0) close(found->second.file);
  found->second.file = -1;
  found->second.span = 0;
  for (void* pages : {address, static_cast<void*>(found->second.seen)})
    mmap(pages, found->second.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  released().push_back(found->first);
  if (released().size() <= most_released) return;
  const auto oldest = ranges().find(released().front());
  released().pop_front();
  munmap(reinterpret_cast<void*>(oldest->first), oldest->second.bytes);
  if (oldest->second.seen != reinterpret_cast<char*>(oldest->first)) munmap(oldest->second.seen, oldest->second.bytes);
  ranges().erase(oldest);
}

}  // namespace

void release(void* address) {
  if (address) end_range(address, Range::State::device, " is not the start of an allocation");
}

void close_import(void* base) { end_range(base, Range::State::imported, " is not the base of an import that is open"); }

int export_memory(const void* address, tutti_memory_export& memory) {
  require_exports();
  const std::lock_guard lock(mutex);
  const auto found = holding(reinterpret_cast<uintptr_t>(address));
  if (found == ranges().end() || found->second.state != Range::State::device)
    throw Error(TUTTI_INVALID_ARGUMENT,
                "export_memory: " + text(address) + " is not in an allocation of the simulated device");
  const Range& range = found->second;
  if (range.managed)
    throw Error(TUTTI_NOT_SUPPORTED,
                "export_memory: " + text(address) + " is managed memory, which no other process maps");
  const Exported exported = file_of(range.file);
  memory = {};
  memory.form = by_descriptor;
  memory.device = range.device;
  memory.bytes = range.bytes;
  memory.offset = reinterpret_cast<uintptr_t>(address) - found->first;
  memory.buffer_id = range.id;
  memory.data_bytes = sizeof exported;
  std::memcpy(memory.data, &exported, sizeof exported);
  return duplicate(range.file);
}

int export_dmabuf(const void* address, uint64_t bytes, uint64_t& offset) {
  if (sdk::config_number("TUTTI_SIMULATED_DMABUF", 1, 0, 1) == 0)
    throw Error(TUTTI_NOT_SUPPORTED, "simulated device: it makes no dma-bufs (TUTTI_SIMULATED_DMABUF=0)");
  const std::lock_guard lock(mutex);
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const auto found = holding(begin);
  if (found == ranges().end() || found->second.state != Range::State::device || !bytes ||
      bytes > found->second.bytes - (begin - found->first))
    throw Error(TUTTI_INVALID_ARGUMENT, "export_dmabuf: the " + std::to_string(bytes) + " bytes at " + text(address) +
                                            " are not in one allocation of the simulated device");
  if (found->second.managed)
    throw Error(TUTTI_NOT_SUPPORTED,
                "export_dmabuf: " + text(address) + " is managed memory, of which there is no dma-buf");
  offset = begin - found->first;
  return duplicate(found->second.file);
}

void* import_memory(uint32_t device, const tutti_memory_export& memory, int fd) {
  check_device(device);
  if (memory.form != by_descriptor || memory.data_bytes != sizeof(Exported) || fd < 0 || memory.offset >= memory.bytes)
    throw Error(TUTTI_INVALID_ARGUMENT, "import_memory: form " + std::to_string(memory.form) + ", descriptor " +
                                            std::to_string(fd) + ", offset " + std::to_string(memory.offset) + " of " +
                                            std::to_string(memory.bytes) +
                                            " bytes: this is not an export of device simulated");
  require_exports();
  enable_peer(device, memory.device);
  Exported exported{};
  std::memcpy(&exported, memory.data, sizeof exported);
  struct stat state {};
  const int seals = fcntl(fd, F_GET_SEALS);
  if (fstat(fd, &state) != 0 || !(exported == file_of(fd)) || static_cast<uint64_t>(state.st_size) != memory.bytes ||
      seals < 0 || !(seals & F_SEAL_SHRINK))
    throw Error(TUTTI_INVALID_ARGUMENT, "import_memory: descriptor " + std::to_string(fd) + " is not that of the " +
                                            std::to_string(memory.bytes) + " bytes that were exported");
  {
    const std::lock_guard lock(mutex);
    for (const auto& [base, range] : ranges())
      if (range.state == Range::State::device && range.file >= 0 && file_of(range.file) == exported)
        throw Error(TUTTI_INVALID_ARGUMENT, "import_memory: this process exported it: use the address itself");
  }
  const Pages pages = map_pages(fd, memory.bytes);
  if (pages.base == MAP_FAILED) throw sdk::system_error("simulated device: an export cannot be mapped", errno);
  const std::lock_guard lock(mutex);
  ranges()[reinterpret_cast<uintptr_t>(pages.base)] = {
      memory.bytes, ++last_id, device, static_cast<char*>(pages.seen), Range::State::imported, -1, 0, false};
  return pages.base;
}

uint32_t memory_kind() {
  static const uint32_t kind = sdk::memory_kind(device_name);
  return kind;
}

void classify(const void* address, tutti_pointer& pointer) {
  const std::lock_guard lock(mutex);
  const auto found = holding(reinterpret_cast<uintptr_t>(address));
  if (found == ranges().end() || found->second.state == Range::State::host) {
    pointer.kind = TUTTI_MEMORY_HOST;
    return;
  }
  if (found->second.state == Range::State::released)
    throw Error(TUTTI_INVALID_ARGUMENT, "simulated device: the memory at " + text(address) + " has been released");
  pointer.kind = memory_kind();
  pointer.device = found->second.device;
  pointer.base = reinterpret_cast<void*>(found->first);
  pointer.bytes = found->second.bytes;
  pointer.buffer_id = found->second.id;
}

void map_host(void* address, uint64_t bytes) {
  const std::lock_guard lock(mutex);
  ranges()[reinterpret_cast<uintptr_t>(address)] = {
      bytes, ++last_id, 0, static_cast<char*>(address), Range::State::host, -1, 0, false};
}

void unmap_host(void* address) {
  const std::lock_guard lock(mutex);
  const auto found = ranges().find(reinterpret_cast<uintptr_t>(address));
  if (found == ranges().end() || found->second.state != Range::State::host)
    throw Error(TUTTI_INVALID_ARGUMENT, "simulated device: " + text(address) + " was not mapped");
  ranges().erase(found);
}

void* reach(const void* address, uint64_t bytes) {
  if (!bytes) return const_cast<void*>(address);
  const std::lock_guard lock(mutex);
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const auto found = holding(begin);
  if (found == ranges().end() || found->second.state == Range::State::released || begin + bytes > end_of(found))
    throw Error(TUTTI_INVALID_ARGUMENT, "simulated device: a stream may not touch the " + std::to_string(bytes) +
                                            " bytes at " + text(address) + ": they are host memory that is not mapped");
  return found->second.seen + (begin - found->first);
}

}  // namespace tutti::simulated
