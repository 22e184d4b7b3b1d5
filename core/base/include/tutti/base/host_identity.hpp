// SPDX-License-Identifier: Apache-2.0
//
// Which host a process runs on, for core and plugins alike. The kernel's boot id tells running kernels apart; a
// namespace separates processes of one kernel. Where a sandbox hides the boot id, the host's name stands in. Two hosts
// may then have one key, as clones of a virtual machine have with their boot ids: equal keys are a reason to try, and
// no proof.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <tutti/base/file_descriptor.hpp>

namespace tutti {

// The id of this boot of the kernel, 36 characters; "" with errno: it cannot be read.
inline std::string boot_id() {
  const FileDescriptor file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  std::array<char, 36> text{};
  const ssize_t length = ::read(file.get(), text.data(), text.size());
  if (length == static_cast<ssize_t>(text.size())) return {text.data(), text.size()};
  if (length >= 0) errno = ENODATA;
  return {};
}

// The number of this process's namespace of a kind ("net", "pid", "time"); 0: it is not known.
inline uint64_t namespace_number(const char* kind) {
  struct stat status {};
  return ::stat((std::string("/proc/self/ns/") + kind).c_str(), &status) == 0 ? status.st_ino : 0;
}

// Equal for processes of one running kernel and one namespace of the kind.
inline std::string host_space(const char* kind) {
  std::string kernel = boot_id();
  if (kernel.empty()) {
    std::array<char, 256> name{};
    kernel = ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
  }
  return kernel + "/" + std::to_string(namespace_number(kind));
}

// The key by which hosts are told apart: `given` (the value of TUTTI_HOST_ID, or nullptr) unless it is empty, else the
// kernel and the network namespace. All namespaces of a kernel share its boot id, but loopback addresses and unix
// sockets do not reach from one to another.
inline std::string host_key(const char* given) { return given && *given ? given : host_space("net"); }

}  // namespace tutti
