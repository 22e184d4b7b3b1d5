// SPDX-License-Identifier: Apache-2.0
//
// Sanitizers look at memory and threads, at ten times the cost of every access. A test that does the same with many
// values gets some of them there.
#pragma once

#include <cstddef>
#include <vector>

namespace tutti::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

// Under a sanitizer every third of the values.
template <typename Value>
std::vector<Value> thinned(const std::vector<Value>& values) {
  std::vector<Value> some;
  for (size_t i = 0; i < values.size(); i += sanitized ? 3 : 1) some.push_back(values[i]);
  return some;
}

}  // namespace tutti::test
