// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <string_view>

namespace tuttirun {

// tuttirun's own standard output or error. Bytes wait here until they can be written without blocking, so that a slow
// reader never keeps tuttirun from its signals.
class Sink {
 public:
  explicit Sink(int fd) : fd_(fd) {}

  int fd() const { return fd_; }
  void put(std::string_view bytes) {
    if (!broken_) queue_.append(bytes);
  }
  // Bytes that are not written yet.
  size_t waiting() const { return queue_.size() - written_; }
  bool pending() const { return waiting() > 0; }
  // Enough is waiting: stop reading what would add to it.
  bool full() const { return waiting() > kFull; }
  // Writes as long as that does not block. After an error everything is dropped and broken() tells errno.
  void flush();
  int broken() const { return broken_; }

 private:
  static constexpr size_t kFull = 1 << 20;
  int fd_;
  std::string queue_;
  size_t written_ = 0;
  int broken_ = 0;
};

// Cuts one rank's output into lines and puts whole lines, labelled, into a sink. A line longer than kMaxLine is put in
// pieces, each a line of its own.
class LineOutput {
 public:
  static constexpr size_t kMaxLine = 16 << 20;
  LineOutput(std::string label, Sink& sink) : label_(std::move(label)), sink_(&sink) {}

  void feed(std::string_view bytes);
  // The end: an unfinished line is finished.
  void finish();
  Sink& sink() { return *sink_; }

 private:
  std::string label_;
  Sink* sink_;
  std::string line_;
};

}  // namespace tuttirun
