// SPDX-License-Identifier: Apache-2.0
//
// Contract cases of device/1: whose memory an address is, and what becomes of memory.
#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "contract_case.hpp"
#include "device_station.hpp"
#include "usage.hpp"

namespace tutti::conformance::contract {
namespace {

void device_query_repeats(Bench& bench) {
  const DeviceUnderTest d = device_under_test(bench);
  const tutti_device_caps& c = d.caps;
  require(c.memory_kind > TUTTI_MEMORY_HOST && c.memory_kind <= TUTTI_LAST_NAMED_MEMORY, "D-1",
          "query: memory_kind is {}; it is what tutti_host.memory_kind gives, and not TUTTI_MEMORY_HOST",
          c.memory_kind);
  constexpr uint64_t dtypes = (uint64_t{2} << TUTTI_FLOAT64_INT64) - 2,
                     ops = (uint64_t{2} << TUTTI_MAXLOC) - 2 - (uint64_t{1} << TUTTI_AVG);
  require(!(c.dtypes & ~dtypes) && !(c.ops & ~ops), "D-1",
          "query: dtypes {:#x} or ops {:#x} has a bit that is neither a data type nor an operator of REDUCE", c.dtypes,
          c.ops);
  constexpr uint64_t exact = uint64_t{15} << TUTTI_FLOAT16;  // up to TUTTI_FLOAT64
  require(!(c.exact_dtypes & ~(c.dtypes & exact)) && (!c.exact_dtypes || c.ops >> TUTTI_SUM & 1), "D-1",
          "query: exact_dtypes {:#x} must be types of dtypes {:#x} and among float16, bfloat16, float32 and float64, "
          "and TUTTI_SUM be among ops",
          c.exact_dtypes, c.dtypes);
  const bool exports = (c.flags & TUTTI_DEVICE_EXPORTS) != 0;
  require(exports == (d.memory->export_memory != nullptr), "D-1",
          "query {} TUTTI_DEVICE_EXPORTS, but export_memory {}: the flag and the functions come together",
          exports ? "sets" : "lacks", d.memory->export_memory ? "is there" : "is NULL");
  require((c.flags & 0xffffffffu & ~uint64_t{TUTTI_DEVICE_EXPORTS}) == 0, "D-1", "query: unknown flags {:#x}", c.flags);
  for (int again = 0; again < 3; ++again) {
    const tutti_device_caps more = device_under_test(bench).caps;
    require(std::memcmp(&more, &c, sizeof c) == 0, "D-1", "query fills other values when it is asked again");
  }
}

void whose_memory(Bench& bench) {
  Station s(bench);
  const uint32_t devices = std::min(s.device.caps.devices, 4u);
  for (uint32_t of = 0; of < devices; ++of)
    for (const uint64_t bytes : {uint64_t{1}, uint64_t{1000}, uint64_t{1} << 20}) {
      uint8_t* base = s.allocate(bytes, of);
      for (const uint64_t at : {uint64_t{0}, bytes / 3, bytes - 1}) {
        const tutti_pointer p = s.classify(base + at);
        require(p.kind == s.device.caps.memory_kind, "D-2",
                "classify of byte {} of an allocation of {} bytes says memory kind {}, expected {}", at, bytes, p.kind,
                s.device.caps.memory_kind);
        require(p.device == of, "D-2", "classify of memory of device {} says device {}", of, p.device);
        const auto* begin = static_cast<const uint8_t*>(p.base);
        require(begin <= base && p.bytes >= bytes && base + bytes <= begin + p.bytes, "D-2",
                "classify of byte {} of the {} bytes at {} says that its allocation is {} bytes at {}", at, bytes,
                static_cast<void*>(base), p.bytes, p.base);
      }
    }
}

void not_its_memory(Bench& bench) {
  Station s(bench);
  const auto host = [&](const void* address, const char* what) {
    const tutti_pointer p = s.classify(address);
    require(p.kind == TUTTI_MEMORY_HOST, "D-3", "classify of {} ({}) says memory kind {}: it is not the device's",
            what, address, p.kind);
  };
  static const int constant = 7;
  int local = 0;
  std::vector<char> heap(100'000);
  void* mapped = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  host(nullptr, "NULL");
  host(&local, "a variable on the stack");
  host(&constant, "a constant of the program");
  host(heap.data() + 777, "memory of the heap");
  host(mapped, "a mapped page that nobody may touch");
  munmap(mapped, 4096);
  host(s.map(4096).host, "host memory that streams see");
  uint8_t* ours = s.allocate(4096);
  const tutti_pointer beyond = s.classify(ours + s.classify(ours).bytes);
  require(beyond.kind == TUTTI_MEMORY_HOST || beyond.base != ours, "D-3",
          "classify of the byte behind an allocation says that it belongs to it");
}

void buffer_ids(Bench& bench) {
  Station s(bench);
  std::set<uint64_t> ids;
  const auto enter = [&](uint8_t* address, int k) {
    const uint64_t id = s.classify(address).buffer_id;
    require(id == s.classify(address + 99).buffer_id, "D-4", "two addresses of one allocation have two buffer_ids");
    require(ids.insert(id).second, "D-4",
            "allocation {} has the buffer_id {} of an earlier one: ids differ also when an address comes again", k, id);
  };
  for (int k = 0; k < 40; ++k) {
    uint8_t* address = s.allocate(5000, static_cast<uint32_t>(k) % s.device.caps.devices);
    enter(address, k);
    if (k % 2) s.release(address);
  }
}

void allocations(Bench& bench) {
  Station s(bench);
  std::vector<std::pair<uint8_t*, std::vector<uint8_t>>> all;
  for (uint32_t k = 0; k < 12; ++k) {
    std::vector<uint8_t> bytes(1 + k * 331, static_cast<uint8_t>(k * 17 + 1));
    uint8_t* address = s.allocate(bytes.size());
    require(reinterpret_cast<uintptr_t>(address) % 256 == 0, "D-5", "allocate gave {}, which is no multiple of 256",
            static_cast<void*>(address));
    s.put(address, bytes);
    all.emplace_back(address, std::move(bytes));
  }
  for (const auto& [address, bytes] : all)
    require(s.get(address, bytes.size()) == bytes, "D-5",
            "the {} bytes of an allocation are not what was put there: does it overlap another?", bytes.size());
  void* none = nullptr;
  const tutti_device* d = s.device.memory;
  const uint32_t beyond = s.device.caps.devices;
  const tutti_status status = call("allocate", false, [&] { return d->allocate(d->self, beyond, 100, &none); });
  require(status < 0, "D-5", "allocate on device {} returned {}, but there are {} (0 to {})", beyond,
          status_text(status), beyond, beyond - 1);
}

void released(Bench& bench) {
  Station s(bench);
  for (int k = 0; k < 4; ++k) {
    uint8_t* address = s.allocate(10'000);
    s.release(address);
    tutti_pointer p{};
    p.struct_size = sizeof p;
    const tutti_device* d = s.device.memory;
    const tutti_status status = call("classify", false, [&] { return d->classify(d->self, address + 5, &p); });
    require(status == TUTTI_INVALID_ARGUMENT || (status == TUTTI_OK && p.kind == TUTTI_MEMORY_HOST), "D-6",
            "after release classify of an address of the allocation returns {} and memory kind {}: expected "
            "TUTTI_INVALID_ARGUMENT, or TUTTI_MEMORY_HOST",
            status_text(status), p.kind);
  }
}

void mapped_memory(Bench& bench) {
  Station s(bench);
  for (uint32_t of = 0; of < std::min(s.device.caps.devices, 4u); ++of) {
    void* stream = s.stream(of);
    Station::Mapped m = s.map(12'000);
    for (uint64_t i = 0; i < 6000; ++i) m.host[i] = static_cast<uint8_t>(i * 7);
    const void* source = m.seen;
    s.issue(stream, {copy(m.seen + 6000, &source, 6000)}, "D-7");
    s.finish(stream);
    // Other cases check that events and copies are exact. Here the bytes must arrive at all.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(bench.patience);
    while (std::memcmp(m.host, m.host + 6000, 5000) != 0) {
      require(std::chrono::steady_clock::now() < limit, "D-7",
              "what a stream of device {} copied within mapped host memory is not what the host put there after "
              "map_host (or the host does not see it): *device_address must show the same memory",
              of);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    // Mapped and unmapped again and again.
    const tutti_device* d = s.device.memory;
    void* again = nullptr;
    // Not given back: a stream whose events lie may still write there.
    auto* own = static_cast<uint8_t*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (own == MAP_FAILED) throw CannotRun{"no memory"};
    for (int k = 0; k < 3; ++k) {
      std::memset(own, k + 1, 8192);
      require(call("map_host", false, [&] { return d->map_host(d->self, own, 8192, &again); }) == TUTTI_OK, "D-7",
              "map_host of memory that was unmapped before: {}", last_error());
      const void* from = again;
      s.issue(stream, {copy(static_cast<uint8_t*>(again) + 4096, &from, 100)}, "D-7");
      s.finish(stream);
      require(call("unmap_host", false, [&] { return d->unmap_host(d->self, own); }) == TUTTI_OK, "D-7",
              "unmap_host: {}", last_error());
      for (int i = 0; i < 8192; ++i)
        require(own[i] == k + 1, "D-7", "unmap_host changed the caller's memory: byte {} is {}", i, own[i]);
    }
  }
}

void peers(Bench& bench) {
  Station s(bench);
  const tutti_device* d = s.device.memory;
  if (s.device.caps.devices < 2) throw NotOffered{"query says that there is one device: there is no peer"};
  for (uint32_t of = 0; of < 2; ++of) {
    const uint32_t peer = 1 - of;
    const tutti_status status = call("enable_peer", false, [&] { return d->enable_peer(d->self, of, peer); });
    if (status < 0) continue;  // it says why; E-5 holds it to that
    uint8_t *theirs = s.allocate(3000, peer), *ours = s.allocate(3000, of);
    std::vector<uint8_t> bytes(3000);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 13 + of);
    s.put(theirs, bytes, peer);
    s.put(ours, std::vector<uint8_t>(3000, 0xd7), of);
    void* stream = s.stream(of);
    const void* source = theirs;
    s.issue(stream, {copy(ours, &source, 3000)}, "D-8");
    s.finish(stream);
    require(s.get(ours, 3000, of) == bytes, "D-8",
            "enable_peer({}, {}) said TUTTI_OK, but a stream of device {} does not read what is in memory of device {}",
            of, peer, of, peer);
  }
}

// Everything that is made and given back, many times.
void many_lives(Bench& bench) {
  const auto live = [&](uint32_t lives) {
    Station s(bench);
    const DeviceUnderTest& t = s.device;
    const tutti_device* d = t.memory;
    const tutti_executor* e = t.executor;
    auto* page = static_cast<uint8_t*>(std::aligned_alloc(4096, 4096));
    for (uint32_t k = 0; k < lives; ++k) {
      void *address = nullptr, *seen = nullptr, *stream = nullptr;
      tutti_event* event = nullptr;
      call("allocate", false, [&] { return d->allocate(d->self, 0, 300, &address); });
      call("map_host", false, [&] { return d->map_host(d->self, page, 4096, &seen); });
      if (e->create_stream) call("create_stream", false, [&] { return e->create_stream(e->self, 0, &stream); });
      call("create_event", false, [&] { return e->create_event(e->self, 0, &event); });
      require(address && seen && event && (stream || !e->create_stream), "D-9",
              "turn {} of making memory, a stream and an event failed: {}", k, last_error());
      const void* source = seen;
      s.issue(stream, {copy(address, &source, 300), record_event(event)}, "D-9");
      s.until_done(event);
      e->destroy_event(e->self, event);
      if (stream) call("destroy_stream", false, [&] { return e->destroy_stream(e->self, stream); });
      call("unmap_host", false, [&] { return d->unmap_host(d->self, page); });
      call("release", false, [&] { return d->release(d->self, address); });
    }
    std::free(page);
  };
  require_no_growth("D-9", "making and giving back memory, mapped memory, a stream and an event", 300, 200, live);
}

}  // namespace

std::vector<ContractCase> device_cases() {
  return {
      {"query-repeats", "capabilities are legal, the same each time", {"D-1"}, 1, device_query_repeats},
      {"whose-memory", "classify of memory of every device", {"D-2"}, 2, whose_memory},
      {"not-its-memory", "classify of everything else", {"D-3"}, 2, not_its_memory},
      {"buffer-ids", "each allocation has its own", {"D-4"}, 3, buffer_ids},
      {"released", "classify after release", {"D-6"}, 3, released},
      {"mapped-memory", "host memory that streams see", {"D-7"}, 4, mapped_memory},
      {"allocations", "aligned, apart, of devices that there are", {"D-5", "X-1"}, 10, allocations},
      {"peers", "streams of a device read memory of another", {"D-8"}, 11, peers},
      {"many-lives", "200 times memory, streams and events", {"D-9"}, 60, many_lives},
  };
}

}  // namespace tutti::conformance::contract
