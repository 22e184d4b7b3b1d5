// SPDX-License-Identifier: Apache-2.0
//
// Memory of a device on its way to peers, and what a peer offers.
#pragma once

#include <tutti/plugin/transport.h>

#include <memory>

#include "devices.hpp"
#include "wire.hpp"

namespace tutti::cuda_ipc {

// An offer and, where its memory needs one, a descriptor.
struct Exported {
  Offer offer;
  sdk::FileDescriptor file;
};

// Exports [address, address + bytes), which lies in one allocation. Throws sdk::Error.
std::shared_ptr<Exported> export_device_memory(const Device& device, void* address, uint64_t bytes);
// Maps device memory that a peer offers for streams of a device: the base of the exporter's allocation. This process's
// own memory is given by its address, and nothing is to be closed. Throws sdk::Error.
void* map_offer(const Offer& offer, int file, const Device& device, uint32_t number);
// Throws sdk::Error for an offer of another device.
void require_device(const Offer& offer, const Device& device);
// Throws sdk::Error for an offer that cannot be right.
void check_offer(const Offer& offer);

}  // namespace tutti::cuda_ipc
