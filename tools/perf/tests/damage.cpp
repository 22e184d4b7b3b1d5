// SPDX-License-Identifier: Apache-2.0
//
// Loaded before libtutti (LD_PRELOAD), this damages what TUTTI_PERF_DAMAGE names, so that tutti-perf can be seen to
// notice: "output" flips a bit of the last element of rank 1's all-reduce, "input" one of rank 1's input, "guard" one
// behind its output, "error" makes the call of rank 1 fail. "gradient" flips a bit of the gradient that was marked
// last.
#include <dlfcn.h>
#include <tutti/gradients.h>
#include <tutti/tutti.h>

#include <cstdlib>
#include <cstring>

extern "C" TUTTI_EXPORT tutti_status tutti_all_reduce(tutti_comm* comm, const void* in, void* out, uint64_t count,
                                                      uint32_t dtype, uint32_t op, const tutti_options* options,
                                                      tutti_request** request) {
  using Function = decltype(&tutti_all_reduce);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "tutti_all_reduce"));
  const char* damage = std::getenv("TUTTI_PERF_DAMAGE");
  const bool here = damage && tutti_comm_rank(comm) == 1 && count > 0;
  if (here && std::strcmp(damage, "error") == 0) return TUTTI_INTERNAL;
  const tutti_status status = real(comm, in, out, count, dtype, op, options, request);
  constexpr uint64_t element = 4;
  auto* bytes = static_cast<unsigned char*>(out);
  if (here && std::strcmp(damage, "output") == 0) bytes[element * count - 1] ^= 1;
  if (here && std::strcmp(damage, "guard") == 0) bytes[element * count] ^= 1;
  if (here && std::strcmp(damage, "input") == 0) static_cast<unsigned char*>(const_cast<void*>(in))[0] ^= 1;
  return status;
}

namespace {
thread_local unsigned char* last_gradient = nullptr;
}

extern "C" TUTTI_EXPORT tutti_status tutti_gradients_ready(tutti_gradients* gradients, uint64_t tensor, void* data,
                                                           uint64_t count) {
  using Function = decltype(&tutti_gradients_ready);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "tutti_gradients_ready"));
  last_gradient = static_cast<unsigned char*>(data);
  return real(gradients, tensor, data, count);
}

extern "C" TUTTI_EXPORT tutti_status tutti_gradients_wait(tutti_gradients* gradients) {
  using Function = decltype(&tutti_gradients_wait);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "tutti_gradients_wait"));
  const tutti_status status = real(gradients);
  const char* damage = std::getenv("TUTTI_PERF_DAMAGE");
  if (damage && std::strcmp(damage, "gradient") == 0) last_gradient[0] ^= 1;
  return status;
}
