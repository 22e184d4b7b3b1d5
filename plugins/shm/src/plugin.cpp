// SPDX-License-Identifier: Apache-2.0
//
// The plugin "shm": shared memory between the ranks of one host.
#include <tutti/plugin/test_settings.h>

#include <tutti/sdk/transport.hpp>

#include "link.hpp"
#include "region.hpp"

namespace tutti::shm {

using namespace sdk::local;

struct Shm {
  static constexpr const char* name = "shm";
  static constexpr const char* summary = "shared memory between the ranks of one host (sealed memfds, no names)";
  using Domain = shm::Domain;
  using Endpoint = sdk::local::Endpoint<shm::Link>;
  using Link = shm::Link;

  static void query(Domain& domain, tutti_transport_caps& caps) {
    const Settings& settings = domain.settings();
    make_memory_file("tutti-shm-query", kPage);  // throws where the kernel lacks sealed memory files
    caps.reach = TUTTI_REACH_HOST;
    caps.memory_kinds = uint64_t{1} << TUTTI_MEMORY_HOST;
    caps.flags = TUTTI_TRANSPORT_MARKS;
    caps.inline_bytes = kInlineBytes;
    caps.fragment_bytes = settings.slot_bytes;
    caps.receive_depth = kPostDepth;
    caps.control_bytes = kControlBytes;
    caps.latency_ns = 80;
    caps.bandwidth = 12'000'000'000;
  }
};

namespace {
constexpr tutti_transport transport = sdk::make_transport<Shm>();
constexpr char test_settings[] =
    "TUTTI_SHM_SLOTS 1 8 1\n"
    "TUTTI_SHM_SLOT_BYTES 4096 16777216 64\n"
    "TUTTI_SHM_STREAM_BYTES 0 18446744073709551615 1\n"
    "TUTTI_SHM_DIRECT_COPY 0 1 1\n"
    "TUTTI_SHM_TEST_FIRST 0 4294967279 1\n";
static_assert(kMaxSlots == 8 && kLastFirst == 4294967279);
static_assert(kControlBytes >= TUTTI_CONTROL_BYTES);
}  // namespace

}  // namespace tutti::shm

TUTTI_PLUGIN(shm, "shm", "0.1.0", "Tutti", "Apache-2.0", "shared memory between the ranks of one host",
             {TUTTI_TRANSPORT_ID, &tutti::shm::transport}, {TUTTI_TEST_SETTINGS_ID, tutti::shm::test_settings});
