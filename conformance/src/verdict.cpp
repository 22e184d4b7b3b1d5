// SPDX-License-Identifier: Apache-2.0
#include "verdict.hpp"

#include <stdexcept>

namespace tutti::conformance {
namespace {

struct Row {
  Verdict verdict;
  const char* key;
  const char* name;
};
constexpr Row rows[] = {{Verdict::pass, "pass", "pass"},
                        {Verdict::warning, "warning", "warning"},
                        {Verdict::not_supported, "not_supported", "not supported"},
                        {Verdict::not_run, "not_run", "not run"},
                        {Verdict::fail, "fail", "FAIL"},
                        {Verdict::crash, "crash", "CRASH"},
                        {Verdict::timeout, "timeout", "TIMEOUT"}};

}  // namespace

const char* verdict_name(Verdict verdict) { return rows[static_cast<size_t>(verdict)].name; }
const char* verdict_key(Verdict verdict) { return rows[static_cast<size_t>(verdict)].key; }

Verdict verdict_from_key(const std::string& key) {
  std::string known;
  for (const Row& row : rows) {
    if (key == row.key) return row.verdict;
    known += (known.empty() ? "" : ", ") + std::string(row.key);
  }
  throw std::runtime_error("\"" + key + "\" is no verdict; there are " + known);
}

}  // namespace tutti::conformance
