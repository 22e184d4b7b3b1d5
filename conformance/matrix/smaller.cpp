// SPDX-License-Identifier: Apache-2.0
#include "matrix/smaller.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include "matrix/cell.hpp"
#include "suites.hpp"

namespace tutti::conformance {
namespace {

// Cells that are one step smaller, the boldest first.
std::vector<Cell> smaller(const Cell& cell) {
  std::vector<Cell> all;
  const auto add = [&](auto&& change) {
    Cell next = cell;
    change(next);
    next.operation.root = std::min(next.operation.root, next.operation.nranks - 1);
    if (next.devices) next.devices = std::min(next.devices, next.operation.nranks);
    if (next.id() != cell.id() && next.is_legal()) all.push_back(std::move(next));
  };
  const uint32_t n = cell.operation.nranks;
  const uint64_t count = cell.operation.count;
  for (const uint32_t fewer : {1u, 2u, 3u, n / 2, n - 1})
    if (fewer >= 1 && fewer < n) add([&](Cell& c) { c.operation.nranks = fewer; });
  for (const uint64_t less : {uint64_t{1}, uint64_t{n}, count / 16, count / 2, count - 1})
    if (less >= 1 && less < count) add([&](Cell& c) { c.operation.count = less; });
  add([](Cell& c) { c.calls = Calls::block; });
  add([](Cell& c) { c.place = InPlace::out; });
  add([](Cell& c) { c.memory = c.on_host() ? Memory::heap : Memory::device; });
  add([](Cell& c) { c.alignment = Alignment::aligned; });
  add([](Cell& c) { c.operation.root = 0; });
  return all;
}

}  // namespace

std::optional<Result> smallest_failure(const Result& bad, const RunnerOptions& options, double seconds) {
  auto cell = cell_from(bad.id);
  if (!cell) return std::nullopt;
  const auto begin = std::chrono::steady_clock::now();
  RunnerOptions quietly = options;
  quietly.on_result = nullptr;
  std::optional<Result> least;
  for (bool found = true; found;) {
    found = false;
    for (const Cell& next : smaller(*cell)) {
      if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > seconds) return least;
      auto one = find_case(next.id());
      if (!one) continue;
      one->deadline_ms = std::min(one->deadline_ms, 10'000u);
      Result result = run_cases({*one}, quietly).front();
      if (result.outcome.verdict != bad.outcome.verdict || result.outcome.clause != bad.outcome.clause) continue;
      least = std::move(result);
      cell = next;
      found = true;
      break;
    }
  }
  return least;
}

}  // namespace tutti::conformance
