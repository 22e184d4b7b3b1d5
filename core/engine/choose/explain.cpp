// SPDX-License-Identifier: Apache-2.0
#include "engine/choose/explain.hpp"

#include <fmt/format.h>
#include <tutti/schedule.h>

#include <vector>

#include "engine/choose/selector.hpp"
#include "engine/choose/shape.hpp"

namespace tutti::core {

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
