// SPDX-License-Identifier: Apache-2.0
//
// A failed CUDA call as an error that names the call, the code and CUDA's message.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <string>
#include <tutti/sdk/plugin.hpp>

namespace tutti::cuda {

// `call`: what was called and with what, "cudaMalloc of 4096 bytes on device 1".
[[noreturn]] void fail(const std::string& call, cudaError_t error);
[[noreturn]] void fail(const std::string& call, CUresult error);

inline void check(const char* call, cudaError_t error) {
  if (error != cudaSuccess) fail(call, error);
}
inline void check(const char* call, CUresult error) {
  if (error != CUDA_SUCCESS) fail(call, error);
}

// Makes a device the thread's current one for as long as it lives. Its context is then the thread's too, which the
// driver's own calls need and which a thread that never called the runtime does not have.
class CurrentDevice {
 public:
  explicit CurrentDevice(uint32_t device) : device_(static_cast<int>(device)) {
    check("cudaGetDevice", cudaGetDevice(&before_));
    if (const cudaError_t error = cudaSetDevice(device_); error != cudaSuccess)
      fail("cudaSetDevice(" + std::to_string(device) + ")", error);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice() {
    if (before_ != device_) cudaSetDevice(before_);
  }

 private:
  int device_, before_ = 0;
};

// While an application captures a stream into a graph, calls that might synchronise are forbidden to all its threads:
// asking for an event or allocating memory would spoil the capture. Ours concern no captured stream and are let
// through.
class BesideCapture {
 public:
  BesideCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  BesideCapture(const BesideCapture&) = delete;
  BesideCapture& operator=(const BesideCapture&) = delete;
  ~BesideCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace tutti::cuda
