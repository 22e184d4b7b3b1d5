// SPDX-License-Identifier: Apache-2.0
//
// Probes of a GPU's driver by plain CUDA calls: the driver's functions, processes with deadlines, and lines of facts.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace facts {

using Clock = std::chrono::steady_clock;
constexpr uint64_t page = 4096;
constexpr unsigned deadline_s = 20;

inline double milliseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

__attribute__((format(printf, 2, 3))) inline void tell(const char* fact, const char* format, ...) {
  std::printf("%-66s ", fact);
  va_list values;
  va_start(values, format);
  std::vprintf(format, values);
  va_end(values);
  std::printf("\n");
  std::fflush(stdout);
}

// With so many decimals, for tell().
inline std::string decimal(double value, int decimals) {
  char text[400];
  return std::string(text, std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, decimals).ptr);
}

template <typename Function>
Function entry(const char* name, unsigned version) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found{};
  if (cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &found) != cudaSuccess || !address)
    throw std::runtime_error(std::string("the driver has no ") + name);
  return reinterpret_cast<Function>(address);
}

struct Driver {
  CUresult (*name)(CUresult, const char**) = entry<decltype(name)>("cuGetErrorName", 6000);
  CUresult (*attribute)(int*, CUdevice_attribute, CUdevice) = entry<decltype(attribute)>("cuDeviceGetAttribute", 2000);
  CUresult (*state)(CUdevice, unsigned*, int*) = entry<decltype(state)>("cuDevicePrimaryCtxGetState", 7000);
  CUresult (*pointer)(void*, CUpointer_attribute, CUdeviceptr) = entry<decltype(pointer)>("cuPointerGetAttribute",
                                                                                          4000);
  CUresult (*range)(CUdeviceptr*, size_t*, CUdeviceptr) = entry<decltype(range)>("cuMemGetAddressRange", 3020);
  CUresult (*wait)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = entry<decltype(wait)>("cuStreamWaitValue32", 11070);
  CUresult (*write)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = entry<decltype(write)>("cuStreamWriteValue32",
                                                                                          11070);
  CUresult (*query)(CUevent) = entry<decltype(query)>("cuEventQuery", 2000);
  CUresult (*granularity)(size_t*, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) =
      entry<decltype(granularity)>("cuMemGetAllocationGranularity", 10020);
  CUresult (*create)(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
                     unsigned long long) = entry<decltype(create)>("cuMemCreate", 10020);
  CUresult (*hand_out)(void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                       unsigned long long) = entry<decltype(hand_out)>("cuMemExportToShareableHandle", 10020);
  CUresult (*take_in)(CUmemGenericAllocationHandle*, void*,
                      CUmemAllocationHandleType) = entry<decltype(take_in)>("cuMemImportFromShareableHandle", 10020);
  CUresult (*reserve)(CUdeviceptr*, size_t, size_t, CUdeviceptr,
                      unsigned long long) = entry<decltype(reserve)>("cuMemAddressReserve", 10020);
  CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                  unsigned long long) = entry<decltype(map)>("cuMemMap", 10020);
  CUresult (*access)(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) = entry<decltype(access)>("cuMemSetAccess",
                                                                                                    10020);
};
inline const Driver& driver() {
  static const Driver all;
  return all;
}

inline void require(const char* call, cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorName(error));
}
inline void require(const char* call, CUresult error) {
  const char* name = "unknown";
  if (error == CUDA_SUCCESS) return;
  driver().name(error, &name);
  throw std::runtime_error(std::string(call) + ": " + name);
}

// Runs a probe in a process of its own.
inline pid_t start(const char* what, const std::function<void()>& probe) {
  const pid_t child = fork();
  if (child != 0) return child;
  alarm(deadline_s);
  try {
    probe();
  } catch (const std::exception& e) {
    tell(what, "REFUSED: %s", e.what());
    std::_Exit(1);
  }
  std::_Exit(0);
}
inline void finish(const char* what, std::initializer_list<pid_t> children) {
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) tell(what, "HANGS: not done in %u s", deadline_s);
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGALRM) tell(what, "CRASHES: signal %d", WTERMSIG(status));
  }
}
inline void alone(const char* what, const std::function<void()>& probe) { finish(what, {start(what, probe)}); }

// A socket between two processes, for descriptors and records.
struct Post {
  int ends[2];
  Post() {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) throw std::runtime_error("socketpair");
  }
  void send(int from, const void* record, size_t bytes, int fd = -1) const {
    iovec part{const_cast<void*>(record), bytes};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
    msghdr message{};
    message.msg_iov = &part, message.msg_iovlen = 1;
    if (fd >= 0) {
      message.msg_control = control, message.msg_controllen = sizeof control;
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      *header = {CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
      std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    if (sendmsg(ends[from], &message, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes)) throw std::runtime_error("sendmsg");
  }
  int receive(int at, void* record, size_t bytes) const {
    iovec part{record, bytes};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part, message.msg_iovlen = 1;
    message.msg_control = control, message.msg_controllen = sizeof control;
    if (recvmsg(ends[at], &message, MSG_WAITALL) != static_cast<ssize_t>(bytes))
      throw std::runtime_error("the other process has said nothing");
    int fd = -1;
    if (const cmsghdr* header = CMSG_FIRSTHDR(&message)) std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return fd;
  }
  // In a process: this end alone, so that the other's end is seen.
  void keep(int end) const { close(ends[1 - end]); }
};
inline void both(const char* what, const std::function<void(const Post&, int end)>& probe) {
  const Post post;
  pid_t children[2];
  for (const int end : {0, 1})
    children[end] = start(what, [&, end] {
      post.keep(end);
      probe(post, end);
    });
  for (const int end : post.ends) close(end);
  finish(what, {children[0], children[1]});
}

// A page of words that a stream sees.
struct Words {
  explicit Words(int file = -1) {
    host = static_cast<uint32_t*>(
        mmap(nullptr, page, PROT_READ | PROT_WRITE, file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, file, 0));
    require("cudaHostRegister", cudaHostRegister(host, page, cudaHostRegisterPortable | cudaHostRegisterMapped));
    void* address = nullptr;
    require("cudaHostGetDevicePointer", cudaHostGetDevicePointer(&address, host, 0));
    seen = reinterpret_cast<CUdeviceptr>(address);
  }
  void set(uint32_t value) const { std::atomic_ref(host[0]).store(value); }
  uint32_t* host;
  CUdeviceptr seen;
};

inline cudaStream_t make_stream() {
  cudaStream_t stream = nullptr;
  require("cudaStreamCreateWithFlags", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

// How calls behave that Tutti makes, or that an application makes beside it: driver_facts.cpp.
void driver_facts();

}  // namespace facts
