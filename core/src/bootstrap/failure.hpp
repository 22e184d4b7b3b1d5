// SPDX-License-Identifier: Apache-2.0
//
// The one exception type of the core. It is thrown inside and converted to a status at the C boundary.
#pragma once
#include <tutti/plugin/types.h>

#include <exception>
#include <string>
#include <utility>

namespace tutti::core {

// `text` says who, what was expected, what came and what to do.
struct Failure : std::exception {
  Failure(tutti_status status_, std::string text_) : status(status_), text(std::move(text_)) {}
  const char* what() const noexcept override { return text.c_str(); }

  tutti_status status;
  std::string text;
};

}  // namespace tutti::core
