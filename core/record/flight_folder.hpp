// SPDX-License-Identifier: Apache-2.0
//
// Where flight records lie: which folder, how a file gets there whole, and how those of dead processes go away.
//
//   folder   TUTTI_RECORDER_DIR, else $XDG_RUNTIME_DIR/tutti, else /tmp/tutti-UID; ours are made with mode 0700
//   name     HOST-PID-START-NUMBER.flight: enough to tell whether its process still lives without opening it
#pragma once

#include <cstdint>
#include <string>

namespace tutti::core {

// The identity of a process, also for others that see its number.
struct ProcessIdentity {
  uint64_t host = 0;  // hash of the host's boot and the process's pid namespace: where its number means something
  uint64_t pid = 0;
  uint64_t start = 0;  // field 22 of /proc/PID/stat
};
ProcessIdentity this_process_identity();

// A file of `bytes` zero bytes, mapped shared and kept out of forked children; it has no name until publish(). The
// destructor unmaps it and leaves the file where it is.
class FlightFile {
 public:
  // Throws Failure saying what is wrong with which folder. The first of a process removes what dead processes left
  // behind beyond a day or `most_left_behind` files.
  FlightFile(const std::string& folder, uint64_t bytes);
  FlightFile(const FlightFile&) = delete;
  FlightFile& operator=(const FlightFile&) = delete;
  ~FlightFile();

  void* data() const { return data_; }
  // Gives the file its name. Throws Failure.
  void publish();
  void remove() noexcept;
  const std::string& path() const { return path_; }

 private:
  std::string path_, draft_;
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
};

constexpr size_t most_left_behind = 256;

// The folder that the environment asks for. It need not exist yet.
std::string flight_folder();

// The file stays when its communicator ends badly; of those the process keeps the last few.
void leave_behind(const std::string& path) noexcept;

}  // namespace tutti::core
