// SPDX-License-Identifier: Apache-2.0
//
// How a case says that a clause does not hold, or that it does not apply.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <string>
#include <tutti/sized.hpp>

namespace tutti::conformance::contract {

// Ends a case: the clause `clause` is broken.
class Broken : public std::exception {
 public:
  Broken(std::string clause, std::string text) : clause_(std::move(clause)), text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }
  const std::string& clause() const { return clause_; }

 private:
  std::string clause_, text_;
};

// Ends a case that the plugin's own capabilities exclude.
struct NotOffered {
  std::string reason;
};
// Ends a case that this machine cannot run.
struct CannotRun {
  std::string reason;
};

template <typename... Args>
[[noreturn]] void broken(const char* clause, fmt::format_string<Args...> text, Args&&... args) {
  throw Broken(clause, fmt::format(text, std::forward<Args>(args)...));
}
template <typename... Args>
void require(bool holds, const char* clause, fmt::format_string<Args...> text, Args&&... args) {
  if (!holds) broken(clause, text, std::forward<Args>(args)...);
}

// A sized struct that a plugin handed over has a size that this revision accepts.
template <typename Struct>
void require_size(const Struct* given, const char* clause, const char* what) {
  const SizeVerdict verdict = judge_size(given);
  require(verdict.status == TUTTI_OK, clause, "{}: {}", what, verdict.text);
}

// "TUTTI_PEER_FAILED (-6)".
std::string status_text(int32_t status);

}  // namespace tutti::conformance::contract
