// SPDX-License-Identifier: Apache-2.0
//
// Mutants of mapped/1. faults.cpp describes each. They are over the plugin that TUTTI_MUTANT_OVER names.
#include <tutti/plugin/mapped.h>

#include <cstdlib>

#include "mutant.hpp"

namespace tutti::mutants {
namespace {

bool is(const char* name) {
  if (fault() != name) return false;
  reached();
  return true;
}

// cuda-ipc registers no memory.
struct Shared : Mutant {
  Shared() { register_no_memory(); }
};

const tutti_mapped* inner;
Shared* mutant;
const void* (*interface_of)(void* self, const char* id);

// By the handles that the wrapped transport gives.
std::map<tutti_share*, Link*> links;
constexpr uint32_t known_kind = TUTTI_MEMORY_SIMULATED;

tutti_status share(tutti_link* link, const tutti_share_config* config, tutti_share** share, tutti_mapped_place* place) {
  Link& known = sdk::from_handle<Link>(link);
  tutti_share_config changed = *config;
  tutti_mapped_device device = *config->device;
  if (device.kind != known_kind && is("mapped-any-kind")) device.kind = known_kind;
  changed.device = &device;
  const tutti_status status = inner->share(known.inner(), &changed, share, place);
  if (status != TUTTI_OK) return status;
  links[*share] = &known;
  if (place->host && is("mapped-not-zeroed")) static_cast<uint8_t*>(place->host)[place->bytes - 1] = 1;
  return status;
}

tutti_status share_state(tutti_share* share) {
  const tutti_status status = inner->share_state(share);
  return status == TUTTI_AGAIN && is("mapped-at-once") ? TUTTI_OK : status;
}

tutti_status withdraw(tutti_share* share) {
  static tutti_share* lost = nullptr;
  if (share == lost) return TUTTI_AGAIN;
  const Link& link = *links[share];
  tutti_status status = inner->withdraw(share);
  if (status == TUTTI_AGAIN && is("mapped-withdrawn-at-once")) return TUTTI_OK;
  if (status == TUTTI_PEER_FAILED && is("mapped-lost-is-again")) return lost = share, TUTTI_AGAIN;
  tutti_link* again = nullptr;
  if (status == TUTTI_OK && fault() == "mapped-held-by-the-dead" &&
      link.endpoint.api().connect(link.endpoint.inner(), link.peer, &again) < 0)
    reached(), status = sdk::report(TUTTI_PEER_FAILED, "it may have mapped it");
  return status;
}

tutti_status open_mapping(tutti_link* link, uint64_t tag, const tutti_mapped_device* device, tutti_mapping** mapping,
                          tutti_mapped_place* place) {
  tutti_link* const known = sdk::from_handle<Link>(link).inner();
  if (device->kind != known_kind && is("mapped-refused-in-silence"))
    return sdk::report(TUTTI_NOT_SUPPORTED, "an unknown kind of device");
  tutti_status status = inner->open_mapping(known, tag, device, mapping, place);
  for (uint64_t other = 0; status == TUTTI_AGAIN && other < 16 && is("mapped-any-tag"); ++other)
    status = inner->open_mapping(known, other, device, mapping, place);
  if (status == TUTTI_OK && place->host && is("mapped-copy")) place->host = std::calloc(1, place->bytes);
  return status;
}

tutti_status close_mapping(tutti_mapping* mapping) { return inner->close_mapping(mapping); }

tutti_status decline(tutti_link* link, uint64_t tag, tutti_status status, const char* why) {
  if (is("mapped-declined-in-silence")) return TUTTI_OK;
  return inner->decline(sdk::from_handle<Link>(link).inner(), tag, status, why);
}

constexpr tutti_mapped mapped{sizeof mapped, TUTTI_MAPPED_STAMP, share,         share_state,
                              withdraw,      open_mapping,       close_mapping, decline};

}  // namespace

const tutti_transport* mapped_transport() {
  if (!fault().starts_with("mapped-")) return nullptr;
  mutant = new Shared();
  static tutti_transport table = mutant->table();
  interface_of = table.get_interface;
  table.get_interface = [](void* self, const char* id) -> const void* {
    if (std::strcmp(id, TUTTI_MAPPED_ID) != 0) return interface_of(self, id);
    const tutti_transport& over = *mutant->inner().api;
    inner = static_cast<const tutti_mapped*>(over.get_interface(over.self, id));
    return inner ? &mapped : nullptr;
  };
  return &table;
}

}  // namespace tutti::mutants
