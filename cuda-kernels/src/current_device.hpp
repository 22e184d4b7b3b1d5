// SPDX-License-Identifier: Apache-2.0
//
// The state that a thread needs while it calls CUDA; the previous state is restored afterwards.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tutti::cuda {

constexpr uint32_t most_devices = 64;

// Makes the primary context of a device the thread's current one for as long as it lives, unless the thread has one of
// that device. By the driver's calls: cudaSetDevice would also make a context on the device that it goes back to, and
// most of the runtime's calls make one on device 0 in a thread that has none, half a gigabyte of memory each.
class CurrentDevice {
 public:
  explicit CurrentDevice(uint32_t device);
  // For calls that concern no device: the thread's own context; in a thread without one, that of a device which is in
  // use, or of device 0.
  CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice();

 private:
  void push(uint32_t device);
  bool pushed_ = false;
};

// The device of a stream that is neither of the default ones.
uint32_t device_of_stream(CUstream stream);
// The device of the thread's current context; only where there is one.
uint32_t device_of_thread();
// Does this process use the device already?
bool has_context(uint32_t device);
// A device that this process already uses, or -1.
int used_device();

// While an application captures a stream into a graph, calls that might synchronise are forbidden to all its threads:
// asking for an event or allocating memory would spoil the capture. Ours concern no captured stream and are let
// through. The thread has a context.
class BesideCapture {
 public:
  BesideCapture();
  BesideCapture(const BesideCapture&) = delete;
  BesideCapture& operator=(const BesideCapture&) = delete;
  ~BesideCapture();

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace tutti::cuda
