// SPDX-License-Identifier: Apache-2.0
//
// Where flight records lie: which folder, how a file gets there whole, and how those of dead processes go away.
//
//   folder   TUTTI_RECORDER_DIR, else $XDG_RUNTIME_DIR/tutti, else /tmp/tutti-UID; ours are made with mode 0700
//   name     HOST-PID-START-NUMBER.flight: enough to tell whether its process still lives without opening it
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tutti::core {

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

// The folder that the environment asks for, which need not exist yet. Nothing: this library makes no flight files.
std::optional<std::string> flight_folder();

// The file stays when its communicator ends badly; of those the process keeps the last few.
void retain_file(const std::string& path) noexcept;

}  // namespace tutti::core
