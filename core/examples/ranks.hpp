// SPDX-License-Identifier: Apache-2.0
//
// How the short examples become ranks: one process per rank under a launcher (tuttirun -n 4 softmax), or, with
// --threads N, N threads of one process. The example itself is the same function of a communicator in both cases.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

namespace ranks {

using Body = std::function<void(const tutti::Communicator&)>;

// Throws `what` when `condition` does not hold: the example then fails on all ranks.
inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// "1 2 3"; "-" for nothing.
template <typename T>
std::string show(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) {
    char number[32];
    std::snprintf(number, sizeof number, "%.6g", static_cast<double>(value));
    text += (text.empty() ? "" : " ") + std::string(number);
  }
  return text.empty() ? "-" : text;
}

// Rank 0 prints each rank's text, in the order of ranks. Collective.
void print_in_order(const tutti::Communicator& world, const std::string& text);

// An option of an example, "--epochs", above 0, with its default.
struct Number {
  const char *name, *about;
  uint32_t value;
};

// One that is there or not.
struct Flag {
  const char *name, *about;
  bool value = false;
};

// The whole of an example's main: reads --threads, and `option` and `flag` if there are any, and runs the body on each
// rank. Returns the program's exit status.
int run(int argc, char** argv, const std::string& program, const std::string& about, const Body& body,
        Number* option = nullptr, Flag* flag = nullptr);

}  // namespace ranks
