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

}  // namespace tutti::cuda
