// SPDX-License-Identifier: Apache-2.0
#include "line_output.hpp"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tuttirun {

void Sink::flush() {
  while (pending()) {
    pollfd ready = {fd_, POLLOUT, 0};
    if (::poll(&ready, 1, 0) != 1) return;
    // A pipe that polls writable takes this much without blocking; the descriptor is shared with whoever started
    // tuttirun, so it is not made non-blocking.
    const ssize_t n = ::write(fd_, queue_.data() + written_, std::min<size_t>(queue_.size() - written_, PIPE_BUF));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n < 0) {
      broken_ = errno;
      queue_.clear();
      written_ = 0;
      return;
    }
    written_ += static_cast<size_t>(n);
    if (written_ == queue_.size() || written_ > kFull) {
      queue_.erase(0, written_);
      written_ = 0;
    }
  }
}

void LineOutput::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const size_t part = end == std::string_view::npos ? bytes.size() : end;
    line_.append(bytes.substr(0, part));
    bytes.remove_prefix(part);
    if (end == std::string_view::npos && line_.size() < kMaxLine) return;
    if (end != std::string_view::npos) bytes.remove_prefix(1);
    sink_->put(label_);
    sink_->put(line_);
    sink_->put("\n");
    line_.clear();
  }
}

void LineOutput::finish() {
  if (!line_.empty()) feed("\n");
}

}  // namespace tuttirun
