// SPDX-License-Identifier: Apache-2.0
#include "record/reports.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <set>

#include "base/clock.hpp"
#include "base/failure.hpp"

namespace tutti::core {

std::string Reports::recorder_hint() const {
  return recorder_->path().empty()
             ? ""
             : fmt::format(" [flight record: {}; read all ranks' with tutti-info --hang]", recorder_->path());
}

uint32_t Reports::row(const char* collective, const char* algorithm, std::string_view transports) {
  for (size_t i = 0; i < rows_.size(); ++i)
    if (rows_[i].collective == collective && rows_[i].algorithm == algorithm && rows_[i].transports == transports)
      return static_cast<uint32_t>(i);
  rows_.push_back({collective, algorithm, std::string(transports)});
  recorder_->name_service(static_cast<uint32_t>(rows_.size() - 1), algorithm, rows_.back().transports);
  return static_cast<uint32_t>(rows_.size() - 1);
}

uint32_t Reports::transfer_row(const char* call, const char* device, std::span<const char* const> carriers) {
  for (const TransferRow& known : transfer_rows_)
    if (known.call == call && known.device == device && std::ranges::equal(known.carriers, carriers)) return known.row;
  const std::set<std::string_view> names(carriers.begin(), carriers.end());
  const std::string text =
      fmt::format("{}{}{}", device ? device : "", device && !names.empty() ? "+" : "", fmt::join(names, "+"));
  const uint32_t made = row(call, "", text);
  transfer_rows_.push_back({call, device, {carriers.begin(), carriers.end()}, made});
  return made;
}

std::vector<tutti_service> Reports::services() const {
  std::vector<tutti_service> services;
  for (const Row& r : rows_)
    if (r.calls)
      services.push_back(
          {r.collective.c_str(), r.algorithm.c_str(), r.transports.c_str(), r.calls, r.bytes, ticks_to_ns(r.ticks)});
  return services;
}

tutti_plan_facts Reports::plan_facts(uint32_t collective) const {
  const Served& served = served_[collective];
  if (!served.there)
    throw Failure(TUTTI_NOT_FOUND, fmt::format("no {} has been called yet", collective_name(collective)));
  const Row& row = rows_[served.row];
  return {sizeof(tutti_plan_facts), 0, row.algorithm.c_str(), row.transports.c_str(), served.slices,
          served.schedule_hash};
}

}  // namespace tutti::core
