// SPDX-License-Identifier: Apache-2.0
#include "observe/reports.hpp"

#include <fmt/format.h>
#include <tutti/schedule.h>

#include "bootstrap/failure.hpp"
#include "choose/selector.hpp"
#include "comm/progress.hpp"
#include "plan/plan.hpp"

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

std::string explain(const Selector& selector, const Topology& topology, uint32_t collective, uint64_t count,
                    uint32_t dtype) {
  const uint32_t element_bytes = dtype_bytes(dtype);
  std::string text =
      fmt::format("{} of {} {} elements ({} bytes a block), {} ranks on {} hosts\n", collective_name(collective), count,
                  dtype_name(dtype), count * element_bytes, topology.nranks(), topology.hosts());
  text += fmt::format("  {:<18} {:>14} {:>14} {:>8}\n", "algorithm", "predicted us", "measured us", "slices");
  Shape shape;
  shape.collective = collective;
  shape.count = count;
  shape.dtype = dtype;
  shape.op = is_reducing(collective) ? TUTTI_SUM : 0;
  if (const uint64_t judged = selector.judged_count(shape, false); judged != count)
    text += fmt::format("  as for {} elements ({} bytes a block): one choice serves all sizes up to twice these\n",
                        judged, judged * element_bytes);
  const std::vector<Candidate> all = selector.candidates(shape, false);
  const size_t chosen = all.empty() || !all[0].reason.empty() ? all.size() : selector.pick(shape, false, all);
  for (const Candidate& c : all) {
    const bool is_chosen = &c == all.data() + chosen;
    if (c.reason.empty())
      text += fmt::format("  {:<18} {:>14.3f} {:>14} {:>8}  {}\n", c.name(), c.seconds * 1e6,
                          c.measured ? fmt::format("{:.3f}", *c.measured * 1e6) : "-", c.slices,
                          is_chosen ? selector.why(c) : "");
    else
      text += fmt::format("  {:<18} {:>14} {:>14} {:>8}  no candidate: {}\n", c.name(), "-", "-", "-", c.reason);
  }
  if (const std::string note = selector.tuning_note(collective, all); !note.empty()) text += "  " + note + "\n";
  return text;
}

}  // namespace tutti::core
