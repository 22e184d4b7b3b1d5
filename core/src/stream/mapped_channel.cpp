// SPDX-License-Identifier: Apache-2.0
#include "stream/mapped_channel.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>

#include "bootstrap/failure.hpp"
#include "plugins/host.hpp"

namespace tutti::core {
namespace {

// The words, and one more that the receiver sets when it has unmapped the slots.
constexpr uint64_t file_bytes = StreamChannel::words_bytes + 64;

Descriptor make_words() {
  Descriptor file(memfd_create("tutti-stream-words", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ftruncate(file.get(), file_bytes) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    throw Failure(TUTTI_NO_RESOURCES, "no shared words: memfd: " + std::generic_category().message(errno));
  return file;
}

void require_words(int file) {
  struct stat state {};
  const int seals = file < 0 ? -1 : fcntl(file, F_GET_SEALS);
  if (file < 0 || fstat(file, &state) != 0 || static_cast<uint64_t>(state.st_size) != file_bytes || seals < 0 ||
      !(seals & F_SEAL_SHRINK))
    throw Failure(TUTTI_MISMATCH, "what came with the offer is no file of words");
}

}  // namespace

MappedChannel::MappedChannel(const DeviceTables& tables, uint32_t device, Link* link)
    : StreamChannel(link, true), tables_(tables), peer_(link->peer) {
  const tutti_device* memory = tables.memory;
  if (!TUTTI_HAS(tutti_device, memory, export_memory))
    throw Failure(TUTTI_NOT_SUPPORTED, fmt::format("device {} exports no memory", memory->name));
  Descriptor file = make_words();
  words_.emplace(tables, file_bytes, file.get());
  if (const tutti_status status = memory->allocate(memory->self, device, slots * slot_bytes, &memory_); status < 0)
    throw Failure(status, fmt::format("device {}: {}", memory->name, take_plugin_error()));
  int32_t fd = -1;
  if (const tutti_status status = memory->export_memory(memory->self, memory_, &offer_.memory, &fd); status < 0) {
    const std::string why = take_plugin_error();
    memory->release(memory->self, memory_);
    throw Failure(status, fmt::format("device {}: {}", memory->name, why));
  }
  offer_.slots = Descriptor(fd);
  offer_.words = std::move(file);
  place(static_cast<std::byte*>(memory_), *words_, 0);
  for (uint64_t k = 0; k < slots; ++k) *host_word(k, false) = 1;
}

MappedChannel::MappedChannel(const DeviceTables& tables, uint32_t device, Link* link, const Offer& offer)
    : StreamChannel(link, false), tables_(tables), peer_(link->peer) {
  const tutti_device* memory = tables.memory;
  if (!TUTTI_HAS(tutti_device, memory, import_memory))
    throw Failure(TUTTI_NOT_SUPPORTED, fmt::format("device {} maps no memory of other processes", memory->name));
  require_words(offer.words.get());
  const uint64_t at = offer.memory.offset, all = offer.memory.bytes;
  if (at > all || all - at < slots * slot_bytes)
    throw Failure(TUTTI_MISMATCH, fmt::format("{} bytes at {} were offered, expected {}", all, at, slots * slot_bytes));
  words_.emplace(tables, file_bytes, offer.words.get());
  if (const tutti_status status =
          memory->import_memory(memory->self, device, &offer.memory, offer.slots.get(), &memory_);
      status < 0)
    throw Failure(status, fmt::format("device {}: {}", memory->name, take_plugin_error()));
  place(static_cast<std::byte*>(memory_) + at, *words_, 0);
}

bool MappedChannel::in_use() const {
  return outgoing_ && !not_mapped_ && !std::atomic_ref(*unmapped()).load(std::memory_order_acquire);
}

MappedChannel::~MappedChannel() {
  const tutti_device* memory = tables_.memory;
  if (!outgoing_) {
    if (memory->close_import(memory->self, memory_) < 0)
      log(TUTTI_LOG_WARN, memory->name,
          fmt::format("memory of rank {} cannot be unmapped: {}", peer_, take_plugin_error()));
    std::atomic_ref(*unmapped()).store(1, std::memory_order_release);
    return;
  }
  if (in_use())
    log(TUTTI_LOG_WARN, memory->name,
        fmt::format("rank {} has not unmapped this process's memory: {} bytes are kept until the process ends", peer_,
                    slots * slot_bytes));
  else
    memory->release(memory->self, memory_);
}

void MappedChannel::announce(uint64_t bytes) {
  ++announced_;
  bytes_ += bytes;
}

// The streams need nobody: this only sees that they move.
bool MappedChannel::advance(const std::function<bool(Link&)>&) {
  bool moved = false;
  for (uint64_t k = 0; k < 2 * slots; ++k) {
    const uint32_t now = std::atomic_ref(*host_word(k / 2, k % 2)).load(std::memory_order_relaxed);
    moved |= now != seen_[k];
    seen_[k] = now;
  }
  return moved;
}

}  // namespace tutti::core
