// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <tutti/base/file_descriptor.hpp>

#ifndef MFD_NOEXEC_SEAL  // of Linux 6.3, which an older C library does not know
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace tutti {

// A new memory file (memfd) without a name and without bytes, closed on exec, to which seals can be added: its
// descriptor, or -1 with errno. /proc/PID/maps shows the label. The file can never be executed where the kernel knows
// such files: some sandboxes and vm.memfd_noexec=2 refuse all others, and kernels before Linux 6.3 refuse these.
inline int make_unnamed_file(const char* label) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int file = ::memfd_create(label, kFlags | MFD_NOEXEC_SEAL);
  return above_standard_descriptors(file >= 0 ? file : ::memfd_create(label, kFlags));
}

}  // namespace tutti
