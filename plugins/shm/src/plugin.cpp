// SPDX-License-Identifier: Apache-2.0
//
// The plugin "shm": shared memory between the ranks of one host.
#include <tutti/sdk/transport.hpp>

#include "endpoint.hpp"
#include "link.hpp"
#include "region.hpp"

namespace tutti::shm {

struct Shm {
  static constexpr const char* name = "shm";
  static constexpr const char* summary = "shared memory between the ranks of one host (sealed memfds, no names)";
  using Domain = shm::Domain;
  using Endpoint = shm::Endpoint;
  using Link = shm::Link;

  static void query(tutti_transport_caps& caps) {
    const Settings settings = Settings::read();
    make_memory_file("tutti-shm-query", kPage);  // throws where the kernel lacks sealed memory files
    local_place();
    caps.reach = TUTTI_REACH_HOST;
    caps.memory_kinds = uint64_t{1} << TUTTI_MEMORY_HOST;
    caps.inline_bytes = kInlineBytes;
    caps.fragment_bytes = settings.slot_bytes;
    caps.receive_depth = kPostDepth;
    caps.latency_ns = 80;
    caps.bandwidth = 12'000'000'000;
  }
  static const void* interface(std::string_view id);
};

namespace {
constexpr tutti_view view = sdk::make_view<Link>();
constexpr tutti_wait_fd wait_fd = sdk::make_wait_fd<Endpoint>();
constexpr tutti_transport transport = sdk::make_transport<Shm>();
static_assert(kControlBytes == TUTTI_CONTROL_BYTES);
}  // namespace

const void* Shm::interface(std::string_view id) {
  if (id == TUTTI_VIEW_ID) return &view;
  if (id == TUTTI_WAIT_FD_ID) return &wait_fd;
  return nullptr;
}

}  // namespace tutti::shm

TUTTI_PLUGIN(shm, "shm", "0.1.0", "Tutti", "Apache-2.0", "shared memory between the ranks of one host",
             {TUTTI_TRANSPORT_ID, &tutti::shm::transport});
