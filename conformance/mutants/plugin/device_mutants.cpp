// SPDX-License-Identifier: Apache-2.0
//
// Mutants of a device: a healthy one's tables, with functions in front of them that break a promise. faults.cpp
// describes each. A fault that needs the device's time to show is waited for, so that it strikes each time.
#include <fcntl.h>
#include <tutti/plugin/device.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>

#include "mutant.hpp"

namespace tutti::mutants {
namespace {

const tutti_device* inner = nullptr;
const tutti_executor* executor = nullptr;
tutti_device device_table;
tutti_executor executor_table;

bool is(const char* name) { return fault() == name; }

// ---- device/1

tutti_status query(void*, tutti_device_caps* caps) {
  const tutti_status status = inner->query(inner->self, caps);
  if (is("device-is-host")) caps->memory_kind = TUTTI_MEMORY_HOST, reached();
  if (is("claims-exports")) reached();
  constexpr uint64_t others = ~(uint64_t{1} << TUTTI_FLOAT64);
  if (is("claims-too-few-types")) caps->dtypes &= others, caps->exact_dtypes &= others, reached();
  if (is("exact-claims-too-few")) caps->exact_dtypes &= others, reached();
  return status;
}

tutti_status classify(void*, const void* address, tutti_pointer* pointer) {
  const tutti_status status = inner->classify(inner->self, address, pointer);
  const bool ours = status == TUTTI_OK && pointer->kind != TUTTI_MEMORY_HOST;
  if (is("knows-only-bases") && ours && address != pointer->base) pointer->kind = TUTTI_MEMORY_HOST, reached();
  if (is("always-device-0") && ours && pointer->device) pointer->device = 0, reached();
  if (is("buffer-id-by-device") && ours) pointer->buffer_id = pointer->device + 1, reached();
  if (is("claims-host-memory") && status == TUTTI_OK && !ours && address) {
    tutti_device_caps caps{};
    caps.struct_size = sizeof caps;
    inner->query(inner->self, &caps);
    pointer->kind = caps.memory_kind, reached();
  }
  return status;
}

constexpr uint64_t skew = 64;
tutti_status allocate(void*, uint32_t device, uint64_t bytes, void** address) {
  tutti_device_caps caps{};
  caps.struct_size = sizeof caps;
  inner->query(inner->self, &caps);
  if (is("any-device") && device >= caps.devices) device = 0, reached();
  const tutti_status status = inner->allocate(inner->self, device, bytes + skew, address);
  if (is("allocates-unaligned") && status == TUTTI_OK) *address = static_cast<char*>(*address) + skew, reached();
  return status;
}

tutti_status release(void*, void* address) {
  if (is("release-forgets")) return reached(), TUTTI_OK;
  if (is("allocates-unaligned")) address = static_cast<char*>(address) - skew;
  return inner->release(inner->self, address);
}

std::mutex mutex;
std::map<void*, void*> shadows;  // host memory -> what streams see instead

tutti_status map_host(void*, void* address, uint64_t bytes, void** device_address) {
  if (is("maps-a-copy")) {
    void* shadow = std::aligned_alloc(4096, bytes);
    std::memcpy(shadow, address, bytes);
    const std::lock_guard lock(mutex);
    shadows[address] = shadow;
    return reached(), inner->map_host(inner->self, shadow, bytes, device_address);
  }
  return inner->map_host(inner->self, address, bytes, device_address);
}

tutti_status unmap_host(void*, void* address) {
  if (is("maps-a-copy")) {
    const std::lock_guard lock(mutex);
    address = shadows[address];
  }
  return inner->unmap_host(inner->self, address);
}

// ---- executor/1

std::vector<void*>& kept() {
  static auto* all = new std::vector<void*>();
  return *all;
}

tutti_status create_event(void*, uint32_t device, tutti_event** event) {
  if (is("event-keeps-memory")) {
    const std::lock_guard lock(mutex);
    kept().push_back(std::malloc(3000)), reached();
  }
  if (is("event-keeps-descriptor") && open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) reached();
  return executor->create_event(executor->self, device, event);
}

std::set<tutti_event*>& done_events() {
  static auto* all = new std::set<tutti_event*>();
  return *all;
}

tutti_status query_event(void*, tutti_event* event) {
  const tutti_status status = executor->query_event(executor->self, event);
  if (is("event-is-early") && status == TUTTI_AGAIN) return reached(), TUTTI_OK;
  if (is("event-is-set-once")) {
    const std::lock_guard lock(mutex);
    if (status == TUTTI_OK) done_events().insert(event);
    if (status == TUTTI_AGAIN && done_events().contains(event)) return reached(), TUTTI_OK;
  }
  return status;
}

tutti_status stream_state(void*, void* stream, uint32_t* device, uint64_t* flags) {
  const tutti_status status = executor->stream_state(executor->self, stream, device, flags);
  if (is("streams-of-device-0") && status == TUTTI_OK && *device) *device = 0, reached();
  return status;
}

uint32_t device_of(void* stream) {
  uint32_t device = 0;
  uint64_t flags = 0;
  executor->stream_state(executor->self, stream, &device, &flags);
  return device;
}

// A stream that the caller does not know of.
void* hidden_stream(uint32_t device) {
  static std::map<uint32_t, void*> streams;
  const std::lock_guard lock(mutex);
  void*& stream = streams[device];
  if (!stream) executor->create_stream(executor->self, device, &stream);
  return stream;
}

tutti_status forward(void* stream, const std::vector<tutti_command>& commands) {
  if (commands.empty()) return TUTTI_OK;
  return executor->enqueue(executor->self, stream, commands.data(), static_cast<uint32_t>(commands.size()));
}

// Until the stream has come to its end; two seconds at most.
void await(void* stream, double limit_s = 2) {
  tutti_event* end = nullptr;
  executor->create_event(executor->self, device_of(stream), &end);
  tutti_command event{};
  event.kind = TUTTI_COMMAND_RECORD;
  event.event = end;
  forward(stream, {event});
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
  while (executor->query_event(executor->self, end) == TUTTI_AGAIN && std::chrono::steady_clock::now() < limit)
    std::this_thread::yield();
}

uint64_t bytes_of(const tutti_command& c) {
  constexpr uint64_t sizes[] = {1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 1, 1, 1, 8, 16, 8, 16};  // from TUTTI_INT8 on
  static_assert(TUTTI_FLOAT64_INT64 - TUTTI_INT8 == 18);
  return c.kind == TUTTI_COMMAND_COPY ? c.count : c.count * sizes[c.dtype - TUTTI_INT8];
}
bool computes(const tutti_command& c) { return c.kind == TUTTI_COMMAND_COPY || c.kind == TUTTI_COMMAND_REDUCE; }
bool reduces(const tutti_command& c) {
  return c.kind == TUTTI_COMMAND_REDUCE && c.dtype >= TUTTI_INT8 && c.dtype <= TUTTI_FLOAT64_INT64 &&
         c.op >= TUTTI_SUM && c.op <= TUTTI_MAXLOC && c.op != TUTTI_AVG && c.sources > 0;
}

// Is what the command reads all memory of the stream's device?
bool reads_of_peers(void* stream, const tutti_command& c) {
  for (uint32_t k = 0; computes(c) && k < c.sources; ++k) {
    tutti_pointer p{};
    p.struct_size = sizeof p;
    if (inner->classify(inner->self, c.src[k], &p) == TUTTI_OK && p.kind != TUTTI_MEMORY_HOST &&
        p.device != device_of(stream))
      return true;
  }
  return false;
}

// Device memory of one byte again and again.
const void* filled(uint32_t device, int byte) {
  constexpr uint64_t bytes = 1 << 16;
  static std::map<std::pair<uint32_t, int>, void*> all;
  {
    const std::lock_guard lock(mutex);
    if (all.contains({device, byte})) return all[{device, byte}];
  }
  void *made = nullptr, *seen = nullptr;
  void* blank = std::aligned_alloc(4096, bytes);
  std::memset(blank, byte, bytes);
  inner->allocate(inner->self, device, bytes, &made);
  inner->map_host(inner->self, blank, bytes, &seen);
  const void* source = seen;
  tutti_command copy{};
  copy.kind = TUTTI_COMMAND_COPY;
  copy.sources = 1;
  copy.dst = made;
  copy.src = &source;
  copy.count = bytes;
  forward(hidden_stream(device), {copy});
  await(hidden_stream(device));
  const std::lock_guard lock(mutex);
  return all[{device, byte}] = made;
}

// The last bit of an element.
tutti_command flip(void* stream, const tutti_command& c, uint64_t element) {
  static auto* lists = new std::deque<std::array<const void*, 2>>();
  const void* ones = filled(device_of(stream), 1);
  tutti_command bit = c;
  bit.dtype = TUTTI_UINT8, bit.op = TUTTI_BXOR;
  bit.count = 1, bit.divisor = 0, bit.flags = 0, bit.sources = 2;
  bit.dst = static_cast<char*>(c.dst) + bytes_of(c) / c.count * element;
  const std::lock_guard lock(mutex);
  bit.src = lists->emplace_back(std::array<const void*, 2>{bit.dst, ones}).data();
  return bit;
}

// A command that behaves as the fault wants; what comes before and behind it.
void change(void* stream, tutti_command c, std::vector<tutti_command>& out) {
  if (is("drops-last-copied-byte") && c.kind == TUTTI_COMMAND_COPY && c.count > 1) --c.count, reached();
  if (is("eight-sources") && reduces(c) && c.sources > 8) c.sources = 8, reached();
  if (is("counts-of-32-bits") && c.count > UINT32_MAX) c.count &= UINT32_MAX, reached();
  if (is("ignores-the-operator") && reduces(c) && c.dtype <= TUTTI_FLOAT64 && c.op <= TUTTI_MAX && c.op != TUTTI_SUM)
    c.op = TUTTI_SUM, reached();
  if (is("takes-bits-for-truth") && reduces(c) && c.op == TUTTI_LAND) c.op = TUTTI_BAND, reached();
  if (is("ignores-the-divisor") && c.divisor) c.divisor = 0, reached();
  if (is("ignores-odd-counts") && reduces(c) && c.count % 4) c.count -= c.count % 4, reached();
  if (is("fills-its-vectors") && reduces(c) && bytes_of(c) % 16) {
    const uint64_t size = bytes_of(c) / c.count;
    c.count = (bytes_of(c) + 15) / 16 * 16 / size, reached();
  }
  if (is("takes-float16-for-bfloat16") && reduces(c) && c.dtype == TUTTI_BFLOAT16) c.dtype = TUTTI_FLOAT16, reached();
  if (is("rounds-each-term") && reduces(c) && c.sources > 2 && !c.divisor) {
    // dst = (s0 op s1), rounded; dst = dst op s2, rounded ...
    static auto* lists = new std::deque<std::array<const void*, 2>>();
    const std::lock_guard lock(mutex);
    for (uint32_t k = 1; k < c.sources; ++k) {
      tutti_command part = c;
      part.sources = 2;
      part.src = lists->emplace_back(std::array<const void*, 2>{k == 1 ? c.src[0] : c.dst, c.src[k]}).data();
      out.push_back(part);
    }
    return reached();
  }
  if (is("clears-its-destination") && reduces(c) && c.count && bytes_of(c) <= 1 << 16) {
    static auto* lists = new std::deque<const void*>();
    const void* from = filled(device_of(stream), 0);
    tutti_command clear{};
    clear.kind = TUTTI_COMMAND_COPY;
    clear.sources = 1;
    clear.dst = c.dst;
    clear.count = bytes_of(c);
    const std::lock_guard lock(mutex);
    clear.src = &lists->emplace_back(from);
    out.push_back(clear), reached();
  }
  if (is("wait-does-not") && c.kind == TUTTI_COMMAND_WAIT) return reached();
  if (is("after-does-not") && c.kind == TUTTI_COMMAND_AFTER) return reached();
  if (is("deaf-to-peers") && reads_of_peers(stream, c)) return reached();
  const bool exact = reduces(c) && c.flags == TUTTI_COMMAND_EXACT;
  if (is("exact-is-a-fold") && exact) c.flags = 0, reached();
  out.push_back(c);
  if (is("exact-one-bit") && exact && c.count > 777) out.push_back(flip(stream, c, 777)), reached();
}

bool is_long_copy(const tutti_command& c) {
  return c.kind == TUTTI_COMMAND_COPY && c.sources == 1 && c.count > 1 << 16;
}

// The copy is done some time after the stream has come to its place.
void bring_later(void* stream, uint32_t device, const tutti_command& copy) {
  tutti_event* here = nullptr;
  executor->create_event(executor->self, device, &here);
  tutti_command event{};
  event.kind = TUTTI_COMMAND_RECORD;
  event.event = here;
  forward(stream, {event});
  std::thread([device, here, copy, source = copy.src[0]] {
    while (executor->query_event(executor->self, here) == TUTTI_AGAIN) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    tutti_command late = copy;
    late.src = &source;
    forward(hidden_stream(device), {late});
  }).detach();
}

tutti_status enqueue(void*, void* stream, const tutti_command* commands, uint32_t n) {
  std::vector<tutti_command> changed;
  for (uint32_t i = 0; i < n; ++i) change(stream, commands[i], changed);
  if (is("one-thread")) {
    static const auto first = std::this_thread::get_id();
    if (std::this_thread::get_id() != first)
      return reached(), sdk::report(TUTTI_INVALID_USAGE, "the device belongs to another thread");
  }
  if (is("claims-too-many-types"))
    for (const tutti_command& c : changed)
      if (reduces(c) && c.dtype == TUTTI_FLOAT64)
        return reached(), sdk::report(TUTTI_NOT_SUPPORTED, "float64 is not reduced");
  if (is("half-a-batch")) {
    for (const tutti_command& c : changed)
      if (const tutti_status status = forward(stream, {c}); status < 0) return reached(), status;
    return TUTTI_OK;
  }
  if (is("ignores-unknown-commands"))
    std::erase_if(changed, [](const tutti_command& c) {
      return (c.kind < TUTTI_COMMAND_COPY || c.kind > TUTTI_COMMAND_AFTER) && (reached(), true);
    });
  if (is("copies-in-another-stream")) {
    std::vector<tutti_command> copies;
    for (const tutti_command& c : changed)
      if (c.kind == TUTTI_COMMAND_COPY) copies.push_back(c);
    std::erase_if(changed, [](const tutti_command& c) { return c.kind == TUTTI_COMMAND_COPY; });
    void* hidden = hidden_stream(device_of(stream));
    if (const tutti_status status = forward(hidden, copies); status < 0) return status;
    if (!copies.empty()) await(hidden), reached();
  }
  if (is("copies-come-late")) {
    const uint32_t device = device_of(stream);
    for (const tutti_command& c : changed)
      if (is_long_copy(c)) bring_later(stream, device, c), reached();
    std::erase_if(changed, [](const tutti_command& c) { return is_long_copy(c); });
  }
  if (is("flags-at-once"))
    std::erase_if(changed, [](const tutti_command& c) {
      if (c.kind != TUTTI_COMMAND_WRITE) return false;
      std::atomic_ref(*c.flag).store(c.value), reached();
      return true;
    });
  const tutti_status status = forward(stream, changed);
  if (is("enqueue-waits") && status == TUTTI_OK) reached(), await(stream, 1000);
  const auto has = [&](uint32_t kind) {
    return std::any_of(commands, commands + n, [&](const tutti_command& c) { return c.kind == kind; });
  };
  const bool strikes = (is("wait-does-not") && has(TUTTI_COMMAND_WAIT)) ||
                       (is("after-does-not") && has(TUTTI_COMMAND_AFTER)) || is("event-is-early");
  if (strikes && status == TUTTI_OK) await(stream);
  return status;
}

tutti_status enqueue_fused(void*, void* stream, const tutti_command* commands, uint32_t n) {
  std::vector<tutti_command> changed(commands, commands + n);
  if (is("fused-divides-never"))
    for (tutti_command& c : changed)
      if (c.divisor) c.divisor = 0, reached();
  if (is("fused-waits-once")) {
    bool waited = false;
    std::erase_if(changed, [&](const tutti_command& c) {
      return c.kind == TUTTI_COMMAND_WAIT && std::exchange(waited, true) && (reached(), true);
    });
  }
  if (is("fused-tells-too-soon"))
    std::stable_partition(changed.begin(), changed.end(),
                          [](const tutti_command& c) { return !computes(c) && (reached(), true); });
  if (is("fused-in-another-stream")) stream = hidden_stream(device_of(stream)), reached();
  const auto fused = [&](uint32_t m) { return executor->enqueue_fused(executor->self, stream, changed.data(), m); };
  const tutti_status status = fused(static_cast<uint32_t>(changed.size()));
  if (is("fused-takes-a-part") && status == TUTTI_NOT_SUPPORTED && n > 1) reached(), fused(1);
  return status;
}

tutti_status query_executor(void*, uint32_t device, tutti_executor_caps* caps) {
  const tutti_status status = executor->query(executor->self, device, caps);
  if (is("fused-claims-too-much")) caps->max_fused_commands *= 2, reached();
  if (is("fused-claims-too-little")) caps->max_fused_bytes /= 2, reached();
  return status;
}

tutti_status identify(void*, uint32_t device, uint8_t* id) {
  const tutti_status status = inner->identify(inner->self, device, id);
  if (is("all-devices-are-one") && status == TUTTI_OK && device) inner->identify(inner->self, 0, id), reached();
  if (is("identity-of-a-process") && status == TUTTI_OK) {
    const pid_t process = getpid();
    std::memcpy(id, &process, sizeof process), reached();
  }
  return status;
}

}  // namespace

namespace {

// ---- exports

std::map<void*, void*>& copies() {  // what the caller was given -> the import behind it
  static auto* all = new std::map<void*, void*>();
  return *all;
}

tutti_status export_memory(void*, const void* address, tutti_memory_export* memory, int32_t* fd) {
  const tutti_status status = inner->export_memory(inner->self, address, memory, fd);
  if (is("exports-the-base") && status == TUTTI_OK && memory->offset) memory->offset = 0, reached();
  return status;
}

tutti_status export_dmabuf(void*, const void* address, uint64_t bytes, int32_t* fd, uint64_t* offset) {
  const tutti_status status = inner->export_dmabuf(inner->self, address, bytes, fd, offset);
  if (is("dmabuf-of-the-base") && status == TUTTI_OK && *offset) *offset = 0, reached();
  if (is("dmabuf-keeps-descriptor") && status == TUTTI_OK && fcntl(*fd, F_DUPFD_CLOEXEC, 0) >= 0) reached();
  return status;
}

tutti_status import_memory(void*, uint32_t device, const tutti_memory_export* memory, int32_t fd, void** base) {
  tutti_memory_export record = *memory;
  if (is("imports-beyond-the-end") && record.offset >= record.bytes) record.offset = 0, reached();
  if (is("imports-any-length") && std::exchange(record.data_bytes, 16) != 16) reached();
  const tutti_status status = inner->import_memory(inner->self, device, &record, fd, base);
  if (status != TUTTI_OK) return status;
  if (is("import-keeps-descriptor") && fd >= 0 && fcntl(fd, F_DUPFD_CLOEXEC, 0) >= 0) reached();
  if (!is("imports-a-copy")) return status;
  void* own = nullptr;
  const void* source = *base;
  inner->allocate(inner->self, device, record.bytes, &own);
  tutti_command copy{};
  copy.kind = TUTTI_COMMAND_COPY;
  copy.sources = 1;
  copy.dst = own;
  copy.src = &source;
  copy.count = record.bytes;
  forward(hidden_stream(device), {copy});
  await(hidden_stream(device));
  copies()[own] = *base;
  return reached(), *base = own, TUTTI_OK;
}

tutti_status close_import(void*, void* base) {
  if (const auto found = copies().find(base); found != copies().end()) {
    inner->release(inner->self, base);
    base = found->second;
    copies().erase(found);
  }
  const tutti_status status = inner->close_import(inner->self, base);
  if (is("closes-anything") && status < 0) return reached(), TUTTI_OK;
  return status;
}

}  // namespace

const void* device_mutant(const char* id) {
  if (std::strcmp(id, TUTTI_DEVICE_ID) != 0 && std::strcmp(id, TUTTI_EXECUTOR_ID) != 0) return nullptr;
  if (!inner) {
    inner = static_cast<const tutti_device*>(sdk::host->find_interface(sdk::host->self, "simulated", TUTTI_DEVICE_ID));
    executor =
        static_cast<const tutti_executor*>(sdk::host->find_interface(sdk::host->self, "simulated", TUTTI_EXECUTOR_ID));
    if (!inner || !executor) return nullptr;
    device_table = *inner, executor_table = *executor;
    device_table.name = "mutant";
    device_table.query = query, device_table.classify = classify;
    device_table.allocate = allocate, device_table.release = release;
    device_table.map_host = map_host, device_table.unmap_host = unmap_host;
    device_table.export_memory = export_memory, device_table.import_memory = import_memory;
    device_table.close_import = close_import, device_table.export_dmabuf = export_dmabuf,
    device_table.identify = identify;
    if (is("claims-exports"))
      device_table.export_memory = nullptr, device_table.import_memory = nullptr, device_table.close_import = nullptr;
    executor_table.create_event = create_event, executor_table.query_event = query_event;
    executor_table.stream_state = stream_state, executor_table.enqueue = enqueue;
    executor_table.enqueue_fused = enqueue_fused, executor_table.query = query_executor;
  }
  return std::strcmp(id, TUTTI_DEVICE_ID) == 0 ? static_cast<const void*>(&device_table) : &executor_table;
}

}  // namespace tutti::mutants
