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
    throw sdk::error(TUTTI_NOT_FOUND,
                     "TUTTI_NCCL_SERVES={}: {}. Plugins are searched in tutti/ beside libtutti.so and in "
                     "TUTTI_PLUGIN_PATH",
                     name_, why);
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
  constexpr uint64_t known = TUTTI_TRANSPORT_NEEDS_FLUSH | TUTTI_TRANSPORT_MARKS;
  if (caps_.fragment_bytes < 4096 || (caps_.flags & 0xffff'ffff & ~known)) {
    table_->close_domain(domain_);
    throw sdk::error(TUTTI_NOT_SUPPORTED,
                     "transport {}: its capabilities have fragment_bytes {} (expected 4096 or more) and flags {:x} "
                     "(known are {:x})",
                     name_, caps_.fragment_bytes, caps_.flags, known);
  }
  if (caps_.reach < TUTTI_REACH_HOST)
    say(kLogWarn,
        fmt::format("tutti: TUTTI_NCCL_SERVES={}: this transport reaches threads of one process only", name_));
}

int Served::pointers() const {
  const bool cuda = table_->register_memory && caps_.memory_kinds & uint64_t{1} << TUTTI_MEMORY_CUDA;
  return kHostPointer | (cuda ? kCudaPointer | kDmaBuf : 0);
}

Memory* Served::register_memory(void* data, size_t bytes, int type, int fd, uint64_t fd_offset) {
  const bool is_device = type == kCudaPointer;
  if ((type != kHostPointer && !is_device) || !(pointers() & type))
    throw sdk::error(TUTTI_NOT_SUPPORTED,
                     "memory of type {} cannot be registered: transport {} accepts {} (ptrSupport)", type, name_,
                     pointers());
  auto made = std::make_unique<Memory>(Memory{static_cast<char*>(data), bytes, nullptr, is_device});
  if (!table_->register_memory || bytes == 0) return made.release();
  tutti_memory memory{};
  memory.struct_size = sizeof memory;
  memory.kind = is_device ? TUTTI_MEMORY_CUDA : TUTTI_MEMORY_HOST;
  memory.address = data;
  memory.bytes = bytes;
  memory.fd = fd;
  memory.fd_offset = fd_offset;
  const tutti_status status = table_->register_memory(domain_, &memory, &made->region);
  if (status == TUTTI_OK) return made.release();
  made->region = nullptr;
  const sdk::Error error = transport_error(status, name_, "register_memory");
  if (is_device) throw error;
  // Host memory needs no registration: where it cannot be had (a limit on locked memory) the transport copies.
  say(kLogInfo, std::string("tutti: ") + error.what());
  return made.release();
}

void Served::deregister_memory(Memory* memory) {
  const std::unique_ptr<Memory> owner(memory);
  if (!owner || !owner->region) return;
  const tutti_status status = table_->deregister_memory(domain_, owner->region);
  if (status != TUTTI_OK) throw transport_error(status, name_, "deregister_memory");
}

}  // namespace tutti::nccl::serve
