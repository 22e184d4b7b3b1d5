// SPDX-License-Identifier: Apache-2.0
//
// One rank's trace as a file (tutti/trace.h).
//
// Threads: one at a time.
#pragma once

#include <tutti/plugin/tracer.h>
#include <tutti/trace.h>

#include <cstdint>
#include <string>
#include <tutti/sdk/file_descriptor.hpp>

namespace tutti::trace {

// Throws sdk::Error where no file of the folder could be written.
void check_folder(const std::string& folder);

class TraceFile {
 public:
  static constexpr uint64_t most_bytes = 256u << 20;  // the file grows no further

  // Makes the file and writes its header. Throws sdk::Error.
  explicit TraceFile(const tutti_tracer_config& config);
  const std::string& path() const { return path_; }

  // Throws sdk::Error where the records have no room, or the file cannot be written; none of them counts as written
  // then.
  void write(const void* records, uint64_t n) { append(records, n * record_bytes_, most_bytes_ - end_bytes); }
  // The last records, for which there is room in a file that is full as well.
  void end(const void* records, uint64_t n) { append(records, n * record_bytes_, most_bytes_); }

 private:
  static constexpr uint64_t end_bytes = 256;
  void append(const void* data, uint64_t bytes, uint64_t most);

  std::string path_;
  FileDescriptor file_;
  uint64_t record_bytes_;
  uint64_t bytes_ = 0, most_bytes_ = most_bytes;
  bool full_ = false;  // what follows a gap is only the end
};

}  // namespace tutti::trace
