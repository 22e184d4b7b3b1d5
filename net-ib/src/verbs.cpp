// SPDX-License-Identifier: Apache-2.0
#include "verbs.hpp"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <tutti/sdk/plugin.hpp>

namespace tutti::ib {

std::string in_words(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return "success";
    case IBV_WC_RETRY_EXC_ERR:
      return "transport retry counter exceeded: peer unreachable or its port is down";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "receiver-not-ready retry counter exceeded: the peer has no receive buffers, though it gave credit";
    case IBV_WC_WR_FLUSH_ERR:
      return "flushed: the queue pair was in the error state";
    case IBV_WC_REM_ACCESS_ERR:
      return "remote access error: the peer's memory is not registered (any more) for these bytes";
    case IBV_WC_REM_INV_REQ_ERR:
      return "remote invalid request: the peer's queue pair does not take this operation";
    case IBV_WC_REM_OP_ERR:
      return "remote operation error: the peer's adapter could not complete it";
    case IBV_WC_REM_ABORT_ERR:
      return "the peer's adapter aborted the operation";
    case IBV_WC_LOC_LEN_ERR:
      return "local length error: a message is longer than its buffer or than the path allows";
    case IBV_WC_LOC_PROT_ERR:
      return "local protection error: local memory is not registered (any more) for these bytes";
    case IBV_WC_LOC_QP_OP_ERR:
      return "local queue pair error: the adapter could not send";
    case IBV_WC_FATAL_ERR:
      return "fatal adapter error: it needs a reset";
    case IBV_WC_RESP_TIMEOUT_ERR:
      return "response timeout: the peer's adapter did not answer";
    default:
      return std::string(ibv_wc_status_str(status)) + " (completion status " + std::to_string(status) + ")";
  }
}

namespace {

std::string memlock_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur / 1024) + " KiB";
}

}  // namespace

Registration register_bytes(ibv_pd* pd, void* address, uint64_t bytes, int access, const std::string& device) {
  Registration registration(ibv_reg_mr(pd, address, bytes, access));
  if (registration) return registration;
  const int error = errno;
  const std::string what = device + ": cannot register " + std::to_string(bytes) + " bytes";
  if (error != ENOMEM && error != EAGAIN && error != EPERM) throw sdk::system_error(what, error);
  throw sdk::Error(TUTTI_NO_RESOURCES,
                   what + ": locked memory is limited to " + memlock_limit() +
                       " (RLIMIT_MEMLOCK); raise it with `ulimit -l unlimited`, a `memlock unlimited` line in "
                       "/etc/security/limits.conf, LimitMEMLOCK=infinity for a service, or --ulimit memlock=-1 for a "
                       "container");
}

Registration register_dma_buf(ibv_pd* pd, const tutti_memory& memory, int access, const std::string& device) {
  Registration registration(ibv_reg_dmabuf_mr(pd, memory.fd_offset, memory.bytes,
                                              reinterpret_cast<uint64_t>(memory.address), memory.fd, access));
  if (!registration)
    throw sdk::system_error(device + ": cannot register " + std::to_string(memory.bytes) + " bytes at " +
                                std::to_string(memory.fd_offset) + " of dma-buf " + std::to_string(memory.fd),
                            errno);
  return registration;
}

std::string lacks_dma_buf(ibv_context* context) {
  const ProtectionDomain pd(ibv_alloc_pd(context));
  if (!pd) return "no protection domain can be had: " + std::generic_category().message(errno);
  errno = 0;
  const Registration none(ibv_reg_dmabuf_mr(pd.get(), 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE));
  return none || errno == EBADF ? "" : std::generic_category().message(errno);
}

Slab::Slab(ibv_pd* pd, uint64_t bytes, const std::string& device) : bytes_(bytes) {
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) throw sdk::system_error("cannot allocate " + std::to_string(bytes) + " bytes", errno);
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
