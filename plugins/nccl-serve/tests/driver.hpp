// SPDX-License-Identifier: Apache-2.0
//
// NCCL's side of libnccl-net-tutti.so: loads it, and calls its table as NCCL does.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <tutti/sdk/nccl_net_calls.hpp>
#include <vector>

namespace nccl_driver {

using tutti::nccl::Calls;
using tutti::nccl::Result;
using Handle = std::array<char, tutti::nccl::kHandleBytes>;

// The library's words to NCCL's debug function.
struct Said {
  std::mutex mutex;
  std::string warnings;
  static Said& all() {
    static Said said;
    return said;
  }
  std::string take() {
    const std::lock_guard lock(mutex);
    return std::exchange(warnings, "");
  }
};
__attribute__((format(printf, 5, 6))) inline void take_log(int level, unsigned long, const char*, int,
                                                           const char* format, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (std::getenv("TUTTI_TEST_LOG")) std::fprintf(stderr, "%d: %s\n", level, text);
  if (level != tutti::nccl::kLogWarn) return;
  const std::lock_guard lock(Said::all().mutex);
  Said::all().warnings += std::string(text) + "\n";
}

// Repeats `holds`; false after a minute.
inline bool until(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!holds())
    if (std::chrono::steady_clock::now() > end) return false;
  return true;
}

// The table of one version, with a context for a transport.
class Plugin {
 public:
  Plugin(const std::string& file, int version, const std::string& transport) {
    setenv("TUTTI_NCCL_SERVES", transport.c_str(), 1);
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::abort();
    }
    calls_ = tutti::nccl::find_calls(
        version, [&](int v) { return dlsym(library, ("ncclNetPlugin_v" + std::to_string(v)).c_str()); });
    Said::all().take();
    tutti::nccl::CommConfig config{-1};
    result = calls_->init(&context, 1, &config, take_log, nullptr);
  }
  ~Plugin() {
    if (result == Result::kSuccess) calls_->finalize(context);
  }
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;
  const Calls* operator->() const { return calls_.get(); }
  const Calls& calls() const { return *calls_; }

  Result listen(Handle& handle, void** listener) const { return calls_->listen(context, 0, handle.data(), listener); }
  Result connect(Handle& handle, void** comm) const {
    static tutti::nccl::CommConfig config{-1};
    return calls_->connect(context, 0, &config, handle.data(), comm);
  }

  void* context = nullptr;
  Result result = Result::kSuccess;  // of init

 private:
  std::unique_ptr<Calls> calls_;
};

// Registered memory.
struct Buffer {
  Buffer(const Calls& of, void* by, size_t n, unsigned seed = 0) : calls(of), comm(by), bytes(n) {
    unsigned x = seed * 2654435761u + 1;
    for (auto& b : bytes) b = seed ? static_cast<unsigned char>((x = x * 1664525u + 1013904223u) >> 24) : 0xEE;
    result = calls.register_memory(comm, bytes.data(), n, tutti::nccl::kHostPointer, &memory);
  }
  ~Buffer() {
    if (memory) calls.deregister_memory(comm, memory);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  bool begins_like(const Buffer& other, size_t n) const {
    return std::equal(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n), other.bytes.begin());
  }
  const Calls& calls;
  void* const comm;
  std::vector<unsigned char> bytes;
  void* memory = nullptr;
  Result result;
};

// A request of NCCL's proxy: posted again and again until it is taken, then tested until it is done.
struct Transfer {
  explicit Transfer(const Calls& of) : calls(&of) {}
  Result send(void* comm, Buffer& from, size_t bytes, int tag, size_t at = 0) {
    return calls->send(comm, from.bytes.data() + at, bytes, tag, from.memory, &request);
  }
  Result receive(void* comm, const std::vector<Buffer*>& into, std::vector<int> tags) {
    std::vector<void*> data, memory;
    std::vector<size_t> bytes;
    for (Buffer* b : into) {
      data.push_back(b->bytes.data());
      bytes.push_back(b->bytes.size());
      memory.push_back(b->memory);
    }
    return calls->receive(comm, static_cast<int>(into.size()), data.data(), bytes.data(), tags.data(), memory.data(),
                          &request);
  }
  // False: test has failed.
  bool poll() {
    int is_done = 0;
    if (!request || done) return true;
    result = calls->test(request, &is_done, sizes.data());
    done = is_done;
    return result == Result::kSuccess;
  }
  const Calls* calls;
  void* request = nullptr;
  bool done = false;
  Result result = Result::kSuccess;
  std::array<int, 32> sizes{};
};

}  // namespace nccl_driver
