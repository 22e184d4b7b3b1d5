// SPDX-License-Identifier: Apache-2.0
//
// A transport over tcp that claims CUDA memory, for which host memory stands: what a RECV wrote becomes visible only
// after flush, whose first call of each pair says that it is under way. Its regions need a dma-buf, for which any file
// stands, or none where the address is a multiple of 64. With STAND_IN_LIES set it reports more completions than it was
// given room for; with STAND_IN_WAITS nothing arrives.
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <tutti/sdk/transport.hpp>
#include <vector>

namespace {

namespace sdk = tutti::sdk;

struct Region {
  char* address;
  std::vector<char> received;  // not visible yet
  bool is_device;
  bool is_flushing;
};
Region& of(tutti_region* region) { return sdk::from_handle<Region>(region); }

const tutti_transport& inner() {
  static const auto* const found =
      static_cast<const tutti_transport*>(sdk::host->find_interface(sdk::host->self, "tcp", TUTTI_TRANSPORT_ID));
  return *found;
}

tutti_status register_memory(tutti_domain*, const tutti_memory* memory, tutti_region** region) {
  return sdk::guard([&] {
    struct stat file;
    auto* const address = static_cast<char*>(memory->address);
    const bool is_device = memory->kind == TUTTI_MEMORY_CUDA;
    if (is_device && (memory->fd < 0 ? reinterpret_cast<uintptr_t>(address) % 64 != 0
                                     : ::fstat(memory->fd, &file) != 0 || memory->fd_offset != 4096))
      throw sdk::Error(TUTTI_NOT_SUPPORTED, "stand-in: no dma-buf");
    *region = sdk::to_handle<tutti_region>(new Region{address, std::vector<char>(memory->bytes), is_device, false});
  });
}
tutti_status deregister_memory(tutti_domain*, tutti_region* region) {
  delete &of(region);
  return TUTTI_OK;
}

tutti_status post(tutti_endpoint* endpoint, const tutti_transfer* transfer) {
  tutti_transfer copy = *transfer;
  if (transfer->region && of(transfer->region).is_device && transfer->kind == TUTTI_TRANSFER_RECV) {
    Region& region = of(transfer->region);
    copy.data = region.received.data() + (static_cast<char*>(transfer->data) - region.address);
  }
  copy.region = nullptr;
  return inner().post(endpoint, &copy);
}

tutti_status flush(tutti_link*, tutti_region* handle, const void* data, uint64_t bytes) {
  Region& region = of(handle);
  if ((region.is_flushing = !region.is_flushing)) return TUTTI_AGAIN;
  const auto at = static_cast<size_t>(static_cast<const char*>(data) - region.address);
  std::memcpy(region.address + at, region.received.data() + at, bytes);
  return TUTTI_OK;
}

const tutti_transport table = [] {
  tutti_transport t{};
  t.struct_size = sizeof t;
  t.name = "stand-in";
  t.summary = "host memory that stands for a device's";
  t.open_domain = [](void*, const tutti_domain_config* config, tutti_domain** domain) {
    return inner().open_domain(inner().self, config, domain);
  };
  t.close_domain = [](tutti_domain* domain) { inner().close_domain(domain); };
  t.query = [](tutti_domain* domain, tutti_transport_caps* caps) {
    const tutti_status status = inner().query(domain, caps);
    caps->memory_kinds |= uint64_t{1} << TUTTI_MEMORY_CUDA;
    caps->flags |= TUTTI_TRANSPORT_NEEDS_FLUSH;
    return status;
  };
  t.register_memory = register_memory;
  t.deregister_memory = deregister_memory;
  t.open_endpoint = [](tutti_domain* domain, const tutti_endpoint_config* config, tutti_endpoint** endpoint) {
    return inner().open_endpoint(domain, config, endpoint);
  };
  t.close_endpoint = [](tutti_endpoint* endpoint) { inner().close_endpoint(endpoint); };
  t.connect = [](tutti_endpoint* endpoint, uint32_t peer, tutti_link** link) {
    return inner().connect(endpoint, peer, link);
  };
  t.receive_pair = [](tutti_endpoint* endpoint, uint32_t peer, const void* data, uint64_t bytes) {
    return inner().receive_pair(endpoint, peer, data, bytes);
  };
  t.post = post;
  t.progress = [](tutti_endpoint* endpoint, tutti_completion* completions, uint32_t capacity,
                  uint32_t* n) -> tutti_status {
    *n = 0;
    if (std::getenv("STAND_IN_WAITS")) return TUTTI_OK;
    const tutti_status status = inner().progress(endpoint, completions, capacity, n);
    if (std::getenv("STAND_IN_LIES")) *n = capacity + 1;
    return status;
  };
  t.send_control = [](tutti_link* link, const void* data, uint64_t bytes) {
    return inner().send_control(link, data, bytes);
  };
  t.abort = [](tutti_endpoint* endpoint) { return inner().abort(endpoint); };
  t.get_interface = [](void*, const char*) -> const void* { return nullptr; };
  t.flush = flush;
  return t;
}();

}  // namespace

TUTTI_PLUGIN(stand_in, "stand-in", "0.1.0", "Tutti", "Apache-2.0", table.summary, {TUTTI_TRANSPORT_ID, &table});
