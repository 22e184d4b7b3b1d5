// SPDX-License-Identifier: Apache-2.0
//
// In the place of libibverbs' own ibv_reg_dmabuf_mr, for adapters that take no dma-buf: it registers a mapping of the
// descriptor, a file's. Linked into a test, or preloaded. With WITHOUT_DMA_BUF set it refuses as they do. The mapping is let go when the process ends.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>

extern "C" __attribute__((visibility("default"))) ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t bytes,
                                                                            uint64_t address, int fd, int access) {
  if (std::getenv("WITHOUT_DMA_BUF")) return errno = EOPNOTSUPP, nullptr;
  if (fcntl(fd, F_GETFD) < 0) return errno = EBADF, nullptr;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  return mapped == MAP_FAILED ? nullptr : ibv_reg_mr_iova(pd, mapped, bytes, address, static_cast<unsigned>(access));
}
