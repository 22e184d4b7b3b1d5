// SPDX-License-Identifier: Apache-2.0
#include "record/flight_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <tutti/flight_record.h>
#include <tutti/plugin/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <tutti/base/file_descriptor.hpp>
#include <tutti/base/system_text.hpp>
#include <tutti/base/text.hpp>
#include <vector>

#include "base/failure.hpp"
#include "base/settings.hpp"
#include "record/process_identity.hpp"

namespace tutti::core {
namespace {

constexpr auto keep_dead_for = std::chrono::hours(24);
constexpr auto keep_others_for = std::chrono::hours(24 * 7);
constexpr size_t most_of_this_process = 16;

struct ParsedName {
  ProcessIdentity process;
  bool ours = false;  // the name is of our making
};

ParsedName read_name(std::string name) {
  constexpr std::string_view draft = ".draft";
  if (name.ends_with(draft)) name.resize(name.size() - draft.size());
  ParsedName result;
  std::string_view rest = name;
  uint64_t host = 0, pid = 0, start = 0, number = 0;
  if (take_number(rest, host, 16) && take_word(rest, "-") && take_number(rest, pid) && take_word(rest, "-") &&
      take_number(rest, start) && take_word(rest, "-") && take_number(rest, number) && rest == TUTTI_FLIGHT_SUFFIX)
    result = {{host, pid, start}, true};
  return result;
}

// A file is removed if its process was of this host and pid namespace and is no more. Nothing is known of others (of
// an earlier boot, a container, a host that shares the folder): theirs go once nobody has written them for a week.
void remove_left_behind(const std::string& folder) {
  const ProcessIdentity self = this_process_identity();
  struct Dead {
    std::filesystem::file_time_type written;
    std::filesystem::path path;
  };
  const auto now = std::filesystem::file_time_type::clock::now();
  std::vector<Dead> dead;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const ParsedName named = read_name(entry.path().filename());
    if (!named.ours) continue;
    const auto written = entry.last_write_time(ignored);
    if (named.process.host != self.host) {
      if (written < now - keep_others_for) std::filesystem::remove(entry.path(), ignored);
    } else if (process_start(named.process.pid) != named.process.start) {
      dead.push_back({written, entry.path()});
    }
  }
  std::sort(dead.begin(), dead.end(), [](const Dead& a, const Dead& b) { return a.written > b.written; });
  const auto oldest = now - keep_dead_for;
  for (size_t i = 0; i < dead.size(); ++i)
    if (i >= most_left_behind || dead[i].written < oldest) std::filesystem::remove(dead[i].path, ignored);
}

Failure refused(const std::string& folder, const std::string& why) {
  return Failure(TUTTI_SYSTEM,
                 fmt::format("flight recorder: folder {}: {}; set TUTTI_RECORDER_DIR to a folder of your own, or "
                             "TUTTI_RECORDER=0",
                             folder, why));
}

void make_folder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) throw refused(folder, system_text(errno));
  struct stat status {};
  if (lstat(folder.c_str(), &status) != 0) throw refused(folder, system_text(errno));
  if (!S_ISDIR(status.st_mode)) throw refused(folder, "it is not a folder (symbolic links are not followed)");
  if (status.st_uid != geteuid())
    throw refused(folder, fmt::format("it belongs to user {}, expected {}", status.st_uid, geteuid()));
  if (status.st_mode & (S_IWGRP | S_IWOTH)) throw refused(folder, "others may write into it, expected mode 0700");
}

}  // namespace

std::optional<std::string> flight_folder() {
  if (const auto given = setting("TUTTI_RECORDER_DIR")) {
    if (given->empty() || given->front() != '/')
      throw Failure(TUTTI_INVALID_ARGUMENT,
                    fmt::format("TUTTI_RECORDER_DIR=\"{}\" is not the full path of a folder", *given));
    return *given;
  }
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  struct stat status {};
  if (runtime && *runtime && stat(runtime, &status) == 0 && status.st_uid == geteuid())
    return std::string(runtime) + "/tutti";
  return fmt::format("/tmp/tutti-{}", geteuid());
}

FlightFile::FlightFile(const std::string& folder, uint64_t bytes) : bytes_(bytes) {
  rlimit largest{};  // making a file larger than this would end the process by SIGXFSZ
  if (getrlimit(RLIMIT_FSIZE, &largest) == 0 && bytes > largest.rlim_cur)
    throw refused(folder,
                  fmt::format("{} bytes are more than the largest file that this process may make (ulimit -f)", bytes));
  make_folder(folder);
  static std::once_flag first;
  std::call_once(first, [&] { remove_left_behind(folder); });
  static std::atomic<uint64_t> files{0};
  const ProcessIdentity self = this_process_identity();
  path_ = fmt::format("{}/{:016x}-{}-{}-{}" TUTTI_FLIGHT_SUFFIX, folder, self.host, self.pid, self.start, files++);
  draft_ = path_ + ".draft";
  unlink(draft_.c_str());
  const FileDescriptor file(open(draft_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) throw refused(folder, fmt::format("cannot create a file: {}", system_text(errno)));
  // With blocks of its own: a full disk must show here, not as a signal at some later store.
  const int full = posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
  void* mapped = full ? MAP_FAILED : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) {
    const int error = full ? full : errno;
    unlink(draft_.c_str());
    throw refused(folder, fmt::format("{} bytes: {}", bytes, system_text(error)));
  }
  madvise(mapped, bytes, MADV_DONTFORK);
  data_ = mapped;
}

FlightFile::~FlightFile() {
  munmap(data_, bytes_);
  if (!draft_.empty()) unlink(draft_.c_str());
}

void FlightFile::publish() {
  if (rename(draft_.c_str(), path_.c_str()) != 0)
    throw Failure(TUTTI_SYSTEM, fmt::format("flight recorder: {}: {}", path_, system_text(errno)));
  draft_.clear();
}

void FlightFile::remove() noexcept { unlink(path_.c_str()); }

void retain_file(const std::string& path) noexcept try {
  static std::mutex mutex;
  static auto* left = new std::deque<std::string>();  // threads may outlive static destruction
  const std::lock_guard lock(mutex);
  left->push_back(path);
  if (left->size() <= most_of_this_process) return;
  unlink(left->front().c_str());
  left->pop_front();
} catch (...) {  // out of memory: the file stays
}

}  // namespace tutti::core
