// SPDX-License-Identifier: Apache-2.0
#include "current_device.hpp"

#include <array>
#include <atomic>
#include <string>

#include "cuda_error.hpp"
#include "driver.hpp"

namespace tutti::cuda {
namespace {

// Retained once and for the process's life: the runtime keeps it, too.
CUcontext primary_context(uint32_t device) {
  static std::array<std::atomic<CUcontext>, most_devices> retained;
  if (device >= most_devices)
    throw sdk::Error(TUTTI_INVALID_ARGUMENT,
                     "device " + std::to_string(device) + ": expected a number below " + std::to_string(most_devices));
  CUcontext context = retained[device].load(std::memory_order_acquire);
  if (context) return context;
  if (const CUresult error = driver().retain_primary_context(&context, static_cast<CUdevice>(device));
      error != CUDA_SUCCESS)
    fail("cuDevicePrimaryCtxRetain of device " + std::to_string(device) +
             " (nvidia-smi shows its compute mode and who uses it)",
         error);
  retained[device].store(context, std::memory_order_release);
  return context;
}

// The device of the thread's context, if it has one. Without one cuCtxGetDevice would fail, which tools report that
// look at every call (compute-sanitizer).
bool find_device_of_thread(CUdevice& device) {
  CUcontext context = nullptr;
  return driver().current_context(&context) == CUDA_SUCCESS && context &&
         driver().context_device(&device) == CUDA_SUCCESS;
}

}  // namespace

CurrentDevice::CurrentDevice(uint32_t device) {
  CUdevice mine = 0;
  if (!find_device_of_thread(mine) || static_cast<uint32_t>(mine) != device) push(device);
}

CurrentDevice::CurrentDevice() {
  CUdevice mine = 0;
  if (find_device_of_thread(mine)) return;
  const int used = used_device();
  push(used < 0 ? 0 : static_cast<uint32_t>(used));
}

void CurrentDevice::push(uint32_t device) {
  check("cuCtxPushCurrent", driver().push_context(primary_context(device)));
  pushed_ = true;
}

CurrentDevice::~CurrentDevice() {
  CUcontext ours = nullptr;
  if (pushed_) driver().pop_context(&ours);
}

uint32_t device_of_thread() {
  CUdevice device = 0;
  check("cuCtxGetDevice", driver().context_device(&device));
  return static_cast<uint32_t>(device);
}

uint32_t device_of_stream(CUstream stream) {
  CUcontext context = nullptr, popped = nullptr;
  check("cuStreamGetCtx", driver().stream_context(stream, &context));
  check("cuCtxPushCurrent of the stream's context", driver().push_context(context));
  CUdevice device = 0;
  const CUresult result = driver().context_device(&device);
  driver().pop_context(&popped);
  check("cuCtxGetDevice of the stream's context", result);
  return static_cast<uint32_t>(device);
}

bool has_context(uint32_t device) {
  unsigned flags = 0;
  int active = 0;
  return driver().primary_context_state(static_cast<CUdevice>(device), &flags, &active) == CUDA_SUCCESS && active;
}

int used_device() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) return -1;
  for (int device = 0; device < devices; ++device)
    if (has_context(static_cast<uint32_t>(device))) return device;
  return -1;
}

BesideCapture::BesideCapture() { check("cuThreadExchangeStreamCaptureMode", driver().exchange_capture_mode(&mode_)); }
BesideCapture::~BesideCapture() { driver().exchange_capture_mode(&mode_); }

}  // namespace tutti::cuda
