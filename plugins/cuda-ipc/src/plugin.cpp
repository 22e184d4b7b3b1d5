// SPDX-License-Identifier: Apache-2.0
//
// The plugin "cuda-ipc": ranks of one host map each other's device memory (mapped/1).
#include <tutti/sdk/transport.hpp>

#include "link.hpp"

namespace tutti::cuda_ipc {
namespace {

using sdk::local::kControlBytes;

constexpr const char* kSummary = "ranks of one host map each other's device memory (CUDA IPC)";

struct CudaIpc {
  static constexpr const char* name = "cuda-ipc";
  static constexpr const char* summary = kSummary;
  using Domain = cuda_ipc::Domain;
  using Endpoint = sdk::local::Endpoint<cuda_ipc::Link>;
  using Link = cuda_ipc::Link;

  static void query(Domain& domain, tutti_transport_caps& caps) {
    const sdk::local::Settings& settings = domain.settings();
    if (!has_devices())
      throw sdk::Error(TUTTI_NOT_SUPPORTED,
                       "cuda-ipc: no device plugin that works here exports memory (tutti-info lists plugins)");
    caps.reach = TUTTI_REACH_HOST;
    caps.memory_kinds = uint64_t{1} << TUTTI_MEMORY_HOST;  // of transfers: device memory is mapped
    caps.flags = TUTTI_TRANSPORT_MARKS;
    caps.inline_bytes = sdk::local::kInlineBytes;
    caps.fragment_bytes = settings.slot_bytes;
    caps.receive_depth = sdk::local::kPostDepth;
    caps.control_bytes = kControlBytes;
    // Behind shm, which host memory is to take.
    caps.latency_ns = 2000;
    caps.bandwidth = 8'000'000'000;
  }
  static const void* interface(std::string_view id);
};

// Gives *place what fits of the place that `body` fills.
template <typename Body>
auto with_place(tutti_mapped_place* place, Body&& body) {
  sdk::accepted_offer(place);
  tutti_mapped_place full{};
  full.struct_size = sizeof full;
  auto made = body(full);
  fill_room(place, full);
  return made;
}

constexpr tutti_mapped mapped{
    sizeof(tutti_mapped),
    TUTTI_MAPPED_STAMP,
    [](tutti_link* link, const tutti_share_config* config, tutti_share** share, tutti_mapped_place* place) {
      return sdk::guard([&] {
        const tutti_share_config known = sdk::accepted(config);
        *share = sdk::to_handle<tutti_share>(
            with_place(place, [&](auto& full) { return sdk::from_handle<Link>(link).share(known, full); }));
      });
    },
    [](tutti_share* share) {
      return sdk::guard([&]() -> tutti_status {
        auto& known = sdk::from_handle<Share>(share);
        return known.link->share_state(known);
      });
    },
    [](tutti_share* share) {
      return sdk::guard([&]() -> tutti_status {
        auto& known = sdk::from_handle<Share>(share);
        return known.link->withdraw(known);
      });
    },
    [](tutti_link* link, uint64_t tag, const tutti_mapped_device* device, tutti_mapping** mapping,
       tutti_mapped_place* place) {
      return sdk::guard([&]() -> tutti_status {
        const tutti_mapped_device known = sdk::accepted(device);
        Mapping* made =
            with_place(place, [&](auto& full) { return sdk::from_handle<Link>(link).open_mapping(tag, known, full); });
        if (!made) return TUTTI_AGAIN;
        *mapping = sdk::to_handle<tutti_mapping>(made);
        return TUTTI_OK;
      });
    },
    [](tutti_mapping* mapping) {
      return sdk::guard([&] {
        auto& known = sdk::from_handle<Mapping>(mapping);
        known.link->close_mapping(known);
      });
    },
    [](tutti_link* link, uint64_t tag, tutti_status status, const char* why) {
      return sdk::guard([&] { sdk::from_handle<Link>(link).decline(tag, status, why); });
    }};

constexpr tutti_transport transport = sdk::make_transport<CudaIpc>();
static_assert(kControlBytes >= TUTTI_CONTROL_BYTES);

const void* CudaIpc::interface(std::string_view id) { return id == TUTTI_MAPPED_ID ? &mapped : nullptr; }

}  // namespace
}  // namespace tutti::cuda_ipc

TUTTI_PLUGIN(cuda_ipc, "cuda-ipc", "0.1.0", "Tutti", "Apache-2.0", tutti::cuda_ipc::kSummary,
             {TUTTI_TRANSPORT_ID, &tutti::cuda_ipc::transport});
