// SPDX-License-Identifier: Apache-2.0
#include "table.hpp"

#include <tutti/tutti.h>

#include <cstdio>
#include <map>
#include <utility>

#include "footprint.hpp"

namespace perf {
namespace {

void print_side(const Side& side) {
  if (!side.measured) {
    std::printf("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
    return;
  }
  std::printf("  %7s  %6s  %6s", fit_number(side.time_us, 7).c_str(), fit_number(side.algorithm_bandwidth, 6).c_str(),
              fit_number(side.bus_bandwidth, 6).c_str());
  if (side.checked)
    std::printf("  %6g", static_cast<double>(side.wrong));
  else
    std::printf("  %6s", "N/A");
}

void print_latency(const char* label, const Side& side) {
  if (side.measured)
    std::printf("  %s min %s p50 %s p99 %s", label, fit_number(side.latency.minimum, 7).c_str(),
                fit_number(side.latency.p50, 7).c_str(), fit_number(side.latency.p99, 7).c_str());
}

}  // namespace

std::string fit_number(double value, int width) {
  char text[64];
  for (int decimals = 2; decimals >= 0; --decimals) {
    const int length = std::snprintf(text, sizeof text, "%.*f", decimals, value);
    if (length <= width) return text;
  }
  std::snprintf(text, sizeof text, "%.*e", width >= 7 ? 1 : 0, value);
  return text;
}

void print_setting(const Options& options, const Setting& setting) {
  std::printf("# tutti-perf %s\n#", tutti_version());
  for (const std::string& word : options.command) std::printf(" %s", word.c_str());
  std::printf("\n# nRanks %u minBytes %llu maxBytes %llu step: %llu(%s) warmup iters: %u iters: %u validation: %u\n",
              setting.nranks, static_cast<unsigned long long>(options.least_bytes),
              static_cast<unsigned long long>(options.most_bytes),
              static_cast<unsigned long long>(options.step_factor ? options.step_factor : options.step_bytes),
              options.step_factor ? "factor" : "bytes", options.warm_up, options.iterations, options.checks);
  std::printf("# memory: %s  time: %s  transports: %s\n#\n# Using ranks\n",
              !options.device.empty()
                  ? ("device " + options.device + (options.registered ? ", registered" : "")).c_str()
              : options.registered ? "registered"
                                   : "ordinary",
              report_name(options.report), setting.transports.empty() ? "none" : setting.transports.c_str());
  for (const RankIdentity& rank : setting.ranks)
    std::printf("#  Rank %3u Pid %7lld on %s%s\n", rank.rank, static_cast<long long>(rank.pid), rank.host.c_str(),
                options.threads ? " (a thread)" : "");
  if (setting.baseline) {
    const Baseline& b = *setting.baseline;
    std::printf(
        "# Device %s (of %u), buffers of %llu bytes, in bytes moved: copy %.1f GB/s; float sum of two %.1f GB/s, %.2f "
        "of "
        "the copy\n# A small copy: %.2f us in a row, %.2f us until the host sees its end\n",
        options.device.c_str(), setting.devices, static_cast<unsigned long long>(b.bytes), b.copy, b.reduce,
        b.reduce / b.copy, b.in_stream_us, b.alone_us);
  }
  std::fflush(stdout);
}

void print_columns(const Collective& collective) {
  std::printf("#\n# %s\n", collective.name);
  std::printf(
      "#                                                              out-of-place                       in-place\n");
  std::printf(
      "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  "
      "#wrong\n");
  std::printf(
      "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  "
      "(GB/s)\n");
  std::fflush(stdout);
}

void print_row(const Options& options, const Row& row) {
  std::printf("%12lld  %12lld  %8s  %6s  %6lld", static_cast<long long>(row.bytes), static_cast<long long>(row.count),
              row.dtype.c_str(), row.op.c_str(), static_cast<long long>(row.root));
  print_side(row.out_of_place);
  print_side(row.in_place);
  if (options.latency) {
    std::printf("\n# latency (us)");
    print_latency("out-of-place", row.out_of_place);
    print_latency("in-place", row.in_place);
  }
  std::printf("\n");
  std::fflush(stdout);
}

void print_bound(const Row& row, double bound_us) {
  std::printf("# each byte of the buffers once at the copy's rate: %s us;", fit_number(bound_us, 7).c_str());
  if (row.out_of_place.measured) std::printf(" out-of-place %.2f of that rate", bound_us / row.out_of_place.time_us);
  if (row.in_place.measured) std::printf(" in-place %.2f", bound_us / row.in_place.time_us);
  std::printf("\n");
  std::fflush(stdout);
}

void print_rails(const std::vector<Rail>& rails) {
  for (const Rail& r : rails)
    std::printf("# Rank 0's rail        : %s %s: %llu bytes sent, %llu received\n", r.transport.c_str(), r.name.c_str(),
                static_cast<unsigned long long>(r.sent_bytes), static_cast<unsigned long long>(r.received_bytes));
}

void print_services(const std::vector<tutti_service>& rows, const std::string& device) {
  for (const tutti_service& row : rows)
    if (std::string(row.transports).starts_with(device + "+"))
      std::printf("# Rank 0's calls       : %s%s%s over %s\n", row.collective, *row.algorithm ? " by " : "", row.algorithm,
                  row.transports);
}

void print_traffic(const std::vector<tutti_link_traffic>& rows) {
  std::map<std::string, std::pair<uint64_t, uint64_t>> carried;
  for (const tutti_link_traffic& row : rows) {
    carried[row.transport].first += row.sent_bytes;
    carried[row.transport].second += row.received_bytes;
  }
  for (const auto& [carrier, bytes] : carried)
    std::printf("# Rank 0's bytes       : %s: %llu sent, %llu received\n", carrier.c_str(),
                static_cast<unsigned long long>(bytes.first), static_cast<unsigned long long>(bytes.second));
}

void print_end(uint64_t wrong, double average_bus_bandwidth) {
  std::printf("# Out of bounds values : %llu %s\n", static_cast<unsigned long long>(wrong), wrong ? "FAILED" : "OK");
  std::printf("# Avg bus bandwidth    : %g\n", average_bus_bandwidth);
  if (const Footprint mine = footprint(); mine.descriptors > 0)
    std::printf("# Rank 0's process     : %llu descriptors open of %llu (ulimit -n), %.1f MiB at most\n",
                static_cast<unsigned long long>(mine.descriptors),
                static_cast<unsigned long long>(mine.most_descriptors), mine.peak_mib);
  std::printf("#\n");
  std::fflush(stdout);
}

}  // namespace perf
