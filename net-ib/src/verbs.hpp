// SPDX-License-Identifier: Apache-2.0
//
// libibverbs' objects with owners, and its completion codes in words.
#pragma once

#include <infiniband/verbs.h>
#include <tutti/plugin/transport.h>

#include <atomic>
#include <memory>
#include <string>

#include "settings.hpp"

namespace tutti::ib {

template <auto Destroy>
struct Destroyer {
  template <typename T>
  void operator()(T* object) const {
    Destroy(object);
  }
};
using DeviceList = std::unique_ptr<ibv_device*, Destroyer<ibv_free_device_list>>;
using Context = std::unique_ptr<ibv_context, Destroyer<ibv_close_device>>;
using ProtectionDomain = std::unique_ptr<ibv_pd, Destroyer<ibv_dealloc_pd>>;
using Registration = std::unique_ptr<ibv_mr, Destroyer<ibv_dereg_mr>>;
using Channel = std::unique_ptr<ibv_comp_channel, Destroyer<ibv_destroy_comp_channel>>;
using CompletionQueue = std::unique_ptr<ibv_cq, Destroyer<ibv_destroy_cq>>;
using SharedReceives = std::unique_ptr<ibv_srq, Destroyer<ibv_destroy_srq>>;
using QueuePair = std::unique_ptr<ibv_qp, Destroyer<ibv_destroy_qp>>;

// "transport retry counter exceeded: peer unreachable or its port is down".
std::string completion_text(ibv_wc_status status);

// Throws sdk::Error that begins with `cannot`.
void set_non_blocking(int fd, const std::string& cannot);

// The asynchronous events of a queue pair; its qp_context points here.
struct QueuePairEvents {
  std::atomic<bool> last_receive_reached = false;  // it takes no more from its shared receive queue
  std::atomic<bool> failed = false;
};
// ... and of a device.
struct DeviceEvents {
  std::atomic<uint32_t> changes = 0;  // so many told of its ports, its addresses, or a failure
  std::atomic<bool> fatal = false;    // nothing moves any more
};

// Takes the device's asynchronous events without waiting; its async_fd must be non-blocking. [any thread]
void take_events(ibv_context* context, DeviceEvents& device);

// Registers memory. Throws sdk::Error, which names the memlock limit if that is the cause.
Registration register_bytes(ibv_pd* pd, void* address, uint64_t bytes, int access, const std::string& device);

// The same for [fd_offset, fd_offset + bytes) of a dma-buf, which requests address from memory.address on.
Registration register_dma_buf(ibv_pd* pd, const tutti_memory& memory, int access, const std::string& device);
// The reason why the device cannot do that, or "". Tries with an invalid descriptor: a device that can complains of it.
std::string lacks_dma_buf(ibv_context* context);

// A block of pages, registered.
class Slab {
 public:
  Slab(ibv_pd* pd, uint64_t bytes, const std::string& device);
  ~Slab();
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  char* data() const { return data_; }
  uint32_t key() const { return registration_->lkey; }

 private:
  char* data_;
  uint64_t bytes_;
  Registration registration_;
};

}  // namespace tutti::ib
