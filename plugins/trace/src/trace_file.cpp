// SPDX-License-Identifier: Apache-2.0
#include "trace_file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string_view>
#include <tutti/sdk/plugin.hpp>
#include <tutti/sdk/text.hpp>

namespace tutti::trace {
namespace {

// A part of a file's name.
std::string plain(std::string text) {
  for (char& c : text)
    if (!is_letter_or_digit(c) && c != '-' && c != '_') c = '_';
  return text.substr(0, 40);
}

std::string path_of(const tutti_tracer_config& config) {
  char numbers[48];
  std::snprintf(numbers, sizeof numbers, "-%016llx-%u", static_cast<unsigned long long>(config.communicator),
                config.rank);
  return std::string(config.place) + "/" + plain(config.name) + numbers + TUTTI_TRACE_SUFFIX;
}

sdk::Error refused(const std::string& why) {
  return {TUTTI_INVALID_ARGUMENT, why +
                                      "; expected a folder that this process may write: make it with mkdir -p, or "
                                      "unset TUTTI_TRACE"};
}

// The text without its end where it is too long.
template <size_t capacity>
void fill(char (&to)[capacity], std::string_view text) {
  std::memcpy(to, text.data(), std::min(text.size(), capacity));
}

// FNV-1a-64.
uint64_t hash_bytes(const void* data, size_t bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3u;
  return hash;
}

tutti_trace_header header_of(const tutti_tracer_config& config) {
  tutti_trace_header header{};
  header.magic = TUTTI_TRACE_MAGIC;
  header.version = TUTTI_TRACE_VERSION;
  header.header_bytes = sizeof header;
  header.record_bytes = config.record_bytes;
  header.rank = config.rank;
  header.nranks = config.nranks;
  header.pid = static_cast<uint32_t>(getpid());
  header.communicator = config.communicator;
  header.clock = config.clock;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  header.created_ns = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  header.least_step_call = config.least_step_call;
  fill(header.name, config.name);
  gethostname(header.host_name, sizeof header.host_name - 1);
  fill(header.program, program_invocation_short_name);
  header.checksum = hash_bytes(&header, offsetof(tutti_trace_header, checksum));
  return header;
}

}  // namespace

void check_folder(const std::string& folder) {
  struct stat status {};
  if (folder.empty()) throw refused("it names no folder");
  if (stat(folder.c_str(), &status) != 0) throw refused(system_text(errno));
  if (!S_ISDIR(status.st_mode)) throw refused("it is a file");
  if (access(folder.c_str(), W_OK | X_OK) != 0) throw refused(system_text(errno));
}

TraceFile::TraceFile(const tutti_tracer_config& config)
    : path_(path_of(config)),
      file_(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)),
      record_bytes_(config.record_bytes) {
  if (!file_) throw refused("cannot create " + path_ + ": " + system_text(errno));
  rlimit largest{};  // a longer file would end the process by SIGXFSZ
  if (getrlimit(RLIMIT_FSIZE, &largest) == 0) most_bytes_ = std::min<uint64_t>(most_bytes_, largest.rlim_cur);
  const tutti_trace_header header = header_of(config);
  if (most_bytes_ < sizeof header + end_bytes) throw refused(path_ + " may not grow to a header's size (ulimit -f)");
  try {
    append(&header, sizeof header, most_bytes_);
  } catch (const sdk::Error& error) {
    throw refused(error.what());
  }
}

void TraceFile::append(const void* data, uint64_t bytes, uint64_t most) {
  const bool is_end = most == most_bytes_;
  if ((full_ && !is_end) || bytes_ + bytes > most) {
    full_ = true;
    throw sdk::Error(TUTTI_NO_RESOURCES,
                     path_ + " has reached " + std::to_string(bytes_) + " bytes and may not grow further");
  }
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t n =
        pwrite(file_.get(), static_cast<const char*>(data) + done, bytes - done, static_cast<off_t>(bytes_ + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int reason = errno;
      full_ = true;
      (void)ftruncate(file_.get(), static_cast<off_t>(bytes_));  // no part of a record stays
      throw sdk::system_error("cannot write " + path_, reason);
    }
    done += static_cast<uint64_t>(n);
  }
  bytes_ += bytes;
}

}  // namespace tutti::trace
