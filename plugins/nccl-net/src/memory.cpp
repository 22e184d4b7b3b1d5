// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

namespace tutti::nccl {

void* Registrations::handle(const Region& region, void* comm) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = handles_.try_emplace({&region, comm}, nullptr);
  if (!is_new) return at->second;
  try {
    at->second = region.dma_buf.get() >= 0 ? network_.register_dma_buf(comm, region.address, region.bytes,
                                                                       region.dma_buf_offset, region.dma_buf.get())
                                           : network_.register_memory(comm, region.address, region.bytes,
                                                                      region.is_device() ? kCudaPointer : kHostPointer);
  } catch (...) {
    handles_.erase(at);
    throw;
  }
  return at->second;
}

void Registrations::forget(const Region& region) {
  const std::lock_guard lock(mutex_);
  for (auto at = handles_.lower_bound({&region, nullptr}); at != handles_.end() && at->first.first == &region;
       at = handles_.erase(at))
    network_.deregister_memory(at->first.second, at->second);
}

void Registrations::forget_comm(void* comm) {
  const std::lock_guard lock(mutex_);
  std::erase_if(handles_, [&](const auto& entry) {
    if (entry.first.second != comm) return false;
    network_.deregister_memory(comm, entry.second);
    return true;
  });
}

}  // namespace tutti::nccl
