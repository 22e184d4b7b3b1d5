// SPDX-License-Identifier: Apache-2.0
//
// Things that a real device's driver may do and a kind model would not. TUTTI_SIMULATED_HAZARDS names those that are on
// (README.md has the list). Without the setting calls return at once and no call holds up another.
#pragma once

#include <atomic>
#include <cstdint>

namespace tutti::simulated {

// In the order of their names in hazards.cpp.
enum class Hazard : uint32_t {
  alloc,
  free,
  registering,
  import,
  launch,
  query,
  default_stream,
  handles,
  managed,
  ranges,
  capture,
  exit,
  count
};

// Throws sdk::Error where TUTTI_SIMULATED_HAZARDS names one that is unknown.
bool has(Hazard hazard);
// Throws sdk::Error, TUTTI_NOT_SUPPORTED, naming the hazard, unless it is on.
void require(Hazard hazard, const char* what);

// A call that waits for all streams of a device, or of all devices, as they are now. Other threads' queries wait with
// it where that hazard is on. Counted by Launches::synchronised whether it waits or not.
constexpr uint32_t all_devices = UINT32_MAX;
void synchronise(Hazard hazard, uint32_t device);
// Returns once no thread waits for the device in synchronise().
void await_driver(uint32_t device);

// The kernels and the kinds of copies that a device has loaded. The first use of one that prepare() has not loaded
// waits for the device.
void load_all(uint32_t device);
void load(uint32_t device, uint32_t kind, uint32_t dtype, uint32_t op);

// Has the program called exit(), so that the driver does nothing any more? Looks out for it from the first call on.
bool driver_is_gone();

}  // namespace tutti::simulated
