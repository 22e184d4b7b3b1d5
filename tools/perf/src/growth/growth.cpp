// SPDX-License-Identifier: Apache-2.0
#include "growth/growth.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "growth/exponent.hpp"
#include "growth/job.hpp"
#include "growth/record.hpp"
#include "growth/report.hpp"
#include "options.hpp"
#include "timing.hpp"

namespace perf {
namespace {

std::vector<GrowthPoint> points_of(const std::vector<GrowthRow>& rows, double GrowthCost::*value) {
  std::vector<GrowthPoint> points;
  for (const GrowthRow& row : rows) points.push_back({row.nranks, row.median.*value});
  return points;
}

// Why a job of so many ranks would not fit, by what smaller ones took; "": it fits, or nothing is known.
std::string misfit(const std::vector<GrowthRow>& rows, uint32_t nranks) {
  if (rows.empty()) return "";
  rlimit files{};
  const double descriptors = expected_value(points_of(rows, &GrowthCost::most_descriptors), nranks).value_or(0);
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max != RLIM_INFINITY &&
      descriptors > static_cast<double>(files.rlim_max))
    return fmt::format("a process would need about {:.0f} descriptors, but its hard limit is {}: raise it "
                       "(ulimit -Hn, LimitNOFILE=, or limits.conf)",
                       descriptors, files.rlim_max);
  const double kib = expected_value(points_of(rows, &GrowthCost::job_memory_kib), nranks).value_or(0);
  if (const double available = number_behind("MemAvailable:", "/proc/meminfo"); available > 0 && kib > available)
    return fmt::format("it would need about {:.1f} GiB of memory, but {:.1f} GiB are available: end other programs, or "
                       "ask for fewer ranks or --splits",
                       kib / (1 << 20), available / (1 << 20));
  return "";
}

// All rounds of a size, or as many as the limit allows, at least one. `error`: why there is none.
GrowthRow measure_size(const GrowthOptions& options, bool threads, uint32_t nranks, std::string* error) {
  GrowthRow row{.nranks = nranks, .threads = threads, .rounds = {}, .median = {}};
  const GrowthJob job{.threads = threads, .nranks = nranks, .splits = options.splits};
  const auto begin = Clock::now();
  const auto left = [&] { return options.limit_s - microseconds(Clock::now() - begin) / 1e6; };
  double longest = 0;
  while (row.rounds.size() < options.rounds && (row.rounds.empty() || left() > 1.5 * longest)) {
    const double before = left();
    const GrowthResult result = run_job(job, std::chrono::duration<double>(before));
    longest = std::max(longest, before - left());
    if (!result.cost) {
      if (row.rounds.empty()) *error = result.error;
      break;
    }
    row.rounds.push_back(*result.cost);
  }
  if (!row.rounds.empty()) row.median = median_of(row.rounds);
  return row;
}

}  // namespace

int measure_growth(const Options& options) {
  const GrowthOptions& settings = *options.growth;
  GrowthReport report(options);
  for (const bool threads : settings.threads) {
    std::vector<GrowthRow> rows;
    uint32_t failed = 0;  // the size that was not measured
    report.begin(threads);
    for (const uint32_t nranks : settings.sizes) {
      std::string reason = failed ? fmt::format("{} ranks failed already", failed) : misfit(rows, nranks);
      GrowthRow row;
      if (reason.empty()) row = measure_size(settings, threads, nranks, &reason);
      if (reason.empty()) {
        report.add(row);
        rows.push_back(std::move(row));
      } else {
        report.leave_out(threads, nranks, reason);
        if (!failed) failed = nranks;
      }
    }
    report.end(rows);
  }
  return report.finish() ? 0 : 1;
}

}  // namespace perf
