// SPDX-License-Identifier: Apache-2.0
#include "served.hpp"

#include <tutti/registry.h>

#include <atomic>
#include <map>
#include <memory>

#include "log.hpp"
#include "wire.hpp"

namespace tutti::nccl::serve {
namespace {

std::atomic<Served*> current_one{nullptr};

}  // namespace

Served& Served::find(const Settings& settings) {
  static std::mutex mutex;
  static auto* all = new std::map<std::string, std::unique_ptr<Served>>();  // what lives in a process lives to its end
  const std::lock_guard lock(mutex);
  auto& one = (*all)[settings.transport];
  if (!one) one.reset(new Served(settings));
  current_one = one.get();
  return *one;
}

Served* Served::current() { return current_one; }

Served::Served(const Settings& settings) : settings_(settings), name_(settings.transport) {
  std::string why;
  table_ = find_transport(name_, &why);
  if (!table_)
    throw sdk::error(TUTTI_NOT_FOUND, "TUTTI_NCCL_SERVES={}: {}. Plugins are searched in tutti/ beside libtutti.so and in "
                     "TUTTI_PLUGIN_PATH", name_, why);
  if (name_.size() >= kNameBytes)
    throw sdk::error(TUTTI_NOT_SUPPORTED, "TUTTI_NCCL_SERVES={}: the name has more than {} bytes", name_,
                     kNameBytes - 1);
  tutti_domain_config config{};
  config.struct_size = sizeof config;
  config.device_kind = TUTTI_MEMORY_HOST;
  tutti_status status = table_->open_domain(table_->self, &config, &domain_);
  if (status != TUTTI_OK) throw transport_error(status, name_, "open_domain");
  caps_.struct_size = sizeof caps_;
  status = table_->query(domain_, &caps_);
  if (status != TUTTI_OK) {
    const sdk::Error error = transport_error(status, name_, "query");
    table_->close_domain(domain_);
    throw error;
  }
  if (caps_.reach < TUTTI_REACH_HOST) {
    table_->close_domain(domain_);
    throw sdk::error(TUTTI_NOT_SUPPORTED,
                     "TUTTI_NCCL_SERVES={}: this transport reaches threads of one process only; NCCL's ranks need one "
                     "that reaches other processes",
                     name_);
  }
}

Memory* Served::register_memory(void* data, size_t bytes, int type, int fd, uint64_t fd_offset) {
  if (type != kHostPointer)
    throw sdk::error(TUTTI_NOT_SUPPORTED, "regMr with type {}: transport {} accepts host memory (NCCL_PTR_HOST, 1) only",
                     type, name_);
  auto made = std::make_unique<Memory>();
  made->data = static_cast<char*>(data);
  made->bytes = bytes;
  if (table_->register_memory && bytes > 0) {
    tutti_memory memory{};
    memory.struct_size = sizeof memory;
    memory.kind = TUTTI_MEMORY_HOST;
    memory.address = data;
    memory.bytes = bytes;
    memory.fd = fd;
    memory.fd_offset = fd_offset;
    const tutti_status status = table_->register_memory(domain_, &memory, &made->region);
    // Host memory needs no registration: where it cannot be had (a limit on locked memory) the transport copies.
    if (status != TUTTI_OK) {
      made->region = nullptr;
      say(kLogInfo, std::string("tutti: ") + transport_error(status, name_, "register_memory").what());
    }
  }
  return made.release();
}

void Served::deregister_memory(Memory* memory) {
  const std::unique_ptr<Memory> owner(memory);
  if (!owner || !owner->region) return;
  const tutti_status status = table_->deregister_memory(domain_, owner->region);
  if (status != TUTTI_OK) throw transport_error(status, name_, "deregister_memory");
}

}  // namespace tutti::nccl::serve
