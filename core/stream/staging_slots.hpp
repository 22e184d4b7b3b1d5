// SPDX-License-Identifier: Apache-2.0
//
// The slots of a staged channel: memory that this rank's streams and the link's transport both reach.
//
// Where the transport takes the device's memory they are device memory, registered by a dma-buf: streams copy within
// the device, and the adapter reads and writes the slots without the host. Else they are host memory that the device
// sees, registered where the transport takes that, so that it need not copy once more. The peer chooses for itself.
#pragma once

#include <memory>
#include <string>

#include "engine/fabric/link.hpp"
#include "stream/mapped_memory.hpp"

namespace tutti::core {

class StagingSlots {
 public:
  // On a device, for a port. Nothing of this rank is pending on the device. `in_host`: never device memory. Throws
  // Failure.
  StagingSlots(const DeviceTables& tables, uint32_t device, const Port& port, uint64_t bytes, bool in_host);
  StagingSlots(const StagingSlots&) = delete;
  StagingSlots& operator=(const StagingSlots&) = delete;
  // No command and no transfer names them any more. Memory that the transport does not deregister is kept.
  ~StagingSlots();

  std::byte* posted() const { return posted_; }  // as transfers name them
  std::byte* seen() const { return seen_; }      // as streams do
  // As transfers name them, from `offset` on.
  RegisteredSpan span(uint64_t offset) const { return {region_, offset, on_device()}; }
  bool on_device() const { return device_memory_ != nullptr; }
  // Why they are not device memory; "": they are, or nobody wanted them to be.
  const std::string& why_in_host() const { return why_in_host_; }

 private:
  std::string try_device(uint32_t device, const Port& port);
  std::string register_device(const Port& port, uint32_t kind);
  void register_host();

  DeviceTables tables_;
  std::shared_ptr<Domain> domain_;
  uint64_t bytes_;
  std::unique_ptr<MappedMemory> host_memory_;
  void* device_memory_ = nullptr;
  std::byte* posted_ = nullptr;
  std::byte* seen_ = nullptr;
  tutti_region* region_ = nullptr;
  std::string why_in_host_;
};

}  // namespace tutti::core
