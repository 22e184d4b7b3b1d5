// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of a program meet, where that takes more than a folder's name: ids and gathered bytes travel through
// files of the job's folder.
#pragma once

#include <tutti/tutti.h>

#include <string>
#include <vector>

#include "fuzz/program.hpp"

namespace tutti::conformance::fuzz {

// The ids of all communicators that `rank` is the first member of, made and written before the strand does anything
// else: so that no rank ever waits for one outside Tutti while something is under way.
void publish_ids(const Program& program, const std::string& folder, uint32_t rank, uint32_t strand);
// The id of a communicator, once it has been published.
std::string read_id(const std::string& folder, uint32_t comm);

// An all_gather of the application's own.
class CallbackMeeting {
 public:
  // `member` of `n` that take part.
  CallbackMeeting(std::string folder, uint32_t comm, uint32_t member, uint32_t n)
      : folder_(std::move(folder)), comm_(comm), member_(member), n_(n) {}
  static tutti_status gather(void* self, const void* mine, uint64_t bytes, void* all);

 private:
  const std::string folder_;
  const uint32_t comm_, member_, n_;
  uint32_t round_ = 0;
};

}  // namespace tutti::conformance::fuzz
