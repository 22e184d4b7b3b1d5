// SPDX-License-Identifier: Apache-2.0
#include "footprint.hpp"

#include <sys/resource.h>

#include <filesystem>

namespace perf {

Footprint footprint() {
  Footprint mine;
  std::error_code unreadable;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", unreadable), end; !unreadable && entry != end;
       entry.increment(unreadable))
    mine.descriptors++;
  if (unreadable || mine.descriptors == 0) return {};
  mine.descriptors--;  // the iterator's own
  rlimit limit{};
  rusage usage{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || getrusage(RUSAGE_SELF, &usage) != 0) return {};
  mine.most_descriptors = limit.rlim_cur;
  mine.peak_mib = static_cast<double>(usage.ru_maxrss) / 1024;
  return mine;
}

}  // namespace perf
