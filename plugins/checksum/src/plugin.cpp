// SPDX-License-Identifier: Apache-2.0
//
// The plugin "checksum": a transport over any other that seals each message (seal.hpp). Bytes that were changed, lost,
// doubled or overtaken on their way are never handed on.
#include <tutti/plugin/wrapper.h>

#include <algorithm>

#include "endpoint.hpp"

namespace tutti::checksum {
namespace {

// Fragments stay multiples of 64 bytes.
constexpr uint64_t fragment_reserve = 64;
static_assert(fragment_reserve >= seal_bytes);

class Sealing final : public Interposer {
 public:
  explicit Sealing(const tutti_transport& over) : Interposer(over) { register_no_memory(); }
  std::string wrapped() override { return {}; }  // not asked: what is wrapped is known

  tutti_status query(Domain& domain, tutti_transport_caps* caps) override {
    tutti_transport_caps whole{};
    if (const tutti_status status = inner_caps(domain, whole); status != TUTTI_OK) return status;
    if (whole.control_bytes < TUTTI_CONTROL_BYTES + seal_bytes)
      throw sdk::Error(TUTTI_NOT_SUPPORTED, "checksum: " + std::string(inner().api->name) +
                                                " carries control messages of " + std::to_string(whole.control_bytes) +
                                                " bytes; with a checksum " +
                                                std::to_string(TUTTI_CONTROL_BYTES + seal_bytes) + " are needed");
    whole.memory_kinds = uint64_t{1} << TUTTI_MEMORY_HOST;  // processors compute the checksums
    whole.flags = 0;
    whole.fragment_bytes -= fragment_reserve;
    whole.inline_bytes -= std::min(whole.inline_bytes, seal_bytes);
    whole.control_bytes -= static_cast<uint32_t>(seal_bytes);
    whole.struct_size = std::min<uint32_t>(caps->struct_size, sizeof whole);
    std::memcpy(caps, &whole, whole.struct_size);
    return TUTTI_OK;
  }
  bool shows(std::string_view id) override { return id != TUTTI_VIEW_ID; }
  std::unique_ptr<Interposer::Endpoint> make_endpoint(Domain& domain, const tutti_endpoint_config& config,
                                                      tutti_endpoint* opened) override {
    tutti_transport_caps caps{};
    if (const tutti_status status = inner_caps(domain, caps); status != TUTTI_OK)
      throw sdk::Error(status, "checksum: " + std::string(inner().api->name) + " has no capabilities any more");
    return std::make_unique<checksum::Endpoint>(domain, config, opened, caps.inline_bytes);
  }
  std::unique_ptr<Interposer::Link> make_link(Interposer::Endpoint& endpoint, uint32_t peer,
                                              tutti_link* connected) override {
    return std::make_unique<checksum::Link>(endpoint, peer, connected);
  }

 private:
  tutti_status inner_caps(Domain& domain, tutti_transport_caps& caps) {
    caps.struct_size = sizeof caps;
    return Interposer::query(domain, &caps);
  }
};

tutti_status wrap(void*, const tutti_transport* inner, const tutti_transport** outer) {
  return sdk::guard([&] {
    static std::mutex mutex;
    static auto& made = *new std::map<const tutti_transport*, std::unique_ptr<Sealing>>;
    const std::lock_guard lock(mutex);
    auto& over = made[inner];
    if (!over) over = std::make_unique<Sealing>(*inner);
    *outer = &over->table();
  });
}

constexpr const char* summary = "every message with its number and a checksum (TUTTI_WRAP=checksum)";
const tutti_wrapper wrapper{sizeof(tutti_wrapper), TUTTI_WRAPPER_STAMP, nullptr, summary, wrap};

}  // namespace
}  // namespace tutti::checksum

TUTTI_PLUGIN(checksum, "checksum", "0.1.0", "Tutti", "Apache-2.0", tutti::checksum::summary,
             {TUTTI_WRAPPER_ID, &tutti::checksum::wrapper});
