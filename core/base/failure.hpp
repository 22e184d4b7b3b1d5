// SPDX-License-Identifier: Apache-2.0
//
// The one exception type of the core. It is thrown inside and converted to a status at the C boundary.
#pragma once
#include <tutti/plugin/types.h>

#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <utility>

namespace tutti::core {

// `text` says who, what was expected, what came and what to do.
struct Failure : std::exception {
  Failure(tutti_status status_, std::string text_) : status(status_), text(std::move(text_)) {}
  const char* what() const noexcept override { return text.c_str(); }

  tutti_status status;
  std::string text;
};

// Any exception as one of these: a Failure as it is; used-up memory or threads as TUTTI_NO_RESOURCES.
inline Failure failure_of(const std::exception& problem) {
  if (const auto* failure = dynamic_cast<const Failure*>(&problem)) return *failure;
  if (dynamic_cast<const std::bad_alloc*>(&problem))
    return Failure(TUTTI_NO_RESOURCES, "out of memory (ulimit -v, or the machine's)");
  if (const auto* system = dynamic_cast<const std::system_error*>(&problem);
      system && system->code() == std::errc::resource_unavailable_try_again)
    return Failure(TUTTI_NO_RESOURCES,
                   "no thread can be started: " + std::string(problem.what()) + " (ulimit -u, ulimit -v)");
  return Failure(TUTTI_INTERNAL, problem.what());
}

}  // namespace tutti::core
