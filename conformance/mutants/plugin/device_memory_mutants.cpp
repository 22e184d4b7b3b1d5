// SPDX-License-Identifier: Apache-2.0
//
// Mutants of transfers of device memory (T-40). They are over a transport of this file's own, put over shm: it accepts
// the memory of the simulated device by its descriptor, and what a RECV wrote there arrives with flush. It is whole
// where TUTTI_MUTANT is "device-memory".
#include <sys/mman.h>

#include <cstring>

#include "mutant.hpp"

namespace tutti::mutants {
namespace {

bool is(const char* name) { return fault() == name; }
constexpr uint64_t simulated = uint64_t{1} << TUTTI_MEMORY_SIMULATED;

// A registration. Of device memory: where this process sees the descriptor's bytes.
struct Region {
  tutti_region* inner = nullptr;
  uint8_t* seen = nullptr;
  const uint8_t* address = nullptr;
  uint64_t bytes = 0;
};
Region& region_of(tutti_region* handle) { return *reinterpret_cast<Region*>(handle); }

struct RegionDomain : Domain {
  using Domain::Domain;
  tutti_status register_memory(const tutti_memory* memory, tutti_region** region) override {
    auto made = std::make_unique<Region>();
    if (memory->kind == TUTTI_MEMORY_SIMULATED) {
      void* seen = mmap(nullptr, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd,
                        static_cast<off_t>(memory->fd_offset));
      if (seen == MAP_FAILED) throw sdk::Error(TUTTI_SYSTEM, "device-memory: its descriptor cannot be mapped");
      *made = {nullptr, static_cast<uint8_t*>(seen), static_cast<const uint8_t*>(memory->address), memory->bytes};
    } else if (const tutti_status status = Domain::register_memory(memory, &made->inner); status != TUTTI_OK) {
      return status;
    }
    *region = reinterpret_cast<tutti_region*>(made.release());
    return TUTTI_OK;
  }
  tutti_status deregister_memory(tutti_region* handle) override {
    const std::unique_ptr<Region> region(&region_of(handle));
    if (!region->seen) return Domain::deregister_memory(region->inner);
    munmap(region->seen, region->bytes);
    return TUTTI_OK;
  }
};

// Bytes that have come and wait for flush.
struct Staged {
  uint8_t* to;
  std::vector<uint8_t> bytes;
};

struct StagingLink : Link {
  using Link::Link;
  std::vector<Staged> arrived;
  tutti_status flush(tutti_region*, const void*, uint64_t) override {
    if (is("flush-does-nothing")) return reached(), TUTTI_OK;
    for (const Staged& one : arrived) std::memcpy(one.to, one.bytes.data(), one.bytes.size());
    arrived.clear();
    return TUTTI_OK;
  }
};

struct StagingEndpoint : Watching {
  using Watching::Watching;
  std::unordered_map<uint64_t, Staged> staged;  // RECVs, by cookie
  bool before(tutti_transfer& t, tutti_status&) override {
    if (!t.region) return true;
    const Region& region = region_of(t.region);
    t.region = region.inner;
    if (!region.seen) return true;
    if (is("reaches-device-memory")) reached(), reach(static_cast<const uint8_t*>(t.data));
    uint8_t* at = region.seen + (static_cast<const uint8_t*>(t.data) - region.address);
    t.data = at;
    if (is_send(t)) return true;
    Staged& one = staged[t.cookie] = {at, std::vector<uint8_t>(t.bytes)};
    t.data = one.bytes.data();
    return true;
  }
  bool told(tutti_completion& record, const tutti_transfer& t) override {
    const auto found = staged.find(record.cookie);
    if (found == staged.end()) return true;
    if (is("flush-is-not-asked-for")) reached();
    static_cast<StagingLink&>(link_of(t)).arrived.push_back(std::move(found->second));
    staged.erase(found);
    return true;
  }
  static void reach(const uint8_t* byte) { [[maybe_unused]] const uint8_t value = *static_cast<const volatile uint8_t*>(byte); }
};

struct DeviceMemory : With<StagingEndpoint, StagingLink> {
  std::string wrapped() override { return "shm"; }
  bool shows(std::string_view id) override { return id != TUTTI_VIEW_ID; }  // regions are this file's own
  std::unique_ptr<Domain> make_domain(tutti_domain* inner) override {
    return std::make_unique<RegionDomain>(*this, inner);
  }
  tutti_status query(Domain& domain, tutti_transport_caps* caps) override {
    sdk::accepted_offer(caps);
    tutti_transport_caps whole{};
    whole.struct_size = sizeof whole;
    const tutti_status status = Mutant::query(domain, &whole);
    if (status != TUTTI_OK) return status;
    whole.memory_kinds |= simulated;
    if (!is("flush-is-not-asked-for")) whole.flags |= TUTTI_TRANSPORT_NEEDS_FLUSH;
    fill_room(caps, whole);
    return status;
  }
};

tutti_status flush(tutti_link* link, tutti_region* region, const void* data, uint64_t bytes) {
  return sdk::guard([&] { return sdk::from_handle<Link>(link).flush(region, data, bytes); });
}

}  // namespace

const tutti_transport* device_memory_transport() {
  constexpr std::string_view names[] = {"device-memory", "flush-does-nothing", "flush-is-not-asked-for",
                                        "reaches-device-memory"};
  if (std::find(std::begin(names), std::end(names), fault()) == std::end(names)) return nullptr;
  static auto* const transport = new DeviceMemory();
  static tutti_transport table = transport->table();
  table.flush = flush;  // shm has none to wrap
  return &table;
}

}  // namespace tutti::mutants
