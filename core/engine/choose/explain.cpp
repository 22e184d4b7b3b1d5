// SPDX-License-Identifier: Apache-2.0
#include "engine/choose/explain.hpp"

#include <fmt/format.h>
#include <tutti/schedule.h>

#include <vector>

#include "engine/choose/selector.hpp"
#include "kernels/kernels.hpp"

namespace tutti::core {

namespace {

std::string order_note(Order order, uint32_t dtype) {
  if (order == Order::free) return "";
  if (order == Order::canonical) return "  a sum in the canonical order (TUTTI_ORDER)\n";
  if (!rounds(TUTTI_SUM, dtype))
    return fmt::format("  sums of {} do not round: any algorithm gives exact ones (TUTTI_ORDER)\n", dtype_name(dtype));
  return "  an exact sum (TUTTI_ORDER): all contributions are reduced in one step\n";
}

std::string table(const Selector& selector, const Topology& topology, const Shape& shape, bool on_device,
                  const std::string& note) {
  const uint32_t element_bytes = shape.element_bytes();
  std::string text =
      fmt::format("{} of {} {} elements ({} bytes a block) in {} memory, {} ranks on {} hosts\n",
                  collective_name(shape.collective), shape.count, dtype_name(shape.dtype), shape.count * element_bytes,
                  on_device ? "device" : "host", topology.nranks(), topology.hosts());
  text += note;
  text += fmt::format("  {:<18} {:>14} {:>14} {:>8}\n", "algorithm", "predicted us", "measured us", "slices");
  if (const uint64_t judged = selector.judged_count(shape, on_device); judged != shape.count)
    text += fmt::format("  as for {} elements ({} bytes a block): one choice serves all sizes up to twice these\n",
                        judged, judged * element_bytes);
  const std::vector<Candidate> all = selector.candidates(shape, on_device);
  const size_t chosen = all.empty() || !all[0].reason.empty() ? all.size() : selector.pick(shape, on_device, all);
  for (const Candidate& c : all) {
    if (c.reason.empty())
      text += fmt::format("  {:<18} {:>14.3f} {:>14} {:>8}  {}\n", c.name(), c.seconds * 1e6,
                          c.measured ? fmt::format("{:.3f}", *c.measured * 1e6) : "-", c.slices,
                          &c == all.data() + chosen ? selector.why(c, all) : "");
    else
      text += fmt::format("  {:<18} {:>14} {:>14} {:>8}  no candidate: {}\n", c.name(), "-", "-", "-", c.reason);
  }
  if (const std::string note = on_device ? "" : selector.tuning_note(shape.collective, all); !note.empty())
    text += "  " + note + "\n";
  return text;
}

}  // namespace

std::string explain(const Selector& selector, const Topology& topology, uint32_t collective, uint64_t count,
                    uint32_t dtype, Order order) {
  Shape shape{count, collective, dtype};
  std::string note;
  if (is_reducing(collective)) {
    shape.op = TUTTI_SUM;
    shape.order = order == Order::exact && !rounds(TUTTI_SUM, dtype) ? Order::free : order;
    note = order_note(order, dtype);
    if (shape.order == Order::exact && !find_exact_sum(dtype))
      return fmt::format("{} of {} is refused: exact sums (TUTTI_ORDER) are not defined for this type\n",
                         collective_name(collective), dtype_name(dtype));
  }
  std::string text = table(selector, topology, shape, false, note);
  if (topology.is_on_devices()) text += "\n" + table(selector, topology, shape, true, note);
  return text;
}

}  // namespace tutti::core
