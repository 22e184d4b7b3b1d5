// SPDX-License-Identifier: Apache-2.0
//
// The working memory of the process's communicators. It lies in few memory files, of which each has a part, so that the
// number of descriptors and of registrations does not grow with the number of communicators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace tutti::core {

// Any thread.
class Scratch {
 public:
  static Scratch& process();
  // Memory that transports can address directly (fabric/memory.hpp), from a page's start on, of any content. Throws
  // Failure.
  std::byte* take(uint64_t bytes);
  void give_back(std::byte* address);

 private:
  // What one file holds.
  struct File {
    uint64_t bytes = 0;
    std::map<uint64_t, uint64_t> taken;  // sizes, by offset
    // Where a part of so many bytes fits; `bytes`: nowhere.
    uint64_t gap(uint64_t part) const;
  };

  std::mutex mutex_;
  std::map<std::byte*, File> files_;
  uint64_t total_ = 0;  // bytes of all files
};

}  // namespace tutti::core
