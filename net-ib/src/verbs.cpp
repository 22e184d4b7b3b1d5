// SPDX-License-Identifier: Apache-2.0
#include "verbs.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <utility>

namespace tutti::ib {

std::string completion_text(ibv_wc_status status) {
  static constexpr std::pair<ibv_wc_status, const char*> words[] = {
      {IBV_WC_RETRY_EXC_ERR, "transport retry counter exceeded: peer unreachable or its port is down"},
      {IBV_WC_RNR_RETRY_EXC_ERR,
       "receiver-not-ready retry counter exceeded: the peer has no receive buffers, though it gave credit"},
      {IBV_WC_WR_FLUSH_ERR, "flushed: the queue pair was in the error state"},
      {IBV_WC_REM_ACCESS_ERR, "remote access error: the peer's memory is not registered (any more) for these bytes"},
      {IBV_WC_REM_INV_REQ_ERR, "remote invalid request: the peer's queue pair does not take this operation"},
      {IBV_WC_REM_OP_ERR, "remote operation error: the peer's adapter could not complete it"},
      {IBV_WC_REM_ABORT_ERR, "the peer's adapter aborted the operation"},
      {IBV_WC_LOC_LEN_ERR, "local length error: a message is longer than its buffer or than the path allows"},
      {IBV_WC_LOC_PROT_ERR, "local protection error: local memory is not registered (any more) for these bytes"},
      {IBV_WC_LOC_QP_OP_ERR, "local queue pair error: the adapter could not send"},
      {IBV_WC_FATAL_ERR, "fatal adapter error: it needs a reset"},
      {IBV_WC_RESP_TIMEOUT_ERR, "response timeout: the peer's adapter did not answer"}};
  for (const auto& [code, text] : words)
    if (code == status) return text;
  return fmt::format("{} (completion status {})", ibv_wc_status_str(status), static_cast<int>(status));
}

void set_non_blocking(int fd, const std::string& cannot) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) throw sdk::system_error(cannot, errno);
}

void take_events(ibv_context* context, DeviceEvents& device) {
  ibv_async_event event{};
  while (ibv_get_async_event(context, &event) == 0) {
    switch (event.event_type) {
      case IBV_EVENT_QP_LAST_WQE_REACHED:
        if (auto* events = static_cast<QueuePairEvents*>(event.element.qp->qp_context))
          events->last_receive_reached = true;
        break;
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
        if (auto* events = static_cast<QueuePairEvents*>(event.element.qp->qp_context)) events->failed = true;
        ++device.changes;
        break;
      case IBV_EVENT_DEVICE_FATAL:
        device.fatal = true;
        [[fallthrough]];
      case IBV_EVENT_PORT_ERR:
      case IBV_EVENT_PORT_ACTIVE:
      case IBV_EVENT_GID_CHANGE:
      case IBV_EVENT_LID_CHANGE:
      case IBV_EVENT_PKEY_CHANGE:
      case IBV_EVENT_CLIENT_REREGISTER:
        ++device.changes;
        break;
      default:
        break;
    }
    ibv_ack_async_event(&event);  // destroying the queue pair waits for this
  }
}

namespace {

std::string memlock_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : fmt::format("{} KiB", limit.rlim_cur / 1024);
}

}  // namespace

Registration register_bytes(ibv_pd* pd, void* address, uint64_t bytes, int access, const std::string& device) {
  Registration registration(ibv_reg_mr(pd, address, bytes, access));
  if (registration) return registration;
  const int code = errno;
  const std::string what = fmt::format("{}: cannot register {} bytes", device, bytes);
  if (code != ENOMEM && code != EAGAIN && code != EPERM) throw sdk::system_error(what, code);
  throw error(TUTTI_NO_RESOURCES,
              "{}: locked memory is limited to {} (RLIMIT_MEMLOCK); raise it with `ulimit -l unlimited`, a `memlock "
              "unlimited` line in /etc/security/limits.conf, LimitMEMLOCK=infinity for a service, or --ulimit "
              "memlock=-1 for a container",
              what, memlock_limit());
}

Registration register_dma_buf(ibv_pd* pd, const tutti_memory& memory, int access, const std::string& device) {
  Registration registration(ibv_reg_dmabuf_mr(pd, memory.fd_offset, memory.bytes,
                                              reinterpret_cast<uint64_t>(memory.address), memory.fd, access));
  if (!registration)
    throw system_error(errno, "{}: cannot register {} bytes at {} of dma-buf {}", device, memory.bytes,
                       memory.fd_offset, memory.fd);
  return registration;
}

std::string lacks_dma_buf(ibv_context* context) {
  const ProtectionDomain pd(ibv_alloc_pd(context));
  if (!pd) return "cannot allocate a protection domain: " + system_text(errno);
  errno = 0;
  const Registration none(ibv_reg_dmabuf_mr(pd.get(), 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE));
  return none || errno == EBADF ? "" : system_text(errno);
}

Slab::Slab(ibv_pd* pd, uint64_t bytes, const std::string& device) : bytes_(bytes) {
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) throw system_error(errno, "cannot allocate {} bytes", bytes);
  data_ = static_cast<char*>(block);
  try {
    registration_ = register_bytes(pd, data_, bytes, IBV_ACCESS_LOCAL_WRITE, device);
  } catch (...) {
    munmap(block, bytes);
    throw;
  }
}

Slab::~Slab() {
  registration_.reset();
  munmap(data_, bytes_);
}

}  // namespace tutti::ib
