// SPDX-License-Identifier: Apache-2.0
#include "api/guards.hpp"

#include <cstring>
#include <new>

namespace tutti::core::api {

tutti_status report(Communicator& communicator, const std::exception& problem) noexcept {
  const auto* const known = dynamic_cast<const Failure*>(&problem);
  const bool no_memory = dynamic_cast<const std::bad_alloc*>(&problem);
  const tutti_status status = known ? known->status : no_memory ? TUTTI_NO_RESOURCES : TUTTI_INTERNAL;
  try {
    std::string text = known ? known->text : no_memory ? "out of memory" : problem.what();
    if (!text.starts_with("rank "))
      text = known ? fmt::format("rank {}: {}: {}", communicator.rank(), communicator.name(), text)
                   : fmt::format("rank {}: {}", communicator.rank(), text);
    return communicator.remember(status, std::move(text));
  } catch (const std::bad_alloc&) {
    return communicator.remember(status, "out of memory");
  }
}

tutti_status copy_text(const std::string& text, char* to, uint64_t* bytes) {
  if (!bytes) return TUTTI_INVALID_ARGUMENT;
  const uint64_t capacity = *bytes;
  *bytes = text.size() + 1;
  if (to && capacity) {
    const uint64_t n = std::min(capacity - 1, static_cast<uint64_t>(text.size()));
    std::memcpy(to, text.data(), n);
    to[n] = 0;
  }
  return capacity >= *bytes ? TUTTI_OK : TUTTI_NO_RESOURCES;
}

}  // namespace tutti::core::api
