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
  // `lent`: another rank may still read it, so these bytes stay as they are as long as there is the file.
  void give_back(std::byte* address, bool lent = false);

 private:
  struct File {
    uint64_t bytes = 0;
    std::map<uint64_t, uint64_t> taken;  // sizes, by offset
    size_t lent = 0;                     // of these, given back so
    // Where a part of so many bytes fits; `bytes`: nowhere.
    uint64_t gap(uint64_t part) const;
  };

  std::byte* allocate(uint64_t part, uint64_t* size) const;

  std::mutex mutex_;
  std::map<std::byte*, File> files_;
  uint64_t total_ = 0;  // bytes of all files
};

}  // namespace tutti::core
