// SPDX-License-Identifier: Apache-2.0
#include "chaos/faults.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace tutti::conformance {

std::span<const AllowedFault> allowed_faults() {
  static constexpr AllowedFault table[] = {
      {"delay", "delay:p=0.3,us=300"},
      {"reorder", "reorder:p=0.4,polls=30"},
      {"partial", "partial:p=0.5,times=5"},
      {"short", "short:p=0.6"},
      {"slow", "slow:rank=1,us=20"},
      {"all", "delay:p=0.1,us=200;reorder:p=0.2,polls=10;partial:p=0.2;short:p=0.2;slow:rank=0,us=5"},
      {"random", ""},
  };
  return table;
}

std::span<const ForbiddenFault> forbidden_faults() {
  const std::string waited = "no progress for", numbered = "lost, doubled or overtaken", changed = "changed on the way";
  static const ForbiddenFault table[] = {
      {"lose", "lose", "", true, {waited, numbered}},
      {"duplicate", "duplicate", "", true, {numbered}},
      {"corrupt", "corrupt", "", true, {changed}},
      {"lose-control", "lose", ",control=1", true, {waited, numbered}},
      {"duplicate-control", "duplicate", ",control=1", true, {numbered}},
      {"corrupt-control", "corrupt", ",control=1", true, {changed}},
      {"lose-unsealed", "lose", ",lane=0", false, {waited, "size differs"}},
      {"stop", "stop", "", false, {waited}},
      {"disconnect",
       "disconnect",
       "",
       false,
       {"on purpose (fault disconnect)", "gave it up", "given it up", "gave this rank up", "is lost", "out of reach",
        "closed"}},
  };
  return table;
}

CapturedErrors::CapturedErrors(const std::string& file) : file_(file) {
  std::fflush(stderr);
  const int to = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  before_ = dup(STDERR_FILENO);
  if (to < 0 || before_ < 0 || dup2(to, STDERR_FILENO) < 0)
    throw std::runtime_error("standard error cannot be sent to " + file);
  close(to);
}

CapturedErrors::~CapturedErrors() {
  std::fflush(stderr);
  dup2(before_, STDERR_FILENO);
  close(before_);
  // The captured output of a case is useful when it fails.
  const std::string all = text();
  std::fwrite(all.data(), 1, all.size(), stderr);
}

std::string CapturedErrors::text() const {
  std::ostringstream all;
  all << std::ifstream(file_).rdbuf();
  return all.str();
}

}  // namespace tutti::conformance
