// SPDX-License-Identifier: Apache-2.0
#include "table.hpp"

#include <tutti/tutti.h>

#include <cstdio>
#include <map>
#include <utility>

#include "footprint.hpp"
#include "print.hpp"

namespace perf {
namespace {

void print_side(const Side& side) {
  if (!side.measured) {
    print("  {:>7}  {:>6}  {:>6}  {:>6}", "N/A", "N/A", "N/A", "N/A");
    return;
  }
  print("  {:>7}  {:>6}  {:>6}", fit_number(side.time_us, 7), fit_number(side.algorithm_bandwidth, 6),
        fit_number(side.bus_bandwidth, 6));
  if (side.checked)
    print("  {:6g}", static_cast<double>(side.wrong));
  else
    print("  {:>6}", "N/A");
}

void print_latency(const char* label, const Side& side) {
  if (side.measured)
    print("  {} min {} p50 {} p99 {}", label, fit_number(side.latency.minimum, 7), fit_number(side.latency.p50, 7),
          fit_number(side.latency.p99, 7));
}

}  // namespace

std::string fit_number(double value, int width) {
  for (int decimals = 2; decimals >= 0; --decimals)
    if (std::string text = fmt::format("{:.{}f}", value, decimals); text.size() <= size_t(width)) return text;
  return fmt::format("{:.{}e}", value, width >= 7 ? 1 : 0);
}

void print_setting(const Options& options, const Setting& setting) {
  print("# tutti-perf {}\n#", tutti_version());
  for (const std::string& word : options.command) print(" {}", word);
  print("\n# nRanks {} minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} validation: {}\n",
        setting.nranks, options.least_bytes, options.most_bytes,
        options.step_factor ? options.step_factor : options.step_bytes, options.step_factor ? "factor" : "bytes",
        options.warm_up, options.iterations, options.checks);
  print("# memory: {}  time: {}  transports: {}\n#\n# Using ranks\n",
        !options.device.empty() ? "device " + options.device + (options.registered ? ", registered" : "")
        : options.registered    ? "registered"
                                : "ordinary",
        report_name(options.report), setting.transports.empty() ? "none" : setting.transports);
  for (const RankIdentity& rank : setting.ranks)
    print("#  Rank {:3} Pid {:7} on {}{}\n", rank.rank, rank.pid, rank.host, options.threads ? " (a thread)" : "");
  if (setting.baseline) {
    const Baseline& b = *setting.baseline;
    print(
        "# Device {} (of {}), buffers of {} bytes, in bytes moved: copy {:.1f} GB/s; float sum of two {:.1f} GB/s, "
        "{:.2f} of the copy\n# A small copy: {:.2f} us in a row, {:.2f} us until the host sees its end\n",
        options.device, setting.devices, b.bytes, b.copy, b.reduce, b.reduce / b.copy, b.in_stream_us, b.alone_us);
  }
  std::fflush(stdout);
}

void print_columns(const Collective& collective) {
  print("#\n# {}\n", collective.name);
  print(
      "#                                                              out-of-place                       in-place\n");
  print(
      "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  "
      "#wrong\n");
  print(
      "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  "
      "(GB/s)\n");
  std::fflush(stdout);
}

void print_row(const Options& options, const Row& row) {
  print("{:12}  {:12}  {:>8}  {:>6}  {:6}", row.bytes, row.count, row.dtype, row.op, row.root);
  print_side(row.out_of_place);
  print_side(row.in_place);
  if (options.latency) {
    print("\n# latency (us)");
    print_latency("out-of-place", row.out_of_place);
    print_latency("in-place", row.in_place);
  }
  if (row.out_of_place.free_us > 0) {
    print("\n# exact: {:.2f} times the free order's time", row.out_of_place.exact_ratio());
    if (row.in_place.free_us > 0) print(", in-place {:.2f} times", row.in_place.exact_ratio());
  }
  print("\n");
  std::fflush(stdout);
}

void print_bound(const Row& row, double bound_us) {
  print("# each byte of the buffers once at the copy's rate: {} us;", fit_number(bound_us, 7));
  if (row.out_of_place.measured) print(" out-of-place {:.2f} of that rate", bound_us / row.out_of_place.time_us);
  if (row.in_place.measured) print(" in-place {:.2f}", bound_us / row.in_place.time_us);
  print("\n");
  std::fflush(stdout);
}

void print_rails(const std::vector<Rail>& rails) {
  for (const Rail& r : rails)
    print("# Rank 0's rail        : {} {}: {} bytes sent, {} received\n", r.transport, r.name, r.sent_bytes,
          r.received_bytes);
}

void print_services(const std::vector<tutti_service>& rows, const std::string& device) {
  for (const tutti_service& row : rows)
    if (std::string(row.transports).starts_with(device + "+"))
      print("# Rank 0's calls       : {}{}{} over {}\n", row.collective, *row.algorithm ? " by " : "", row.algorithm,
            row.transports);
}

void print_traffic(const std::vector<tutti_link_traffic>& rows) {
  std::map<std::string, std::pair<uint64_t, uint64_t>> carried;
  for (const tutti_link_traffic& row : rows) {
    carried[row.transport].first += row.sent_bytes;
    carried[row.transport].second += row.received_bytes;
  }
  for (const auto& [carrier, bytes] : carried)
    print("# Rank 0's bytes       : {}: {} sent, {} received\n", carrier, bytes.first, bytes.second);
}

void print_end(uint64_t wrong, double average_bus_bandwidth) {
  print("# Out of bounds values : {} {}\n", wrong, wrong ? "FAILED" : "OK");
  print("# Avg bus bandwidth    : {:g}\n", average_bus_bandwidth);
  if (const Footprint mine = footprint(); mine.descriptors > 0)
    print("# Rank 0's process     : {} descriptors open of {} (ulimit -n), {:.1f} MiB at most\n", mine.descriptors,
          mine.most_descriptors, mine.peak_mib);
  print("#\n");
  std::fflush(stdout);
}

}  // namespace perf
