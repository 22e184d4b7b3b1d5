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

// Makes a device the thread's current one for as long as it lives.
class CurrentDevice {
 public:
  explicit CurrentDevice(uint32_t device) {
    check("cudaGetDevice", cudaGetDevice(&before_));
    if (before_ != static_cast<int>(device))
      if (const cudaError_t error = cudaSetDevice(static_cast<int>(device)); error != cudaSuccess)
        fail("cudaSetDevice(" + std::to_string(device) + ")", error);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice() { cudaSetDevice(before_); }

 private:
  int before_ = 0;
};

}  // namespace tutti::cuda
